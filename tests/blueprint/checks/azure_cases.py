"""Cases of the Azure checks: edits of the base document on both sides of each limit."""

from typing import Any

from tests.blueprint.checks.cases import Case
from tests.blueprint.documents import ABSENT, AZURE_BASE, Edits

CELLS, PAIRS, H200, A100 = (f"azure.pools.{index}" for index in range(4))
CELL, PAIR, SPEECH, QWEN = (f"azure.services.{index}" for index in range(4))
RESERVATION = {
    "option": "capacity-reservation",
    "group_id": "/subscriptions/99999999-9999-4999-8999-999999999999/resourceGroups/g/"
    "providers/Microsoft.Compute/capacityReservationGroups/c",
}
LOAD = {"calls": 100, "minutes_each": 3, "speech_share": 0.5, "peak_factor": 2}
HUB_NETWORK = (
    "/subscriptions/99999999-9999-4999-8999-999999999999/resourceGroups/g/"
    "providers/Microsoft.Network/virtualNetworks/hub"
)
PEERING = {"kind": "peering", "network_id": HUB_NETWORK}
SPOT_PURCHASE = {"option": "spot"}
NIL_UUID = "00000000-0000-0000-0000-000000000000"
WHISPER = {"model": "whisper-large-v3", "load": {"sessions": 20, "session_tokens": 400, "context_tokens": 448}}
AGGREGATED_SERVICE = {
    "kind": "aggregated",
    "name": "cell",
    "model": "voxtral-small-24b",
    "pool": "cells",
    "replicas": {"min": 1, "max": 2},
    "load": {"sessions": 400, "session_tokens": 1500, "context_tokens": 32768},
    "tensor_parallel": 2,
}


def whisper(service: str, **more: object) -> Edits:
    return {f"{service}.{key}": value for key, value in (WHISPER | more).items()}


def pair_pool(vm_size: str, **more: object) -> Edits:
    """Return edits that run the aggregated service on another VM size, with a policy that admits any pod."""
    return {f"{PAIRS}.vm_size": vm_size, f"{PAIRS}.topology_policy": "best-effort",
            **{f"{PAIR}.{key}": value for key, value in more.items()}}  # fmt: skip


def public(*ranges: str) -> Edits:
    return {"azure.access": {"kind": "public", "authorized_ranges": list(ranges)}}


def live(tokens: int = 7500, **more: int) -> Edits:
    """Return edits that run a streaming model in the aggregated service."""
    load = {"sessions": 20, "session_tokens": tokens, "context_tokens": 8192, **more}
    return {f"{PAIR}.model": "voxtral-mini-4b-realtime", f"{PAIR}.load": load}


SINGLE_A10_POOL = pair_pool("Standard_NV72ads_A10_v5", tensor_parallel=1, cpus=10)


def callers(nodes: int = 12, authorizer: str = "jwt", **tiers: Edits) -> dict[str, object]:
    """Return edits that add callers and capacity for them; ``tiers`` changes values in ``azure.callers``."""
    known = {"kind": "jwt", "issuer": "https://login.callers.dev/", "audience": "voice"}
    section: dict[str, Any] = {
        "edge": {
            "domain": {"name": "voice.callers.dev"},
            "certificate": {
                "vault_id": "/subscriptions/99999999-9999-4999-8999-999999999999/resourceGroups/g/"
                "providers/Microsoft.KeyVault/vaults/vault",
                "name": "voice",
            },
            "authorizer": known if authorizer == "jwt" else {"kind": authorizer},
            "gateway": {"replicas": {"min": 2, "max": 10}},
        },
        "vad": {"replicas": {"min": 2, "max": 4}},
        "asr": {"model": "voxtral-small-24b", "replicas": {"min": 2, "max": 4}},
    }
    for tier, values in tiers.items():
        (section["edge"]["gateway"] if tier == "gateway" else section.setdefault(tier, {})).update(values)
    return {
        "azure.cpu_pool": {"vm_size": "Standard_D8ds_v5", "nodes": {"min": 2, "max": nodes}},
        "azure.callers": section,
    }


