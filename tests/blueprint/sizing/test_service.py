"""Sizing of services and fleets: all shipped files fit, and the reason of a misfit is reported."""

from pathlib import Path

import pytest

import voice_blueprint
from voice_blueprint.engines.sizing.result import DoesNotFitError, LimitingFactor
from voice_blueprint.engines.sizing.service import ServiceSizing, size_fleet, size_service, size_services
from voice_blueprint.file.model.aws import AsrFleet
from voice_blueprint.file.model.azure import (
    AggregatedService,
    Azure,
    ChatService,
    PeerPool,
    PoolReplicas,
    PrefillDecodeCell,
    TtsService,
)
from voice_blueprint.file.model.base import HostCount
from voice_blueprint.file.model.serving import Load

DEPLOYMENTS = Path(__file__).parents[3] / "tests/deployments"
AZURE = voice_blueprint.load(DEPLOYMENTS / "cells.yaml").azure
SEED_FLEETS = {fleet.name: fleet for fleet in voice_blueprint.load(DEPLOYMENTS / "seed.yaml").aws.asr}
LOAD = Load(sessions=100, session_tokens=1500, context_tokens=16384)
REPLICAS = HostCount(min=1, max=4)


def service_sizing(name: str) -> ServiceSizing:
    return size_service(AZURE, next(service for service in AZURE.services if service.name == name))


def aggregated_service(
    *, model: str = "qwen3-8b", pool: str = "h100", lmcache: PeerPool | None = None
) -> AggregatedService:
    return AggregatedService(
        kind="aggregated", name="asr", model=model, pool=pool, replicas=REPLICAS, load=LOAD, lmcache=lmcache
    )


