"""Services and fleets of deployment files: all shipped ones fit, and what does not says why."""

from pathlib import Path

import pytest

import blueprint
from blueprint.engines.sizing.result import DoesNotFitError, Limit
from blueprint.engines.sizing.service import ServiceSizing, size_fleet, size_service, size_services
from blueprint.file.model.aws import AsrFleet
from blueprint.file.model.azure import (
    AggregatedService,
    Azure,
    ChatService,
    LmcachePool,
    PoolReplicas,
    PrefillDecodeCell,
    TtsService,
)
from blueprint.file.model.base import HostCount
from blueprint.file.model.serving import Load

DEPLOYMENTS = Path(__file__).parents[3] / "deployments"
AZURE = blueprint.load(DEPLOYMENTS / "cells.yaml").azure
SEED = {fleet.name: fleet for fleet in blueprint.load(DEPLOYMENTS / "seed.yaml").aws.asr}
LOAD = Load(sessions=100, session_tokens=1500, context_tokens=16384)
REPLICAS = HostCount(min=1, max=4)


def sized(name: str) -> ServiceSizing:
    return size_service(AZURE, next(service for service in AZURE.services if service.name == name))


def aggregated(*, model: str = "qwen3-8b", pool: str = "h100", lmcache: LmcachePool | None = None) -> AggregatedService:
    return AggregatedService(
        kind="aggregated", name="asr", model=model, pool=pool, replicas=REPLICAS, load=LOAD, lmcache=lmcache
    )