def agents(**more: object) -> dict[str, object]:
    """Return edits that add agents, whose answering model runs in the cells."""
    section = {
        "prompt": "Answer in one sentence.",
        "voice": "casual_male",
        "chat": {"kind": "service", "service": "cell"},
        "speech": {"kind": "service", "service": "speech"},
        "replicas": {"min": 2, "max": 10},
        **more,
    }
    return {**callers(20), "azure.agents": section}


def peak(calls: int) -> dict[str, object]:
    return {"load": {"calls": calls, "peak_factor": 1}}


def case(check: str, at: str, trips: Edits, passes: Edits, **more: Any) -> Case:  # noqa: ANN401
    return Case(check, at, trips, passes, base=AZURE_BASE, **more)


CASES: tuple[Case, ...] = (
    # Callers
    case("load-fits-callers", "azure.callers.edge.gateway.replicas", callers() | peak(1200), callers() | peak(1000)),
    case("load-fits-callers", "azure.callers.vad.replicas",
         callers(vad={"replicas": {"min": 1, "max": 1}}) | peak(501), callers(vad={"replicas": {"min": 1, "max": 1}})
         | peak(500)),
    case("load-fits-callers", "azure.callers.state.sku",
         callers(40, gateway={"replicas": {"min": 2, "max": 40}}, vad={"replicas": {"min": 2, "max": 9}},
                 asr={"replicas": {"min": 2, "max": 12}}, state={"sku": "Balanced_B3"}) | peak(1700),
         callers(40, gateway={"replicas": {"min": 2, "max": 40}}, vad={"replicas": {"min": 2, "max": 9}},
                 asr={"replicas": {"min": 2, "max": 12}}, state={"sku": "Balanced_B5"}) | peak(1700)),
    case("cpu-pool-holds-callers", "azure.cpu_pool.nodes", callers(nodes=5), callers(nodes=12)),
    case("cpu-pool-holds-callers", "azure.cpu_pool.nodes", callers(30, vad={"cpus": 7}), callers(30, vad={"cpus": 6})),
    # A node has memory for one pod of 25 or 13 GiB, and CPUs for more
    case("cpu-pool-holds-callers", "azure.cpu_pool.nodes", callers(30, gateway={"memory_gib": 26}),
         callers(30, gateway={"memory_gib": 25})),
    case("cpu-pool-holds-callers", "azure.cpu_pool.nodes", callers(30, vad={"memory_gib": 26}),
         callers(30, vad={"memory_gib": 25})),
    case("cpu-pool-holds-callers", "azure.cpu_pool.nodes", callers(30, asr={"memory_gib": 64}),
         callers(30, asr={"memory_gib": 25})),
    case("cpu-pool-holds-callers", "azure.cpu_pool.nodes", callers(14, gateway={"memory_gib": 13}),
         callers(15, gateway={"memory_gib": 13})),
    case("cpu-pool-holds-callers", "azure.cpu_pool.nodes", callers(8, vad={"memory_gib": 13}),
         callers(9, vad={"memory_gib": 13})),
    case("cpu-pool-holds-callers", "azure.cpu_pool.nodes", callers(8, asr={"memory_gib": 13}),
         callers(9, asr={"memory_gib": 13})),
    case("cpu-pool-holds-callers", "azure.cpu_pool.nodes", agents() | callers(10, asr={"memory_gib": 13}),
         agents() | callers(11, asr={"memory_gib": 13})),
    case("callers-are-known", "azure.callers.edge.authorizer.kind", callers(authorizer="none"), callers()),
    case("caller-tiers-survive", "azure.callers.asr.replicas", callers(asr={"replicas": {"min": 1, "max": 4}}),
         callers()),
    # Agents; the base document's two cells answer 403 each, and its speech is 32 of 8 GPUs, each heard half of the time
    case("agents-fit-core", "azure.agents.conversations", agents(conversations=9), agents(conversations=8)),
    case("agents-fit-tiers", "azure.agents.replicas", agents(replicas={"min": 2, "max": 65}),
         agents(replicas={"min": 2, "max": 64})),
    case("load-fits-agents", "azure.agents.replicas", agents() | peak(81), agents() | peak(80)),
    case("voice-licence-allows-use", "azure.agents.speech.model",
         agents(speech={"kind": "endpoint", "url": "https://speech.callers.dev/v1", "model": "voxtral-4b-tts"})
         | {"azure.model_agreements": ABSENT},
         agents(speech={"kind": "endpoint", "url": "https://speech.callers.dev/v1", "model": "kokoro"})),
    case("chat-model-hears", "azure.agents.chat",
         agents(listening="audio", chat={"kind": "service", "service": "qwen"}), agents(listening="audio")),
    # Capacity
    case("size-is-sold-here", f"{H200}.vm_size", {}, {"azure.location": "westus3"}),
    case("vm-size-in-location", f"{CELLS}.vm_size", {"azure.location": "westindia"},
         {"azure.location": "southcentralus"}),
    case("vm-size-in-location", f"{H200}.vm_size", {"azure.location": "eastus"}, {"azure.location": "westus3"}),
    case("vm-size-in-location", "azure.system_pool.vm_size",
         {"azure.system_pool.vm_size": "Standard_NC24ads_A100_v4", "azure.location": "westindia"},
         {"azure.system_pool.vm_size": "Standard_D8ds_v5", "azure.location": "westindia"}),
    # 3 x D8ds v5, 2 x NC96ads and 1 x NC24ads; nobody lists an H200 in southcentralus
    case("azure-budget-covers-minimum", "azure.observability.monthly_budget",
         {"azure.observability": {"monthly_budget": 30144}}, {"azure.observability": {"monthly_budget": 30145}}),
    case("pools-have-their-gpus", f"{A100}.vm_size", {f"{A100}.vm_size": "Standard_D8ds_v5"}, {}),
    case("pools-have-their-gpus", "azure.system_pool.vm_size",
         {"azure.system_pool.vm_size": "Standard_NC24ads_A100_v4"},
         {"azure.system_pool.vm_size": "Standard_D4ds_v5"}),
    case("pool-zones-exist", "azure.availability_zones.1", {"azure.availability_zones": ["1", "4"]},
         {"azure.availability_zones": ["1", "3"]}),
    case("pool-zones-exist", f"{CELLS}.availability_zones.0", {"azure.availability_zones": ["2", "3"]},
         {f"{CELLS}.availability_zones": ["2"], "azure.availability_zones": ["2", "3"]}),
    case("peered-cells-have-own-addresses", "azure.network.cidr",
         {"load": LOAD, "cells": {"calls": 199}, "azure.access": PEERING, "azure.network.cidr": "10.60.0.0/16"},
         {"load": LOAD, "cells": {"calls": 200}, "azure.access": PEERING, "azure.network.cidr": "10.60.0.0/16"}),
    case("peered-cells-have-own-addresses", "azure.network.cidr",
         {"load": LOAD, "cells": {"calls": 100, "number": 2}, "azure.access": PEERING,
          "azure.network.cidr": "10.60.0.0/16"},
         {"load": LOAD, "cells": {"calls": 100}}),
    case("system-pool-survives", "azure.system_pool.nodes", {"azure.system_pool.nodes": {"min": 1, "max": 3}},
         {"azure.system_pool.nodes": {"min": 2, "max": 3}}),
    case("system-pool-survives", "azure.availability_zones", {"azure.availability_zones": ["1"]},
         {"azure.availability_zones": ["1"], "environment": "staging"}),
    case("purchase-supported", f"{H200}.purchase", {f"{H200}.purchase": RESERVATION},
         {f"{CELLS}.purchase": RESERVATION}),
    case("within-limits", "azure.system_pool.nodes", {"azure.system_pool.nodes.max": 1001},
         {"azure.system_pool.nodes.max": 1000}),
    # 2.22 Mbit/s of a capacity unit for 0.272 Mbit/s of a call, twice that of a conversation
    case("limits-requested", "load.calls", callers() | peak(4081), callers() | peak(4080)),
    case("limits-requested", "load.calls", agents() | peak(2041), agents() | peak(2040)),
    case("system-pool-has-node", "azure.system_pool.nodes", {"azure.system_pool.nodes.min": 0},
         {"azure.system_pool.nodes.min": 1}),
    case("api-server-is-closed", "azure.access.authorized_ranges", public("203.0.113.0/24", "0.0.0.0/0"),
         public("203.0.113.0/24")),
    *(case("api-server-is-closed", "azure.access.authorized_ranges", public(*ranges), public("203.0.113.0/24"))
      for ranges in (("0.0.0.0/1", "128.0.0.0/1"), ("8.0.0.0/7",), ("11.0.0.0/8", "12.0.0.0/32"))),
    case("spot-holds-no-minimum", f"{A100}.purchase", {f"{A100}.purchase": SPOT_PURCHASE},
         {f"{A100}.purchase": SPOT_PURCHASE, f"{A100}.nodes.min": 0}),
    case("kubernetes-version-supported", "azure.kubernetes_version", {"azure.kubernetes_version": "1.34"},
         {"azure.kubernetes_version": "1.35"}),
    case("kubernetes-version-supported", "azure.kubernetes_version", {"azure.kubernetes_version": "1.38"},
         {"azure.kubernetes_version": "1.37"}),
    # In addition to the cells, 1 node of 96 vCPU and 1 of 24; at most 3 and 6, including surge nodes of an upgrade
    case("family-quota-need", PAIRS, {f"{CELLS}.purchase": SPOT_PURCHASE}, {}),
    case("family-quota-need", A100, {f"{A100}.purchase": SPOT_PURCHASE}, {}),
    # Pools
    *(case("workload-names-are-unique", f"{QWEN}.name", {f"{QWEN}.name": name}, {})
      for name in ("cluster", "callers", "agents", "objectives", "starts")),
    *(case("workload-names-are-unique", f"{SPEECH}.name", {f"{SPEECH}.name": name}, {})
      for name in ("router", "gateway", "vad", "asr", "agent", "lmcache-coordinator", "model-fetch", "default")),
    case("workload-names-are-unique", f"{QWEN}.pools.0", {f"{SPEECH}.name": "qwen-a100"},
         {f"{SPEECH}.name": "qwen-a10"}),
    case("workload-names-are-unique", f"{QWEN}.pools.1", {f"{QWEN}.pools": ["a100", "a100"]},
         {f"{QWEN}.pools": ["a100", "h200"]}),
    case("workload-names-are-unique", f"{QWEN}.pools.0",
         {f"{A100}.name": "fetch", f"{QWEN}.name": "model", f"{QWEN}.pools": ["fetch"]},
         {f"{A100}.name": "fetch", f"{QWEN}.pools": ["fetch"]}),
    case("pool-has-service", A100, {f"{QWEN}.pools": ["h200"]}, {}),
    case("pool-holds-replicas", f"{PAIR}.replicas", {f"{PAIR}.replicas.max": 5}, {f"{PAIR}.replicas.max": 4}),
    case("pool-holds-replicas", f"{CELL}.replicas", {f"{CELL}.replicas.max": 3}, {f"{CELL}.replicas.max": 2}),
    # A rollout adds a pod to a single replica, and stops one of two.
    case("pool-holds-replicas", f"{CELL}.replicas", {f"{CELLS}.nodes.max": 2},
         {f"{CELLS}.nodes.max": 2, f"{CELL}.replicas.min": 2}),
    case("pool-holds-replicas", f"{QWEN}.replicas", {f"{QWEN}.pool_replicas": [{"pool": "a100", "min": 1, "max": 5}]},
         {f"{QWEN}.pool_replicas": [{"pool": "a100", "min": 2, "max": 5}]}),
    case("service-wakes", QWEN, {f"{QWEN}.replicas.min": 0},
         {f"{QWEN}.pools": ["a100", "h200"], f"{QWEN}.pool_replicas": [{"pool": "h200", "min": 0, "max": 1}]}),
    case("service-wakes", SPEECH, {f"{SPEECH}.replicas.min": 0}, {f"{SPEECH}.replicas.min": 1}),
    case("upgrade-keeps-service", f"{H200}.nodes", {f"{H200}.surge_nodes": 0}, {f"{H200}.surge_nodes": 1}),
    case("upgrade-keeps-service", f"{PAIRS}.nodes", {f"{PAIRS}.surge_nodes": 0},
         {f"{PAIRS}.surge_nodes": 0, f"{PAIR}.replicas.min": 3}),
    case("upgrade-keeps-service", f"{A100}.nodes", {f"{A100}.surge_nodes": 0},
         {f"{A100}.surge_nodes": 0, f"{QWEN}.pools": ["a100", "h200"]}),
    case("pool-holds-replicas", f"{SPEECH}.replicas", {f"{SPEECH}.replicas.max": 9}, {f"{SPEECH}.replicas.max": 8}),
    case("pool-minimum-used", f"{PAIRS}.nodes", {f"{PAIRS}.nodes.min": 2},
         {f"{PAIRS}.nodes.min": 2, f"{PAIR}.replicas.min": 3}),
    case("cell-pool-is-exclusive", f"{PAIR}.pool", {f"{PAIR}.pool": "cells"}, {}),
    case("cell-pool-is-exclusive", f"{QWEN}.pools.0", {f"{QWEN}.pools": ["cells"]}, {}),
    case("pod-range-holds-nodes", "azure.network.pod_cidr", {"azure.network.pod_cidr": "10.244.0.0/20"},
         {"azure.network.pod_cidr": "10.244.0.0/19"}),
    case("virtual-network-holds-nodes", "azure.network.cidr",
         {"azure.network.cidr": "10.60.0.0/22", "azure.system_pool.nodes.max": 370},
         {"azure.network.cidr": "10.60.0.0/22", "azure.system_pool.nodes.max": 369}),
    case("admin-group-is-real", "azure.admin_groups.0", {"azure.admin_groups": [NIL_UUID]}, {}),
    # NUMA and NVLink
    case("numa-admits-pods", f"{PAIR}.cpus", {f"{PAIRS}.topology_policy": "single-numa-node"}, {}),
    case("numa-admits-pods", f"{PAIR}.cpus", {f"{PAIR}.cpus": 20},
         {f"{PAIR}.cpus": 20, f"{PAIRS}.topology_policy": "best-effort"}),
    case("numa-admits-pods", f"{PAIR}.cpus", {f"{PAIR}.cpus": 26}, {f"{PAIR}.cpus": 27}),
    # LMCache has 2. The kubelet reserves 2 of the first NUMA node: 47 fit on nodes 1 and 2, then on no other two
    case("numa-admits-pods", f"{PAIR}.cpus", {f"{PAIR}.cpus": 49}, {f"{PAIR}.cpus": 48}),
    case("numa-admits-pods", f"{CELL}.pool", {f"{CELLS}.topology_policy": "single-numa-node"},
         {f"{CELLS}.topology_policy": "restricted"}),
    case("cell-engines-beside-their-gpus", f"{CELL}.cpus", {f"{CELL}.cpus": 40}, {f"{CELL}.cpus": 79}),
    case("numa-nodes-known", f"{H200}.topology_policy", {f"{H200}.topology_policy": "restricted"}, {}),
    case("engine-on-one-nvlink-domain", f"{PAIR}.tensor_parallel", {f"{PAIR}.tensor_parallel": 3}, {}),
    case("engine-on-one-nvlink-domain", f"{PAIR}.tensor_parallel", {f"{PAIR}.tensor_parallel": 4},
         {f"{PAIR}.tensor_parallel": 1}),
    case("engine-on-one-nvlink-domain", f"{PAIR}.tensor_parallel", pair_pool("Standard_NV72ads_A10_v5"),
         pair_pool("Standard_NC80adis_H100_v5")),
    case("engine-on-one-nvlink-domain", f"{PAIR}.tensor_parallel",
         pair_pool("Standard_ND96isr_H200_v5", tensor_parallel=3),
         pair_pool("Standard_ND96isr_H200_v5", tensor_parallel=4)),
    case("cell-gpus-reach-each-other", f"{CELL}.kind", {}, {CELL: AGGREGATED_SERVICE}),
    case("cell-has-two-domains", f"{CELL}.pool", {f"{CELLS}.vm_size": "Standard_NC80adis_H100_v5"}, {}),
    case("cell-has-two-domains", f"{CELL}.pool", {f"{CELLS}.vm_size": "Standard_NC24ads_A100_v4"}, {}),
    case("cell-has-two-domains", f"{CELL}.pool", {f"{CELLS}.vm_size": "Standard_ND96isr_H200_v5"}, {}),
    case("pods-get-linked-gpus", f"{QWEN}.pools.1", {f"{QWEN}.pools": ["a100", "pairs"]},
         {f"{QWEN}.pools": ["a100", "h200"]}),
    case("pods-get-linked-gpus", f"{PAIR}.cpus", {f"{PAIR}.cpus": 49, f"{PAIRS}.topology_policy": "best-effort"},
         {f"{PAIR}.cpus": 48, f"{PAIRS}.topology_policy": "best-effort"}),
    # Sizes
    case("engine-splits-model", f"{PAIR}.tensor_parallel",
         {f"{PAIR}.model": "qwen2.5-7b-instruct", **pair_pool("Standard_ND96isr_H200_v5", tensor_parallel=8)},
         {f"{PAIR}.model": "qwen2.5-7b-instruct", **pair_pool("Standard_ND96isr_H200_v5", tensor_parallel=4)}),
    # 2 cells and 4 replicas of 403 sessions each, at twice the mean
    case("load-fits-services", "load.calls", {"load": {"calls": 1210}}, {"load": {"calls": 1209}}),
    case("load-fits-gpus", f"{QWEN}.pools.0", {f"{A100}.vm_size": "Standard_NV36ads_A10_v5"},
         {f"{A100}.vm_size": "Standard_NV36ads_A10_v5", f"{QWEN}.quantization": "fp8"}),
    case("load-fits-gpus", f"{SPEECH}.pool", {f"{H200}.vm_size": "Standard_NC80adis_H100_v5"}, {}),
    # 2 x (200 + 2 x 16 + 2 x 4) + kubelet + daemons do not fit 440 GiB; 4 pods of one GPU and 200 GiB none of 880
    case("node-memory-holds-pods", f"{PAIR}.lmcache", pair_pool("Standard_NC48ads_A100_v4", tensor_parallel=1, cpus=10),
         pair_pool("Standard_NC48ads_A100_v4")),
    case("node-memory-holds-pods", f"{PAIR}.lmcache", {f"{PAIR}.lmcache.l1_gib": 383}, {f"{PAIR}.lmcache.l1_gib": 382}),
    case("node-memory-holds-pods", f"{CELL}.lmcache", {f"{CELL}.lmcache.l1_gib": 757}, {f"{CELL}.lmcache.l1_gib": 756}),
    case("node-cpus-hold-pods", f"{PAIR}.cpus", {f"{PAIR}.cpus": 47}, {f"{PAIR}.cpus": 46}),
    case("node-cpus-hold-pods", f"{QWEN}.cpus", {f"{QWEN}.cpus": 23}, {f"{QWEN}.cpus": 22}),
    case("node-cpus-hold-pods", f"{PAIR}.cpus", {f"{PAIR}.cpus": 2}, {f"{PAIR}.cpus": 3}),
    case("nvme-holds-kv", f"{CELL}.lmcache.l2_nvme_gib", {f"{CELL}.lmcache.l2_nvme_gib": 3406},
         {f"{CELL}.lmcache.l2_nvme_gib": 3405}),
    case("nvme-holds-kv", f"{PAIR}.lmcache.l2_nvme_gib", {f"{PAIR}.lmcache.l2_nvme_gib": 1703},
         {f"{PAIR}.lmcache.l2_nvme_gib": 1702}),
    case("nvme-keeps-kv", f"{CELL}.lmcache.l2_nvme_gib", {f"{CELL}.lmcache.l2_nvme_gib": 0},
         {f"{CELL}.lmcache.l2_nvme_gib": 1}),
    case("model-cache-holds-models", "azure.model_cache_gib", {"azure.model_cache_gib": 142},
         {"azure.model_cache_gib": 143}),
    case("model-cache-feeds-nodes", "azure.model_cache_gib", {"azure.model_cache_gib": 266},
         {"azure.model_cache_gib": 267}),
    case("model-cache-feeds-nodes", "azure.model_cache_gib",
         {f"{A100}.nodes.max": 100_000, f"{QWEN}.replicas.max": 50_000},
         {f"{A100}.nodes.max": 10, f"{QWEN}.replicas.max": 5}),
    case("replicas-carry-load", f"{SPEECH}.replicas", {f"{SPEECH}.sessions": 257}, {f"{SPEECH}.sessions": 256}),
    # Models
    case("licence-allows-use", f"{SPEECH}.model", {"azure.model_agreements": []},
         {"azure.model_agreements": [], "azure.commercial": False}),
    case("engine-serves-model", f"{SPEECH}.model", {f"{SPEECH}.model": "qwen3-8b"}, {}),
    case("engine-serves-model", f"{PAIR}.model", {f"{PAIR}.model": "voxtral-4b-tts"}, {}),
    case("engine-serves-model", f"{QWEN}.model", {f"{QWEN}.model": "whisper-large-v3"},
         {f"{QWEN}.model": "voxtral-small-24b"}),
    case("kv-transfer-supported", f"{PAIR}.model", whisper(PAIR), whisper(PAIR, lmcache=None)),
    case("kv-transfer-supported", f"{CELL}.model", whisper(CELL), {}),
    case("kv-transfer-supported", f"{PAIR}.load", {f"{PAIR}.load.session_tokens": 255},
         {f"{PAIR}.load.session_tokens": 256}),
    case("kv-type-supported", f"{PAIR}.kv_cache_type", {f"{PAIR}.kv_cache_type": "fp8"},
         {f"{PAIR}.kv_cache_type": "fp8", **pair_pool("Standard_NC80adis_H100_v5")}),
    case("kv-type-supported", f"{QWEN}.kv_cache_type", {f"{QWEN}.kv_cache_type": "fp8"}, {}),
    case("weights-type-computes", f"{QWEN}.quantization", {f"{QWEN}.quantization": "fp8"},
         {f"{PAIR}.quantization": "fp8", **pair_pool("Standard_NC80adis_H100_v5")}),
    case("driver-runs-engine", f"{QWEN}.pools.0", {f"{A100}.vm_size": "Standard_NV36ads_A10_v5"}, {}),
    case("model-revision-pinned", QWEN, {f"{QWEN}.revision": ABSENT},
         {f"{QWEN}.revision": ABSENT, "environment": "staging"}),
    case("context-fits-model", f"{QWEN}.load", {f"{QWEN}.load.context_tokens": 40961},
         {f"{QWEN}.load.context_tokens": 40960}),
    case("context-fits-model", f"{QWEN}.load", {f"{QWEN}.load.session_tokens": 16385},
         {f"{QWEN}.load.session_tokens": 16384}),
    # 600 s at 12.5 tokens a second
    case("live-load-is-a-call", f"{PAIR}.load", live(), live(longest_call_s=600)),
    case("context-fits-model", f"{PAIR}.load", live(longest_call_s=601), live(longest_call_s=600)),
    # Whisper's 448 tokens are 35.8 s of a call
    case("live-sessions-were-reached", f"{PAIR}.load", {**SINGLE_A10_POOL, **live(448, longest_call_s=35)},
         {**SINGLE_A10_POOL, **live(longest_call_s=600)}),
    case("replicas-carry-load", f"{QWEN}.replicas",
         {f"{QWEN}.load": {"sessions": 500, "session_tokens": 8192, "context_tokens": 8192},
          f"{A100}.vm_size": "Standard_NV36ads_A10_v5", f"{QWEN}.quantization": "fp8"},
         {f"{QWEN}.load": {"sessions": 150, "session_tokens": 8192, "context_tokens": 8192}}),
    case("images-have-digests", "images", {"images.tts-omni": ABSENT}, {}),
)  # fmt: skip
