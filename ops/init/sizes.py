"""Hosts of a first file for a number of calls: one fleet or pool of the cheapest single GPU that carries them."""

import math
from collections.abc import Mapping

from blueprint import catalog
from blueprint.capacity import FILL, STREAMS_PER_CORE, asr_host, gateway_task, least, store
from blueprint.engines.sizing.layouts import Asked, aggregated_layout
from blueprint.engines.sizing.result import DoesNotFitError
from blueprint.file.loading import suggestion
from blueprint.file.model.aws import AsrFleet, StateStore
from blueprint.file.model.base import HostCount
from blueprint.file.model.edge import GatewayService, TaskCount
from blueprint.file.model.load import CallLoad
from blueprint.file.model.serving import Load, Quantization

HOURS_A_MONTH = 730
VAD_TYPE, VAD_QUEUES = "c8g.4xlarge", 4
SYSTEM_SIZE, SYSTEM_NODES = "Standard_D4ds_v5", 2
FP8_CAPABILITY = (8, 9)
"""GPUs from Ada on compute in FP8; on older ones it saves memory only."""


class NoFileForThisError(ValueError):
    """No file can be written for what was asked; the message says why, and what to ask for instead."""


def mean_of(calls: int) -> int:
    """Return the mean of a month whose peak is so many calls, as the deployment file counts them."""
    return math.ceil(calls / CallLoad(calls=1).peak_factor)


def bounds(calls: int, places: int) -> HostCount:
    """Return hosts that carry the mean at least and the peak at most, filled to ``FILL``; two survive one."""
    low, most = (math.ceil(each / (places * FILL)) for each in (mean_of(calls), calls))
    return HostCount(min=max(2, low), max=max(3, most))


def aws_values(region: str, calls: int, budget: int) -> dict[str, object]:
    """Return the values of `aws.yaml`.

    Raises:
        NoFileForThisError: The region is none or sells no host for it, or the fewest hosts cost more than the budget.
    """
    _known(region, catalog.regions(), "AWS region")
    rows = [
        row
        for row in catalog.instance_types().values()
        if row.accelerator and row.accelerator.kind == "gpu" and row.accelerator.count == 1 and region in row.regions
    ]
    vad = catalog.instance_types()[VAD_TYPE]
    if not rows or region not in vad.regions:
        raise NoFileForThisError(
            f"{region} sells {'no GPU of the catalogue' if not rows else f'no {VAD_TYPE}'}; take us-east-1, us-east-2, "
            "or write a file with other types"
        )
    one = HostCount(min=0, max=1)
    places = {
        row.name: least(asr_host(AsrFleet(name="gpu", instance_type=row.name, hosts=one, scaling=()))).calls
        for row in rows
    }
    nodes = [kind for kind in catalog.cache_node_types().values() if kind.name.startswith("cache.r7g.")]
    large_enough = [kind for kind in nodes if least(store(StateStore(node_type=kind.name))).calls >= calls]
    if not large_enough:
        raise NoFileForThisError(f"{calls:,} calls are more than one state store holds; write several deployments")
    asr = min(rows, key=lambda row: _least(row.usd_per_hour) / places[row.name])
    vad_places = STREAMS_PER_CORE * VAD_QUEUES
    hosts, per_zone = bounds(calls, places[asr.name]), math.ceil(calls / (2 * vad_places * FILL))
    tasks = bounds(calls, least(gateway_task(GatewayService(tasks=TaskCount(min=1, max=1)))).calls)
    _affordable(region, budget, [(hosts.min, asr.name, asr.usd_per_hour), (2 * per_zone, VAD_TYPE, vad.usd_per_hour)])
    return {
        "zones": f"{region}a, {region}b",
        "vad_type": VAD_TYPE,
        "vad_places": f"{vad_places:,}",
        "vad_min": per_zone,
        "vad_max": 2 * per_zone,  # the other zone may be lost
        "asr_type": asr.name,
        "asr_places": places[asr.name],
        "asr_min": hosts.min,
        "asr_max": hosts.max,
        "gateway_min": tasks.min,
        "gateway_max": max(4, tasks.max),
        "node_type": min(large_enough, key=lambda kind: kind.memory_gib).name,
        "mean": mean_of(calls),
    }


def azure_values(region: str, calls: int, budget: int) -> dict[str, object]:
    """Return the values of `azure.yaml`.

    Raises:
        NoFileForThisError: The location is none or sells no host for it, or the fewest nodes cost more than the budget.
    """
    sizes = catalog.vm_sizes()
    _known(region, sorted({place for size in sizes.values() for place in size.regions}), "location of the catalogue")
    load, model = Load(sessions=calls, session_tokens=1500, context_tokens=16384), catalog.models()["voxtral-small-24b"]
    found = {}
    for size in sizes.values():
        if size.gpu is None or size.gpu_count != 1 or region not in size.regions:
            continue
        gpu = catalog.gpus()[size.gpu]
        quantization = Quantization.FP8 if gpu.compute_capability >= FP8_CAPABILITY else Quantization.NONE
        try:
            layout = aggregated_layout(model, gpu, size, Asked(load, quantization), tensor_parallel=1, region=region)
        except DoesNotFitError:
            continue
        found[size.name] = (layout.engine.sessions, quantization)
    if not found or region not in sizes[SYSTEM_SIZE].regions:
        raise NoFileForThisError(f"{region} sells no single GPU that Voxtral-24B fits; take southcentralus or eastus")
    chosen = min(found, key=lambda name: _least(sizes[name].usd_per_hour) / found[name][0])
    sessions, quantization = found[chosen]
    replicas = bounds(calls, sessions)
    system = sizes[SYSTEM_SIZE].usd_per_hour
    _affordable(
        region, budget, [(replicas.min, chosen, sizes[chosen].usd_per_hour), (SYSTEM_NODES, SYSTEM_SIZE, system)]
    )
    return {
        "vm_size": chosen,
        "replicas_min": replicas.min,
        "replicas_max": replicas.max,
        "mean": mean_of(calls),
        "sessions": sessions,
        "quantization": quantization.value,
    }


def _known(region: str, known: Mapping[str, object] | list[str], what: str) -> None:
    if region not in known:
        remedy = suggestion(region, list(known)) or f"; take one of {', '.join(known)}"
        raise NoFileForThisError(f"{region} is no {what}{remedy}")


def _least(usd_per_hour: Mapping[str, float]) -> float:
    """Return the lowest price of any region: prices compare types here, and not every region's is known."""
    return min(usd_per_hour.values(), default=math.inf)


def _affordable(region: str, budget: int, hosts: list[tuple[int, str, Mapping[str, float]]]) -> None:
    if not all(region in prices for _, _, prices in hosts):
        return
    month = sum(count * prices[region] for count, _, prices in hosts) * HOURS_A_MONTH
    if month > budget:
        what = " and ".join(f"{count} x {name}" for count, name, _ in hosts)
        raise NoFileForThisError(
            f"{what} are the fewest that run, and cost {month:,.0f} USD a month at list price, more than the budget of "
            f"{budget:,} USD; raise it, or ask for fewer calls"
        )