@pytest.mark.parametrize("file", sorted(DEPLOYMENTS.glob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_deployments_fit_their_hardware(file: Path) -> None:
    deployment = voice_blueprint.load(file)
    for sizing in size_services(deployment.azure_section).values() if deployment.azure_section else ():
        assert isinstance(sizing, ServiceSizing), sizing
        assert sizing.is_sufficient, sizing.summary
    if file.stem == "seed":  # refused by design; see the test below
        return
    for fleet in deployment.aws_section.asr if deployment.aws_section else ():
        size_fleet(fleet)


def test_cells_are_sized() -> None:
    cells = service_sizing("voxtral-cells")
    (pool,) = cells.pools
    assert (pool.engine.sessions, pool.engine.limit) == (403, LimitingFactor.KV_MEMORY)
    assert (pool.replicas_per_node, pool.replicas, pool.nodes, pool.max_replicas) == (1, 2, 2, 4)
    assert pool.prefill is not None
    assert cells.summary == "4 x 403 on cells (replicas.max 4) = 1612 sessions, which support 600"
    assert len(cells.alternatives) == 3


def test_aggregated_pairs_are_sized() -> None:
    (pool,) = service_sizing("voxtral").pools
    assert (pool.gpus_per_replica, pool.replicas_per_node, pool.replicas, pool.nodes) == (2, 1, 2, 2)


def test_speech_is_sized() -> None:
    speech = service_sizing("speech")
    (pool,) = speech.pools
    assert (pool.engine.sessions, pool.replicas_per_node, pool.replicas, pool.nodes) == (32, 8, 8, 1)
    assert speech.alternatives == ()


def test_chat_fills_its_pools_in_the_order_of_the_file() -> None:
    a100, h100 = service_sizing("qwen").pools
    assert (a100.pool, a100.engine.gpu, a100.replicas) == ("a100", "A100-80", 2)
    assert (h100.pool, h100.engine.gpu, h100.replicas) == ("h100spot", "H100-NVL", 0)
    assert a100.engine.max_num_seqs != h100.engine.max_num_seqs  # separate engine classes
    service = next(service for service in AZURE.services if isinstance(service, ChatService))
    more = service.model_copy(update={"load": service.load.model_copy(update={"sessions": a100.sessions + 40})})
    first, second = size_service(AZURE, more).pools
    assert (first.replicas, second.replicas) == (first.max_replicas, 1)
    # Without load KEDA runs the minimum number of replicas.
    kept = service.model_copy(update={"pool_replicas": (PoolReplicas(pool="h100spot", min=1, max=4),)})
    assert [pool.replicas for pool in size_service(AZURE, kept).pools] == [2, 1]


def test_too_few_replicas_are_reported_without_an_exception() -> None:
    service = next(service for service in AZURE.services if isinstance(service, TtsService))
    short = size_service(AZURE, service.model_copy(update={"sessions": 257}))
    assert not short.is_sufficient
    assert short.summary == "8 x 32 on h200 (replicas.max 8) = 256 sessions, which do not support 257"


def test_nodes_of_the_pool_limit_the_replicas() -> None:
    service = aggregated_service().model_copy(update={"replicas": HostCount(min=1, max=50)})
    (pool,) = size_service(AZURE, service).pools
    assert (pool.max_replicas, pool.bottleneck) == (8, "4 nodes of 2")


def test_whisper_has_no_lmcache_and_no_cell() -> None:
    load = Load(sessions=10, session_tokens=448, context_tokens=448)
    whisper = aggregated_service(model="whisper-large-v3").model_copy(update={"load": load})
    assert size_service(AZURE, whisper).is_sufficient
    with pytest.raises(DoesNotFitError, match="KV connector"):
        size_service(AZURE, whisper.model_copy(update={"lmcache": PeerPool()}))
    cell = PrefillDecodeCell(
        kind="prefill-decode-cell", name="asr", model="whisper-large-v3", pool="cells", replicas=REPLICAS, load=load
    )
    with pytest.raises(DoesNotFitError, match="KV connector"):
        size_service(AZURE, cell)


def test_every_replica_on_a_node_needs_its_host_memory_pool() -> None:
    with pytest.raises(DoesNotFitError, match="800 LMCache"):
        size_service(AZURE, aggregated_service(lmcache=PeerPool(l1_gib=400)))


def test_a_refused_service_does_not_affect_others() -> None:
    small = AZURE.pools[0].model_copy(update={"name": "small", "vm_size": "Standard_NV36ads_A10_v5"})
    services = (*AZURE.services, aggregated_service(model="voxtral-small-24b", pool="small"))
    azure = AZURE.model_copy(update={"pools": (*AZURE.pools, small), "services": services})
    answers = size_services(azure)
    assert isinstance(answers["asr"], DoesNotFitError)
    assert all(isinstance(answers[service.name], ServiceSizing) for service in AZURE.services)


def test_an_unknown_pool_is_reported() -> None:
    with pytest.raises(LookupError, match="no pool is named nowhere"):
        size_service(AZURE, aggregated_service(pool="nowhere"))


def test_a_pool_without_gpus_is_reported() -> None:
    pools = tuple(pool.model_copy(update={"vm_size": "Standard_D8ds_v5"}) for pool in AZURE.pools)
    azure: Azure = AZURE.model_copy(update={"pools": pools})
    with pytest.raises(LookupError, match="has no GPU"):
        size_service(azure, aggregated_service())


def test_whisper_on_p5_uses_one_gpu() -> None:
    sizing = size_fleet(SEED_FLEETS["p5"])
    assert sizing is not None
    assert (sizing.gpu, sizing.tensor_parallel) == ("H100", 1)
    assert sizing.sessions >= 32


@pytest.mark.parametrize("name", ["inf2", "trn1"])
def test_vllm_on_neuron_is_not_sized(name: str) -> None:
    with pytest.raises(DoesNotFitError, match="which is not a GPU"):
        size_fleet(SEED_FLEETS[name])


def test_a_whisper_engine_fleet_has_no_vllm_sizing() -> None:
    fleets = voice_blueprint.load(DEPLOYMENTS / "production-us-east-1.yaml").aws.asr
    assert [size_fleet(fleet) for fleet in fleets] == [None] * len(fleets)


def fleet(instance_type: str, sessions: int) -> AsrFleet:
    p5 = SEED_FLEETS["p5"]
    assert p5.vllm is not None
    load = Load(sessions=sessions, session_tokens=1500, context_tokens=32768)
    vllm = p5.vllm.model_copy(update={"model": "voxtral-small-24b", "load": load})
    return p5.model_copy(update={"instance_type": instance_type, "vllm": vllm})


def test_a_fleet_uses_as_many_gpus_as_its_load_requires() -> None:
    few, more = (size_fleet(fleet("p5.48xlarge", sessions)) for sessions in (100, 300))
    assert few is not None
    assert more is not None
    assert (few.tensor_parallel, more.tensor_parallel) == (1, 2)


def test_a_load_beyond_a_host_is_refused() -> None:
    with pytest.raises(DoesNotFitError, match=r"supports \d+ of 1000 sessions"):
        size_fleet(fleet("p5.4xlarge", 1000))