@pytest.mark.parametrize("file", sorted(DEPLOYMENTS.glob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_deployments_fit(file: Path) -> None:
    deployment = blueprint.load(file)
    for sizing in size_services(deployment.azure_half).values() if deployment.azure_half else ():
        assert isinstance(sizing, ServiceSizing), sizing
        assert sizing.enough, sizing.verdict
    if file.stem == "seed":  # there to be refused; see the test below
        return
    for fleet in deployment.aws_half.asr if deployment.aws_half else ():
        size_fleet(fleet)


def test_cells() -> None:
    cells = sized("voxtral-cells")
    (pool,) = cells.pools
    assert (pool.engine.sessions, pool.engine.limit) == (403, Limit.KV_MEMORY)
    assert (pool.replicas_per_node, pool.replicas, pool.nodes, pool.most_replicas) == (1, 2, 2, 4)
    assert pool.prefill is not None
    assert cells.verdict == "4 x 403 on cells (replicas.max 4) = 1612 sessions, which carries 600"
    assert len(cells.alternatives) == 3


def test_aggregated_pairs() -> None:
    (pool,) = sized("voxtral").pools
    assert (pool.gpus_per_replica, pool.replicas_per_node, pool.replicas, pool.nodes) == (2, 1, 2, 2)


def test_speech() -> None:
    speech = sized("speech")
    (pool,) = speech.pools
    assert (pool.engine.sessions, pool.replicas_per_node, pool.replicas, pool.nodes) == (32, 8, 8, 1)
    assert speech.alternatives == ()


def test_chat_fills_its_pools_in_the_order_of_the_file() -> None:
    a100, h100 = sized("qwen").pools
    assert (a100.pool, a100.engine.gpu, a100.replicas) == ("a100", "A100-80", 2)
    assert (h100.pool, h100.engine.gpu, h100.replicas) == ("h100spot", "H100-NVL", 0)
    assert a100.engine.max_num_seqs != h100.engine.max_num_seqs  # an engine class of its own
    service = next(service for service in AZURE.services if isinstance(service, ChatService))
    more = service.model_copy(update={"load": service.load.model_copy(update={"sessions": a100.sessions + 40})})
    first, second = size_service(AZURE, more).pools
    assert (first.replicas, second.replicas) == (first.most_replicas, 1)
    # What KEDA keeps without any load is what runs.
    kept = service.model_copy(update={"pool_replicas": (PoolReplicas(pool="h100spot", min=1, max=4),)})
    assert [pool.replicas for pool in size_service(AZURE, kept).pools] == [2, 1]


def test_too_few_replicas_are_an_answer_and_no_error() -> None:
    service = next(service for service in AZURE.services if isinstance(service, TtsService))
    short = size_service(AZURE, service.model_copy(update={"sessions": 257}))
    assert not short.enough
    assert short.verdict == "8 x 32 on h200 (replicas.max 8) = 256 sessions, which does not carry 257"


def test_nodes_of_the_pool_bound_the_replicas() -> None:
    service = aggregated().model_copy(update={"replicas": HostCount(min=1, max=50)})
    (pool,) = size_service(AZURE, service).pools
    assert (pool.most_replicas, pool.bottleneck) == (8, "4 nodes of 2")


def test_whisper_has_no_lmcache_and_no_cell() -> None:
    load = Load(sessions=10, session_tokens=448, context_tokens=448)
    whisper = aggregated(model="whisper-large-v3").model_copy(update={"load": load})
    assert size_service(AZURE, whisper).enough
    with pytest.raises(DoesNotFitError, match="KV connector"):
        size_service(AZURE, whisper.model_copy(update={"lmcache": LmcachePool()}))
    cell = PrefillDecodeCell(
        kind="prefill-decode-cell", name="asr", model="whisper-large-v3", pool="cells", replicas=REPLICAS, load=load
    )
    with pytest.raises(DoesNotFitError, match="KV connector"):
        size_service(AZURE, cell)


def test_pools_of_host_memory_count_for_every_replica_of_a_node() -> None:
    with pytest.raises(DoesNotFitError, match="800 LMCache"):
        size_service(AZURE, aggregated(lmcache=LmcachePool(l1_gib=400)))


def test_a_refusal_takes_no_other_service_with_it() -> None:
    small = AZURE.pools[0].model_copy(update={"name": "small", "vm_size": "Standard_NV36ads_A10_v5"})
    services = (*AZURE.services, aggregated(model="voxtral-small-24b", pool="small"))
    azure = AZURE.model_copy(update={"pools": (*AZURE.pools, small), "services": services})
    answers = size_services(azure)
    assert isinstance(answers["asr"], DoesNotFitError)
    assert all(isinstance(answers[service.name], ServiceSizing) for service in AZURE.services)


def test_an_unknown_pool_is_named() -> None:
    with pytest.raises(LookupError, match="no pool is named nowhere"):
        size_service(AZURE, aggregated(pool="nowhere"))


def test_a_pool_without_gpus_is_named() -> None:
    pools = tuple(pool.model_copy(update={"vm_size": "Standard_D8ds_v5"}) for pool in AZURE.pools)
    azure: Azure = AZURE.model_copy(update={"pools": pools})
    with pytest.raises(LookupError, match="has no GPU"):
        size_service(azure, aggregated())


def test_whisper_on_p5_takes_one_gpu() -> None:
    sizing = size_fleet(SEED["p5"])
    assert sizing is not None
    assert (sizing.gpu, sizing.tensor_parallel) == ("H100", 1)
    assert sizing.sessions >= 32


@pytest.mark.parametrize("name", ["inf2", "trn1"])
def test_vllm_on_neuron_is_not_sized(name: str) -> None:
    with pytest.raises(DoesNotFitError, match="which is no GPU"):
        size_fleet(SEED[name])


def test_a_fleet_of_our_engine_has_no_vllm_to_size() -> None:
    fleets = blueprint.load(DEPLOYMENTS / "production-us-east-1.yaml").aws.asr
    assert [size_fleet(fleet) for fleet in fleets] == [None] * len(fleets)


def fleet(instance_type: str, sessions: int) -> AsrFleet:
    p5 = SEED["p5"]
    assert p5.vllm is not None
    load = Load(sessions=sessions, session_tokens=1500, context_tokens=32768)
    vllm = p5.vllm.model_copy(update={"model": "voxtral-small-24b", "load": load})
    return p5.model_copy(update={"instance_type": instance_type, "vllm": vllm})


def test_a_fleet_takes_the_gpus_that_its_load_needs() -> None:
    few, more = (size_fleet(fleet("p5.48xlarge", sessions)) for sessions in (100, 300))
    assert few is not None
    assert more is not None
    assert (few.tensor_parallel, more.tensor_parallel) == (1, 2)


def test_a_load_beyond_a_host_is_refused() -> None:
    with pytest.raises(DoesNotFitError, match=r"carries \d+ of 1000 sessions"):
        size_fleet(fleet("p5.4xlarge", 1000))
