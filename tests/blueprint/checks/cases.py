"""Each row tests a rule of a check with an edit of the base document that violates it, and the nearest valid edit."""

from dataclasses import dataclass
from typing import Any

from tests.blueprint.documents import ABSENT, BASE, Edits, parse_yaml
from voice_blueprint.checks.aws.network import REQUIRED_ENDPOINTS

VAD_RULE = "aws.vad.scaling.0"
ASR_RULE = "aws.asr.1.scaling.0"
ENA_EXPRESS = {"aws.vad.ena_express.enabled": True}
VFIO = {"aws.vad.data_path.mode": "vfio"}
ZONES = [f"us-east-1{letter}" for letter in "abcdef"]
CAPACITY_BLOCK = {"option": "capacity-block", "reservation_id": "cr-0123456789abcdef0"}
DIGEST = "sha256:" + "a" * 64
VLLM = {
    "aws.asr.0.engine": "vllm",
    "aws.asr.0.revision": ABSENT,
    "aws.asr.0.vllm": {
        "model": "whisper-large-v3",
        "load": {"sessions": 32, "session_tokens": 448, "context_tokens": 448},
    },
}
EDGE = "aws.edge"
TWO_CORE_TASKS = {f"{EDGE}.gateway.vcpu": 2, f"{EDGE}.gateway.memory_gib": 4, f"{EDGE}.gateway.measured": ABSENT}
MEASURED_CALLS = {"date": "2026-11-22", "conditions": "measured by hand", "calls": 147}
RESERVATION_PURCHASE = {"option": "capacity-reservation", "reservation_id": "cr-0123456789abcdef0"}
ECS_AMI = "/aws/service/ecs/optimized-ami/amazon-linux-2023/{}recommended/image_id:7"
NEURON = {"aws.asr.0.instance_type": "inf2.xlarge", "images.asr-neuron": DIGEST, "aws.asr.0.revision": ABSENT}
JWT = {"kind": "jwt", "issuer": "https://login.callers.dev/", "audience": "voice"}
CERTIFICATE = "arn:aws:acm:us-east-1:123456789012:certificate/00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class Case:
    """A check that passes for ``passes`` and reports a violation at ``at`` for ``trips``.

    Attributes:
        present: Whether the file contains ``at``; otherwise the line is that of its parent.
        base: The document to edit.
    """

    check: str
    at: str
    trips: Edits
    passes: Edits
    present: bool = True
    base: str = BASE


def rule(**values: object) -> dict[str, Any]:
    """Return a scale-in rule to add to the base document's rules, or to replace them."""
    return {
        "name": "extra",
        "metric": "GpuBusy",
        "statistic": "average",
        "comparison": "below",
        "threshold": 10,
        "period_s": 60,
        "datapoints_to_alarm": 3,
        "evaluation_periods": 3,
        "missing_data": "ignore",
        "steps": [{"adjustment": -1}],
        **values,
    }


HOST_VLLM = "aws.asr.0.vllm"
INSTANCE_TYPE = "aws.asr.0.instance_type"
WHISPER = ("whisper-large-v3", 448, 448)


def vllm(
    model: str = "voxtral-small-24b",
    session_tokens: int = 1500,
    context_tokens: int = 4000,
    sessions: int = 8,
    **options: str,
) -> Edits:
    """Return edits for vLLM on the hosts of the first fleet, which have one H100 in the base document."""
    load = {"sessions": sessions, "session_tokens": session_tokens, "context_tokens": context_tokens}
    return {**VLLM, "images.asr-vllm": DIGEST, HOST_VLLM: {"model": model, "load": load, **options}}


def streaming_vllm(longest_call_s: int | None) -> Edits:
    load = {"sessions": 8, "session_tokens": 7500, "context_tokens": 8192, "longest_call_s": longest_call_s}
    return {**VLLM, "aws.asr.0.vllm": {"model": "voxtral-mini-4b-realtime", "load": load}}


def period(seconds: int, datapoints: int = 3) -> Edits:
    return {f"{VAD_RULE}.period_s": seconds, f"{VAD_RULE}.evaluation_periods": datapoints}


def agents(voice: str = "kokoro", load: Edits | None = None, **more: object) -> dict[str, object]:
    section = {
        "prompt": "Answer in one sentence.",
        "voice": "af_heart",
        "chat": {"url": "https://chat.callers.dev/v1", "model": "qwen3-8b"},
        "speech": {"url": "https://speech.callers.dev/v1", "model": voice},
        "tasks": {"min": 1, "max": 4},
        **more,
    }
    return {"images.agent": DIGEST, "aws.agents": section, **({"load": load} if load else {})}


def origin(page: str) -> Edits:
    return {f"{EDGE}.allowed_origins": [page]}


def pages(count: int, size_mib: int = 2, instance_type: str = "c8g.12xlarge") -> Edits:
    return {"aws.vad.huge_pages": {"count": count, "size_mib": size_mib}, "aws.vad.instance_type": instance_type}


def domain(zone: str) -> Edits:
    return {f"{EDGE}.domain": {"name": f"voice.{zone}", "zone_id": "Z0123456789EXAMPLE", "zone_name": zone}}


def mtu(value: int, *others: Edits) -> Edits:
    return {"aws.vad.data_path.mtu": value, **{key: val for other in others for key, val in other.items()}}


def queues(value: int, instance_type: str, *others: Edits) -> Edits:
    edits = {"aws.vad.data_path.rx_queues": value, "aws.vad.instance_type": instance_type}
    return {**edits, **pages(1, 2, instance_type), **{key: val for other in others for key, val in other.items()}}


def thresholds(out: float, back: float) -> Edits:
    return {f"{VAD_RULE}.threshold": out, "aws.vad.scaling.1.threshold": back}


def other_region(edits: Edits) -> Edits:
    """Return edits for a second region with as many zones."""
    zones = [f"us-west-2{letter}" for letter in "abc"]
    return {"aws.other_regions": [{"region": "us-west-2", "availability_zones": zones}], **edits}


FLEETS_WITHOUT_IMAGE_ID = [
    {key: value for key, value in fleet.items() if key not in {"machine_image", "purchase"}}
    for fleet in parse_yaml(BASE)["aws"]["asr"]
]
MTU = "aws.vad.data_path.mtu"
QUEUES = "aws.vad.data_path.rx_queues"
RX_RING_SIZE = "aws.vad.data_path.rx_ring_size"
HUGE_PAGE_COUNT = "aws.vad.huge_pages.count"
CIDR = "aws.network.cidr"

CASES: tuple[Case, ...] = (
    # 80 % of 96 GiB are 76.8 GiB: 39321.6 pages of 2 MiB, 2457.6 of 32 MiB, 76.8 of 1 GiB
    Case("huge-pages-fit-memory", HUGE_PAGE_COUNT, pages(39322), pages(39321)),
    Case("huge-pages-fit-memory", HUGE_PAGE_COUNT, pages(2458, 32), pages(2457, 32)),
    Case("huge-pages-fit-memory", HUGE_PAGE_COUNT, pages(77, 1024), pages(76, 1024)),
    Case("huge-pages-fit-memory", HUGE_PAGE_COUNT, pages(39322, 2, "c8gn.12xlarge"), pages(39321, 2, "c8gn.12xlarge")),
    Case("huge-pages-fit-memory", HUGE_PAGE_COUNT, pages(24576, 2, "c8g.4xlarge"), pages(24576, 2, "c8g.8xlarge")),
    # 8,000 sessions x 28 KiB are 110 pages of 2 MiB; each of 4 queues has 2 for rings and 10 for the VAD; DPDK has 44
    Case("huge-pages-used", HUGE_PAGE_COUNT, pages(405), pages(404)),
    Case("huge-pages-used", HUGE_PAGE_COUNT, pages(201), pages(202)),
    Case("huge-pages-used", HUGE_PAGE_COUNT, pages(29, 1024), pages(28, 1024)),
    Case("ena-express-supported", "aws.vad.ena_express", {**ENA_EXPRESS, "aws.vad.instance_type": "c8g.4xlarge"},
         {**ENA_EXPRESS, "aws.vad.instance_type": "c8g.8xlarge"}),
    Case("ena-express-supported", "aws.vad.ena_express", {**ENA_EXPRESS, "aws.vad.instance_type": "c8g.4xlarge"},
         {"aws.vad.instance_type": "c8g.4xlarge"}),
    Case("ena-express-disputed", "aws.vad.ena_express", {**ENA_EXPRESS, "aws.vad.instance_type": "c8g.8xlarge"},
         {**ENA_EXPRESS, "aws.vad.instance_type": "c8g.12xlarge"}),
    Case("ena-express-disputed", "aws.vad.ena_express", {**ENA_EXPRESS, "aws.vad.instance_type": "c8g.8xlarge"},
         {"aws.vad.instance_type": "c8g.8xlarge"}),
    Case("ena-express-peers-supported", "aws.asr.1.instance_type",
         {**ENA_EXPRESS, "aws.asr.1.instance_type": "inf2.48xlarge"}, ENA_EXPRESS),
    Case("ena-express-peers-supported", "aws.asr.0.instance_type",
         {**ENA_EXPRESS, "aws.asr.0.instance_type": "trn1.2xlarge"}, {"aws.asr.0.instance_type": "trn1.2xlarge"}),
    Case("ena-express-hops", "aws.vad.ena_express", ENA_EXPRESS, {}),
    Case("ena-express-mtu", MTU, mtu(8901, VFIO, ENA_EXPRESS), mtu(8900, VFIO, ENA_EXPRESS)),
    Case("ena-express-mtu", MTU, mtu(9001, VFIO, ENA_EXPRESS), mtu(9001, VFIO)),
    Case("xdp-mtu", MTU, mtu(3499), mtu(3498)),
    Case("xdp-mtu", MTU, mtu(9001), mtu(9001, VFIO)),
    Case("chunk-fits-mtu", MTU, mtu(3243), mtu(3244)),
    Case("chunk-fits-mtu", MTU, mtu(1500, VFIO), mtu(9001, VFIO)),
    Case("rx-ring-size", RX_RING_SIZE, {RX_RING_SIZE: 128}, {RX_RING_SIZE: 256}),
    Case("rx-ring-size", RX_RING_SIZE, {RX_RING_SIZE: 257}, {RX_RING_SIZE: 512}),
    Case("rx-ring-size", RX_RING_SIZE, {RX_RING_SIZE: 32768}, {RX_RING_SIZE: 16384}),
    Case("rx-ring-size", RX_RING_SIZE, {RX_RING_SIZE: 16383}, {RX_RING_SIZE: 8192}),
    Case("rx-queues-fit", QUEUES, queues(5, "c8g.12xlarge"), queues(4, "c8g.12xlarge")),
    Case("rx-queues-fit", QUEUES, queues(9, "c8g.12xlarge", VFIO), queues(8, "c8g.12xlarge", VFIO)),
    Case("rx-queues-fit", QUEUES, queues(3, "c8g.xlarge", VFIO), queues(2, "c8g.xlarge", VFIO)),
    Case("rx-queues-fit", QUEUES, queues(1, "c8g.medium"), queues(1, "c8g.large")),
    Case("rx-queues-fit", QUEUES, queues(2, "c8g.large"), queues(1, "c8g.large")),
    Case("rx-queues-fit", QUEUES, {**queues(4, "c8g.xlarge"), "aws.vad.data_path": ABSENT},
         {"aws.vad.data_path": ABSENT}, present=False),
    # Load: the base document has 6 x 1,000, 30 x 8,000 and 20 x 221 slots, and a store for 7,028 calls
    Case("load-fits-tiers", "aws.edge.gateway.tasks",
         {"load": {"calls": 1501}, f"{EDGE}.gateway.sockets_per_task": 1000},
         {"load": {"calls": 1500}, f"{EDGE}.gateway.sockets_per_task": 1000}),
    # One x86 core carries 60 / 0.28 calls, half of which are planned for; a task's second core carries none.
    Case("load-fits-tiers", "aws.edge.gateway.tasks", {"load": {"calls": 322}, **TWO_CORE_TASKS},
         {"load": {"calls": 321}, **TWO_CORE_TASKS}),
    Case("load-fits-tiers", "aws.asr.0.hosts", {"load": {"calls": 2211}}, {"load": {"calls": 2210}}),
    # 78 % of the 268 calls that fit its memory
    Case("load-fits-tiers", "aws.state.node_type", {"load": {"calls": 105}, "aws.state.node_type": "cache.t4g.micro"},
         {"load": {"calls": 104}, "aws.state.node_type": "cache.t4g.micro"}),
    Case("day-fits-load", "load.curve", {"load": {"calls": 100, "curve": "none.csv"}},
         {"load": {"calls": 100, "curve": "spike"}}),
    # A zone has a third of the tasks
    Case("limits-requested", "aws.edge.gateway.tasks",
         {f"{EDGE}.gateway.tasks.max": 600, "aws.vad.hosts_per_zone.max": 301},
         {f"{EDGE}.gateway.tasks.max": 600, "aws.vad.hosts_per_zone.max": 300}),
    # 50 connections of a task to the state store, and 720 of the hosts
    Case("limits-requested", "aws.edge.gateway.tasks", {f"{EDGE}.gateway.tasks.max": 1286},
         {f"{EDGE}.gateway.tasks.max": 1285}),
    Case("limits-requested", f"{EDGE}.throttle.requests_per_s", {f"{EDGE}.throttle.requests_per_s": 10_001},
         {f"{EDGE}.throttle.requests_per_s": 10_000}),
    # After the loss of a zone, a third of the tasks starts in the others
    Case("limits-requested", "aws.agents.tasks", agents(tasks={"min": 1, "max": 1501}),
         agents(tasks={"min": 1, "max": 1200})),
    Case("tiers-balanced", "aws.vad.hosts_per_zone", {"aws.vad.hosts_per_zone.max": 3},
         {"aws.vad.hosts_per_zone.max": 2}),
    Case("tiers-balanced", "aws.vad.instance_type", pages(1, 2, "c8g.8xlarge"), pages(1, 2, "c8g.4xlarge")),
    Case("tiers-balanced", "aws.vad.instance_type", pages(1, 2, "c8gn.12xlarge"), pages(1, 2, "c8gn.4xlarge")),
    # Engines on hosts follow the same rules as those of a cluster
    Case("context-fits-model", f"{HOST_VLLM}.load", streaming_vllm(601), streaming_vllm(600)),
    Case("context-fits-model", f"{HOST_VLLM}.load", vllm(context_tokens=32769), vllm(context_tokens=32768)),
    Case("context-fits-model", f"{HOST_VLLM}.load", vllm(session_tokens=4001), vllm(session_tokens=4000)),
    Case("engine-serves-model", f"{HOST_VLLM}.model", vllm("voxtral-4b-tts"), vllm("whisper-large-v3-turbo", 448, 448)),
    Case("engine-serves-model", f"{HOST_VLLM}.model", vllm("qwen3-8b"), vllm()),
    Case("load-fits-gpus", INSTANCE_TYPE, {**vllm(), INSTANCE_TYPE: "g6e.xlarge"},
         {**vllm(quantization="fp8"), INSTANCE_TYPE: "g6e.xlarge"}),
    Case("load-fits-gpus", INSTANCE_TYPE, {**vllm(), INSTANCE_TYPE: "g6e.8xlarge"},
         {**vllm(), INSTANCE_TYPE: "g6e.12xlarge"}),
    Case("kv-type-supported", f"{HOST_VLLM}.kv_cache_type",
         {**vllm(*WHISPER, kv_cache_type="fp8"), INSTANCE_TYPE: "g5.2xlarge"},
         {**vllm(*WHISPER, kv_cache_type="fp8"), INSTANCE_TYPE: "g6.2xlarge"}),
    Case("weights-type-computes", f"{HOST_VLLM}.quantization",
         {**vllm(*WHISPER, quantization="fp8"), INSTANCE_TYPE: "g5.2xlarge"},
         {**vllm(*WHISPER, quantization="fp8"), INSTANCE_TYPE: "g6.2xlarge"}),
    Case("replicas-carry-load", f"{HOST_VLLM}.load", vllm(session_tokens=16000, context_tokens=16384, sessions=400),
         vllm(session_tokens=16000, context_tokens=16384, sessions=9)),
    # Whisper's 20 heads divide over 4 of 8 GPUs: that is the host's widest engine
    Case("replicas-carry-load", f"{HOST_VLLM}.load",
         {**vllm(*WHISPER, sessions=1500), INSTANCE_TYPE: "g5.48xlarge"},
         {**vllm(*WHISPER, sessions=100), INSTANCE_TYPE: "g5.48xlarge"}),
    Case("host-memory-holds-engine", INSTANCE_TYPE,
         {**vllm(*WHISPER), INSTANCE_TYPE: "g6.xlarge"},
         {**vllm(*WHISPER), INSTANCE_TYPE: "g6.2xlarge"}),
    Case("whisper-model-format", "aws.asr.0.model", {"aws.asr.0.model": "openai/whisper-large-v2"},
         {"aws.asr.0.model": "Systran/faster-whisper-large-v2"}),
    Case("whisper-model-format", "aws.asr.0.model", {"aws.asr.0.model": "Qwen/Qwen3-8B"},
         {"aws.asr.0.model": "callers/tuned-whisper"}),
    Case("whisper-model-format", "aws.asr.0.model",
         {INSTANCE_TYPE: "inf2.xlarge", "aws.asr.0.model": "Systran/faster-whisper-large-v2"},
         {INSTANCE_TYPE: "inf2.xlarge", "aws.asr.0.model": "openai/whisper-large-v3"}),
    Case("live-load-is-a-call", f"{HOST_VLLM}.load", streaming_vllm(None), streaming_vllm(600)),
    Case("full-host-scales-out", "aws.vad.scaling", {"aws.vad.scaling.2": ABSENT}, {}),
    Case("full-host-scales-out", "aws.asr.1.scaling", {"aws.asr.1.scaling.2.metric": "GpuBusy"},
         {"aws.asr.1.scaling.2": rule(name="free", metric="FreeSlots", threshold=20, steps=[{"adjustment": 1}])}),
    Case("full-host-scales-out", "aws.asr.1.scaling", {"aws.asr.1.scaling.2.threshold": 100},
         {"aws.asr.1.scaling.2.threshold": 99}),
    Case("fleet-can-grow", "aws.asr.0.scaling", {"aws.asr.0.hosts.max": 5}, {}),
    Case("threshold-in-range", f"{ASR_RULE}.threshold", {f"{ASR_RULE}.threshold": 100}, {f"{ASR_RULE}.threshold": 99}),
    Case("threshold-in-range", "aws.asr.1.scaling.1.threshold", {"aws.asr.1.scaling.1.threshold": 0},
         {"aws.asr.1.scaling.1.threshold": 1}),
    Case("sockets-fit-task", f"{EDGE}.gateway.sockets_per_task", {f"{EDGE}.gateway.sockets_per_task": 2001},
         {f"{EDGE}.gateway.sockets_per_task": 2000}),
    Case("sockets-fit-task", f"{EDGE}.gateway.sockets_per_task",
         {f"{EDGE}.gateway.sockets_per_task": 14337, f"{EDGE}.gateway.measured.calls": 8000},
         {f"{EDGE}.gateway.sockets_per_task": 14336, f"{EDGE}.gateway.measured.calls": 8000}),
    Case("store-holds-calls", "aws.state.node_type", {"aws.state.node_type": "cache.t4g.micro"},
         {"aws.state.node_type": "cache.t4g.micro", "load": {"calls": 100}}),
    # 3 x c8g.12xlarge, 4 x p5.4xlarge and 1 x p5.48xlarge
    Case("budget-covers-minimum", "aws.observability.monthly_budget_usd",
         {"aws.observability.monthly_budget_usd": 64460}, {"aws.observability.monthly_budget_usd": 64461}),
    Case("vad-on-graviton", "aws.vad.instance_type", {"aws.vad.instance_type": "p5.4xlarge"}, {}),
    Case("images-run-on-hosts", "aws.asr.0.instance_type", {**VLLM, "aws.asr.0.instance_type": "c8g.4xlarge"},
         {"aws.asr.0.instance_type": "c8g.4xlarge"}),
    Case("asr-has-fleets", "aws.asr", {"aws.asr": []}, {}),
    Case("spot-drain-fits-notice", "aws.asr.0.drain_timeout_s",
         {"aws.asr.0.purchase": {"option": "spot"}, "aws.asr.0.drain_timeout_s": 101},
         {"aws.asr.0.purchase": {"option": "spot"}, "aws.asr.0.drain_timeout_s": 100}),
    Case("warm-pool-in-fleet", "aws.asr.0.warm_pool.size",
         {"aws.asr.0.warm_pool": {"size": 4}, "aws.asr.0.hosts.min": 1},
         {"aws.asr.0.warm_pool": {"size": 3}, "aws.asr.0.hosts.min": 1}),
    Case("endpoints-exist", "aws.network.interface_endpoints.0", {"aws.network.interface_endpoints": ["ecr.apis"]},
         {"aws.network.interface_endpoints": ["ecr.api"]}),
    # Capacity
    Case("instance-type-in-region", "aws.asr.0.instance_type", {"aws.asr.0.instance_type": "trn2.48xlarge"}, {}),
    Case("instance-type-in-region", "aws.vad.instance_type", {"aws.region": "me-south-1"}, {"aws.region": "us-east-2"}),
    Case("zones-belong-to-region", "aws.availability_zones.1",
         {"aws.availability_zones": ["us-east-1a", "us-east-2b", "us-east-1c"]}, {}),
    Case("zones-belong-to-region", "aws.asr.0.availability_zones.1",
         {"aws.asr.0.availability_zones": ["us-east-1a", "us-east-1d"]},
         {"aws.asr.0.availability_zones": ["us-east-1a", "us-east-1b"]}),
    Case("capacity-block-fits", "aws.asr.1.purchase",
         {"aws.asr.1.purchase": CAPACITY_BLOCK, "aws.asr.1.instance_type": "inf2.48xlarge"},
         {"aws.asr.1.purchase": CAPACITY_BLOCK}),
    Case("capacity-block-fits", "aws.asr.0.purchase", {"aws.asr.0.purchase": CAPACITY_BLOCK},
         {"aws.asr.0.purchase": CAPACITY_BLOCK, "aws.asr.0.availability_zones": ["us-east-1b"]}),
    Case("capacity-block-fits", "aws.asr.0.purchase",
         {"aws.asr.0.purchase": CAPACITY_BLOCK, "aws.asr.0.availability_zones": ["us-east-1b", "us-east-1c"]}, {}),
    *(Case("warm-pool-allowed", "aws.asr.0.warm_pool",
           {"aws.asr.0.warm_pool": {"size": 1}, "aws.asr.0.purchase": purchase},
           {"aws.asr.0.warm_pool": {"size": 1}})
      for purchase in ({"option": "spot"}, CAPACITY_BLOCK, {**CAPACITY_BLOCK, "option": "capacity-reservation"})),
    Case("engine-supports-accelerator", "aws.asr.0.instance_type",
         {"aws.asr.0.instance_type": "c8g.12xlarge", "aws.asr.0.model": "Systran/faster-whisper-large-v2"},
         {"aws.asr.0.instance_type": "c8g.12xlarge"}),
    Case("engine-supports-accelerator", "aws.asr.0.engine", {**VLLM, "aws.asr.0.instance_type": "c8g.12xlarge"},
         {"aws.asr.0.instance_type": "c8g.12xlarge"}),
    *(Case("engine-supports-accelerator", "aws.asr.0.engine",
           {**VLLM, "aws.asr.0.instance_type": kind}, {"aws.asr.0.instance_type": kind})
      for kind, why in (("inf2.48xlarge", "Trn2 and Trn3 only"), ("trn1.2xlarge", "Trn2 and Trn3 only"),
                        ("trn2.48xlarge", "contains only the Whisper engine"))),
    Case("engine-supports-accelerator", "aws.asr.0.engine",
         {**VLLM, "aws.asr.0.instance_type": "inf2.48xlarge"}, VLLM),
    *(Case("neuron-lifecycle", "aws.asr.0.instance_type", {"aws.asr.0.instance_type": kind},
           {"aws.asr.0.instance_type": "trn2.48xlarge"})
      for kind in ("inf2.xlarge", "trn1.2xlarge", "trn1n.32xlarge")),
    Case("quota-need", "aws.asr.0", {},
         {"aws.asr.0.purchase": {"option": "spot"}, "aws.asr.1.purchase": CAPACITY_BLOCK},
         # 4 x p5.4xlarge + 1 x p5.48xlarge, 4 x + 2 x
         ),
    # Network: a /16 in three zones makes subnets of /20 with 4091 addresses. The ASR fleets need 4 and 2 of them, six
    # tasks two in each zone, and the load balancer of the API one
    Case("subnets-hold-fleets", CIDR, {"aws.vad.hosts_per_zone.max": 4083}, {"aws.vad.hosts_per_zone.max": 4082}),
    *(Case("subnets-hold-fleets", CIDR,
           {"aws.vad.hosts_per_zone.max": 4082, **edits}, {"aws.vad.hosts_per_zone.max": 4081, **edits})
      for edits in ({"aws.network.interface_endpoints": ["logs"]}, {"aws.edge.gateway.tasks.max": 7},
                    agents(tasks={"min": 1, "max": 1}))),
    Case("subnets-hold-fleets", CIDR, {"aws.vad.hosts_per_zone.max": 2042, **VFIO},
         {"aws.vad.hosts_per_zone.max": 2041, **VFIO}),
    Case("subnets-large-enough", CIDR, {CIDR: "10.40.0.0/24", "aws.availability_zones": ZONES},
         {CIDR: "10.40.0.0/24", "aws.availability_zones": ZONES[:5]}),
    Case("subnets-large-enough", CIDR, {CIDR: "10.40.0.0/24", "aws.availability_zones": ZONES},
         {CIDR: "10.40.0.0/23", "aws.availability_zones": ZONES}),
    Case("hosts-reach-aws", "aws.network.nat_gateways", {"aws.network.nat_gateways": 0},
         {"aws.network.nat_gateways": 0, "aws.network.interface_endpoints": list(REQUIRED_ENDPOINTS)}),
    *(Case("hosts-reach-aws", "aws.network.nat_gateways",
           {"aws.network.nat_gateways": 0,
            "aws.network.interface_endpoints": [other for other in REQUIRED_ENDPOINTS if other != name]},
           {"aws.network.nat_gateways": 1})
      for name in REQUIRED_ENDPOINTS),
    Case("nat-per-zone", "aws.network.nat_gateways", {"aws.network.nat_gateways": 2}, {}),
    Case("nat-per-zone", "aws.network.nat_gateways", {"aws.network.nat_gateways": 1},
         {"aws.network.nat_gateways": 0}),
    Case("nat-per-zone", "aws.network.nat_gateways", {"aws.network.nat_gateways": 1},
         {"aws.network.nat_gateways": 1, "environment": "staging"}),
    Case("zones-for-production", "aws.availability_zones",
         {"aws.availability_zones": ZONES[:1], "aws.network.nat_gateways": 1},
         {"aws.availability_zones": ZONES[:2], "aws.network.nat_gateways": 2}),
    Case("zones-for-production", "aws.state.replicas", {"aws.state.replicas": 0}, {"aws.state.replicas": 1}),
    Case("zones-for-production", "aws.state.replicas", {"aws.state.replicas": 0},
         {"aws.state.replicas": 0, "environment": "sandbox"}),
    Case("zones-for-production", "aws.state.snapshot_retention_days", {"aws.state.snapshot_retention_days": 0},
         {"aws.state.snapshot_retention_days": 1}),
    # Scaling
    *(Case("alarm-period", f"{VAD_RULE}.period_s", period(bad), period(good))
      for bad, good in ((1, 10), (9, 10), (11, 20), (15, 30), (40, 30), (59, 60), (61, 60), (90, 120))),
    Case("alarm-period", f"{VAD_RULE}.evaluation_periods", period(60, 1441), period(60, 1440)),
    Case("alarm-period", f"{VAD_RULE}.evaluation_periods", period(10, 8641), period(10, 8640)),
    Case("scaling-metric-published", f"{VAD_RULE}.metric", {f"{VAD_RULE}.metric": "RxRingOcupancy"},
         {f"{VAD_RULE}.metric": "RxRingOccupancy"}),
    Case("scaling-metric-published", f"{VAD_RULE}.metric", {f"{VAD_RULE}.metric": "GpuBusy"},
         {f"{VAD_RULE}.metric": "VadSessions"}),
    Case("scaling-metric-published", f"{ASR_RULE}.metric", {f"{ASR_RULE}.metric": "VadSessions"},
         {f"{ASR_RULE}.metric": "EncoderQueueDepth"}),
    # A metric with additional dimensions never matches an alarm on the fleet's dimensions.
    Case("scaling-metric-published", f"{VAD_RULE}.metric", {f"{VAD_RULE}.metric": "RxDropped"}, {}),
    Case("scaling-metric-measurable", f"{ASR_RULE}.metric", {f"{ASR_RULE}.metric": "NeuronUtilization"}, {}),
    Case("scaling-metric-measurable", f"{ASR_RULE}.metric", {"aws.asr.1.instance_type": "inf2.48xlarge"},
         {"aws.asr.1.instance_type": "inf2.48xlarge", f"{ASR_RULE}.metric": "FreeSlots",
          "aws.asr.1.scaling.1.metric": "FreeSlots"}),
    Case("scaling-metric-measurable", f"{ASR_RULE}.metric", {"aws.asr.1.instance_type": "c8g.xlarge"},
         {"aws.asr.1.instance_type": "c8g.xlarge", f"{ASR_RULE}.metric": "SlotsTaken",
          "aws.asr.1.scaling.1.metric": "SlotsTaken"}),
    Case("scaling-direction", f"{VAD_RULE}.comparison", {f"{VAD_RULE}.comparison": "below"}, {}),
    Case("scaling-direction", f"{VAD_RULE}.comparison", {f"{VAD_RULE}.steps": [{"adjustment": -2}]}, {}),
    Case("scaling-direction", f"{ASR_RULE}.comparison", {f"{ASR_RULE}.metric": "FreeSlots"},
         {f"{ASR_RULE}.metric": "FreeSlots", f"{ASR_RULE}.comparison": "below",
          f"{ASR_RULE}.steps": [{"adjustment": 1}]}),
    # Missing data does not depend on load: neither direction is wrong.
    Case("scaling-direction", f"{VAD_RULE}.comparison", {f"{VAD_RULE}.comparison": "below"},
         {f"{VAD_RULE}.comparison": "below", f"{VAD_RULE}.metric": "SilenceDropped"}),
    Case("scale-in-beside-scale-out", "aws.vad.scaling", {"aws.vad.scaling.1": ABSENT}, {}),
    Case("scale-in-beside-scale-out", "aws.asr.1.scaling", {"aws.asr.1.scaling": [rule()]}, {}),
    Case("scale-in-beside-scale-out", "aws.asr.1.scaling", {"aws.asr.1.scaling": [rule()]}, {"aws.asr.1.scaling": []}),
    Case("scaling-does-not-flap", VAD_RULE, thresholds(80, 81), thresholds(80, 80)),
    Case("scaling-does-not-flap", VAD_RULE, thresholds(20, 20.5), thresholds(20, 19.5)),
    Case("scaling-does-not-flap", VAD_RULE, {"aws.vad.scaling.1.comparison": "above"},
         {"aws.vad.scaling.1.comparison": "above", "aws.vad.scaling.1.metric": "SilenceDropped"}),
    Case("scaling-does-not-flap", ASR_RULE, {"aws.asr.1.scaling.2": rule(threshold=91)},
         {"aws.asr.1.scaling.2": rule(threshold=90)}),
    Case("scaling-does-not-flap", ASR_RULE,
         {"aws.asr.1.scaling": [rule(name="out", metric="FreeSlots", threshold=20, steps=[{"adjustment": 1}]),
                                rule(name="back", metric="FreeSlots", comparison="above", threshold=19)]},
         {"aws.asr.1.scaling": [rule(name="out", metric="FreeSlots", threshold=20, steps=[{"adjustment": 1}]),
                                rule(name="back", metric="FreeSlots", comparison="above", threshold=20)]}),
    Case("scales-from-zero", "aws.vad", {"aws.vad.hosts_per_zone.min": 0}, {}),
    Case("scales-from-zero", "aws.asr.1", {"aws.asr.1.hosts.min": 0},
         {"aws.asr.1.hosts.min": 0, "aws.asr.1.scaling": []}),
    Case("missing-data-is-safe", f"{VAD_RULE}.missing_data", {f"{VAD_RULE}.missing_data": "breaching"},
         {f"{VAD_RULE}.missing_data": "not-breaching"}),
    Case("missing-data-is-safe", "aws.vad.scaling.1.missing_data", {"aws.vad.scaling.1.missing_data": "missing"},
         {"aws.vad.scaling.1.missing_data": "ignore"}),
    Case("silent-alarm-ends", "aws.vad.scaling.1.missing_data", {"aws.vad.scaling.1.missing_data": "ignore"},
         {"aws.vad.scaling.1.missing_data": "not-breaching"}),
    Case("alarm-actions-fit", "aws.availability_zones", {"aws.availability_zones": ZONES},
         {"aws.availability_zones": ZONES[:5]}),
    # Edge
    Case("gateway-drain-exceeds-idle", f"{EDGE}.idle_timeout_s", {f"{EDGE}.idle_timeout_s": 110},
         {f"{EDGE}.idle_timeout_s": 109}),
    Case("edge-authorizer-in-production", f"{EDGE}.authorizer.kind", {f"{EDGE}.authorizer": {"kind": "none"}},
         {f"{EDGE}.authorizer": {"kind": "api-key"}}),
    Case("edge-authorizer-in-production", f"{EDGE}.authorizer.kind", {f"{EDGE}.authorizer": {"kind": "none"}},
         {f"{EDGE}.authorizer": {"kind": "none"}, "environment": "staging"}),
    Case("api-limits", f"{EDGE}.idle_timeout_s", {f"{EDGE}.idle_timeout_s": 900, f"{EDGE}.token_ttl_s": 3600},
         {f"{EDGE}.idle_timeout_s": 899, f"{EDGE}.token_ttl_s": 3600}),
    Case("api-limits", f"{EDGE}.token_ttl_s", {f"{EDGE}.token_ttl_s": 60}, {f"{EDGE}.token_ttl_s": 61}),
    Case("api-limits", f"{EDGE}.throttle.burst", {f"{EDGE}.throttle.burst": 5001}, {f"{EDGE}.throttle.burst": 5000}),
    Case("edge-limits-fit-capacity", f"{EDGE}.caller_sessions", {f"{EDGE}.caller_sessions": 4419},
         {f"{EDGE}.caller_sessions": 4420}),
    Case("edge-limits-fit-capacity", f"{EDGE}.caller_sessions", {f"{EDGE}.caller_sessions": 4419},
         {f"{EDGE}.caller_sessions": 4419, "aws.vad.measured": MEASURED_CALLS}),
    Case("edge-limits-fit-capacity", f"{EDGE}.caller_sessions", {f"{EDGE}.caller_sessions": 1},
         {f"{EDGE}.caller_sessions": 1, f"{EDGE}.authorizer": JWT}),
    Case("edge-limits-fit-capacity", f"{EDGE}.throttle.requests_per_address_5_min",
         {f"{EDGE}.throttle.requests_per_address_5_min": 8999}, {f"{EDGE}.throttle.requests_per_address_5_min": 9000}),
    Case("edge-limits-fit-capacity", f"{EDGE}.throttle.requests_per_s", {f"{EDGE}.throttle.requests_per_s": 29},
         {f"{EDGE}.throttle.requests_per_s": 30}),
    # 3,030 calls at the peak begin in three minutes, each with three requests
    Case("edge-limits-fit-capacity", f"{EDGE}.throttle.requests_per_s",
         {"load": {"calls": 1515}, f"{EDGE}.throttle.requests_per_s": 50},
         {"load": {"calls": 1500}, f"{EDGE}.throttle.requests_per_s": 50}),
    Case("edge-limits-fit-capacity", f"{EDGE}.gateway.tasks.max",
         {f"{EDGE}.gateway.measured.calls": 736}, {f"{EDGE}.gateway.measured.calls": 737}),
    # `api.`, `agent.` or `api.us-west-2.`, these letters, and `.callers.dev` have 64 characters
    *(Case("certificate-names-fit", f"{EDGE}.domain.name",
           {**edits, f"{EDGE}.domain.name": f"{'v' * (letters + 1)}.callers.dev"},
           {**edits, f"{EDGE}.domain.name": f"{'v' * letters}.callers.dev"})
      for letters, edits in ((48, {}), (46, agents()), (38, other_region({})))),
    Case("placeholder-domain", f"{EDGE}.domain", domain("example.com"), domain("example-callers.com")),
    Case("placeholder-domain", f"{EDGE}.domain", domain("voice.example"),
         {**domain("voice.example"), "environment": "sandbox"}),
    Case("certificate-names-media-host", f"{EDGE}.certificate_arn",
         {f"{EDGE}.domain": ABSENT, f"{EDGE}.certificate_arn": CERTIFICATE}, {}),
    Case("cross-zone-cost", f"{EDGE}.cross_zone", {f"{EDGE}.cross_zone": True}, {}),
    Case("artifacts-used", "aws.asr.0", {"environment": "production"},
         {"environment": "production", "aws.asr.0.artifacts": True}),
    # Machines
    Case("machine-image-fits-type", "aws.asr.0.machine_image", {"aws.asr.0.machine_image": "ami-0123456789abcdef0"},
         {"aws.asr.0.machine_image": "ami-0123456789abcdef1"}),
    Case("machine-image-fits-type", "aws.asr.1.machine_image",
         {"aws.vad.machine_image": "/voice/one:3", "aws.asr.1.machine_image": "/voice/one:3"},
         {"aws.asr.0.machine_image": "/voice/one:3", "aws.asr.1.machine_image": "/voice/one:3"}),
    Case("machine-image-fits-type", "aws.vad.machine_image", {"aws.vad.machine_image": ECS_AMI.format("gpu/")},
         {"aws.vad.machine_image": ECS_AMI.format("arm64/")}),
    Case("machine-image-fits-type", "aws.vad.machine_image", {"aws.vad.machine_image": ECS_AMI.format("")},
         {"aws.vad.machine_image": "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-6.1-arm64:9"}),
    Case("machine-image-fits-type", "aws.asr.0.machine_image", {"aws.asr.0.machine_image": ECS_AMI.format("neuron/")},
         {"aws.asr.0.machine_image": ECS_AMI.format("gpu/")}),
    Case("images-fit-root-volume", "aws.asr.0.root_volume_gib", {**vllm(), "aws.asr.0.root_volume_gib": 38},
         {**vllm(), "aws.asr.0.root_volume_gib": 40}),
    Case("images-fit-root-volume", "aws.asr.0.root_volume_gib",
         {**NEURON, "aws.asr.0.root_volume_gib": 30}, {**NEURON, "aws.asr.0.root_volume_gib": 40}),
    Case("reservation-fits-fleet", "aws.asr.1.purchase", {"aws.asr.1.availability_zones": ABSENT},
         {"aws.asr.1.availability_zones": ["us-east-1c"]}),
    Case("reservation-fits-fleet", "aws.asr.1.purchase",
         {"aws.asr.0.purchase": RESERVATION_PURCHASE, "aws.asr.0.availability_zones": ["us-east-1a"]},
         {"aws.asr.0.purchase": {**RESERVATION_PURCHASE, "reservation_id": "cr-0123456789abcdef1"},
          "aws.asr.0.availability_zones": ["us-east-1a"]}),
    Case("reservation-fits-fleet", "aws.asr.1.purchase",
         {"aws.asr.0.purchase": RESERVATION_PURCHASE, "aws.asr.0.availability_zones": ["us-east-1b"],
          "aws.asr.0.instance_type": "p5.48xlarge"},
         {"aws.asr.0.purchase": RESERVATION_PURCHASE, "aws.asr.0.availability_zones": ["us-east-1a"],
          "aws.asr.0.instance_type": "p5.48xlarge"}),
    Case("store-version-is-newest", "aws.state.engine_version", {"aws.state.engine_version": "7.2"},
         {"aws.state.engine_version": "8.1"}),
    Case("certificate-in-region", f"{EDGE}.certificate_arn",
         {f"{EDGE}.domain": ABSENT, f"{EDGE}.certificate_arn": CERTIFICATE.replace("us-east-1", "us-west-2")},
         {f"{EDGE}.domain": ABSENT, f"{EDGE}.certificate_arn": CERTIFICATE}),
    Case("certificate-in-region", f"{EDGE}.certificate_arn",
         {f"{EDGE}.domain": ABSENT, f"{EDGE}.certificate_arn": CERTIFICATE.replace("1234", "4321")},
         {f"{EDGE}.domain": ABSENT, f"{EDGE}.certificate_arn": CERTIFICATE}),
    # Callers
    Case("session-limits-agree", f"{EDGE}.reconnect_grace_s", {f"{EDGE}.reconnect_grace_s": 151},
         {f"{EDGE}.reconnect_grace_s": 150}),
    Case("session-limits-agree", f"{EDGE}.reconnect_grace_s",
         {f"{EDGE}.reconnect_grace_s": 130, f"{EDGE}.session_max_s": 120},
         {f"{EDGE}.reconnect_grace_s": 120, f"{EDGE}.session_max_s": 120}),
    Case("session-limits-agree", f"{EDGE}.idle_timeout_s", {f"{EDGE}.idle_timeout_s": 100, f"{EDGE}.session_max_s": 90},
         {f"{EDGE}.idle_timeout_s": 90, f"{EDGE}.session_max_s": 90}),
    Case("calls-fit-session", "load.minutes_each", {"load": {"calls": 10, "minutes_each": 61}},
         {"load": {"calls": 10, "minutes_each": 60}}),
    Case("calls-fit-session", "load.minutes_each", {**streaming_vllm(600), "load": {"calls": 10, "minutes_each": 11}},
         {**streaming_vllm(600), "load": {"calls": 10, "minutes_each": 10}}),
    Case("archive-knows-callers", f"{EDGE}.archive",
         {f"{EDGE}.archive": {}, f"{EDGE}.authorizer": {"kind": "none"}}, {f"{EDGE}.archive": {}}),
    Case("origins-are-public", f"{EDGE}.allowed_origins.0", origin("http://localhost"),
         {**origin("http://localhost"), "environment": "staging"}),
    *(Case("origins-are-public", f"{EDGE}.allowed_origins.0", origin(page), origin("https://app.callers.dev"))
      for page in ("http://localhost:8080", "https://localhost", "https://127.0.0.1:8443", "https://10.1.2.3",
                   "https://[::1]", "https://app.localhost", "https://laptop.local", "https://intranet", "https://x.home.arpa",
                   "https://app.corp")),
    Case("endpoints-are-reachable", "aws.agents.chat.url",
         agents(chat={"url": "https://localhost/v1", "model": "qwen3-8b"}), agents()),
    Case("endpoints-are-reachable", "aws.agents.chat.url",
         agents(chat={"url": "https://169.254.169.254/v1", "model": "qwen3-8b"}), agents()),
    Case("endpoints-are-reachable", f"{EDGE}.authorizer.issuer",
         {f"{EDGE}.authorizer": {**JWT, "issuer": "https://127.0.0.1/"}}, {f"{EDGE}.authorizer": JWT}),
    # Agents: the base document's 20 ASR hosts of 221 calls transcribe 4,420
    Case("agents-fit-core", "aws.agents.conversations", agents(conversations=9), agents(conversations=8)),
    Case("agents-fit-tiers", "aws.agents.tasks", agents(tasks={"min": 1, "max": 553}),
         agents(tasks={"min": 1, "max": 552})),
    Case("load-fits-agents", "aws.agents.tasks", agents(load={"calls": 33, "conversation_share": 0.5}),
         agents(load={"calls": 32, "conversation_share": 0.5})),
    Case("voice-licence-allows-use", "aws.agents.speech.model", agents("voxtral-4b-tts"), agents()),
    Case("voice-licence-allows-use", "aws.agents.speech.model", agents("mistralai/Voxtral-4B-TTS-2603"),
         agents("voxtral-4b-tts", commercial=False)),
    Case("voice-licence-allows-use", "aws.agents.speech.model", agents("voxtral-4b-tts"),
         agents("voxtral-4b-tts", model_agreements=[{"model": "voxtral-4b-tts", "reference": "contract 2026-17"}])),
    Case("chat-model-hears", "aws.agents.chat", agents(listening="audio"),
         agents(listening="audio", chat={"url": "https://chat.callers.dev/v1", "model": "gpt-audio"})),
    Case("chat-model-hears", "aws.agents.chat",
         agents(listening="audio", chat={"url": "https://chat.callers.dev/v1", "model": "Qwen/Qwen3-8B"}),
         agents(listening="transcript")),
    # Supply
    Case("production-protected", "aws.deletion_protection", {"aws.deletion_protection": False},
         {"aws.deletion_protection": True}),
    Case("production-protected", "aws.deletion_protection", {"aws.deletion_protection": False},
         {"aws.deletion_protection": False, "environment": "staging"}),
    Case("machine-images-pinned", "aws.vad.machine_image", {"aws.vad.machine_image": ABSENT},
         {"aws.vad.machine_image": ABSENT, "environment": "staging"}, present=False),
    Case("machine-images-pinned", "aws.asr.0.machine_image", {"aws.asr.0.machine_image": "/voice/p5"},
         {"aws.asr.0.machine_image": "/voice/p5:1"}),
    Case("machine-images-pinned", "aws.asr.0.machine_image", {"aws.asr.0.machine_image": "/voice/p5"},
         {"aws.asr.0.machine_image": "/voice/p5", "aws.asr.1.machine_image": "/voice/p5", "images.telemetry": ABSENT,
          "aws.vad.machine_image": ABSENT}),
    Case("model-revision-pinned", "aws.asr.0", {"aws.asr.0.revision": ABSENT},
         {"aws.asr.0.revision": ABSENT, "environment": "staging"}),
    Case("model-revision-pinned", "aws.asr.0", VLLM, {}),
    Case("images-signed", "image_signing.signature", {"images.gateway": DIGEST}, {}),
    Case("images-signed", "image_signing.signature", {"image_signing.signature": "MEQC"}, {}),
    Case("images-signed", "images", {"image_signing": ABSENT}, {"image_signing": ABSENT, "images": ABSENT}),
    Case("images-signed", "images", {"image_signing": ABSENT}, {"image_signing": ABSENT, "environment": "staging"}),
    Case("vfio-image-baked", "aws.vad.data_path.mode", {**VFIO, "aws.vad.machine_image": "/aws/service/ecs/one:2"},
         VFIO),
    Case("images-have-digests", "images", {"images.telemetry": ABSENT}, {}),
    Case("images-have-digests", "images", {"images.gateway": ABSENT}, {}),
    Case("images-have-digests", "images", {"aws.asr.0.instance_type": "inf2.48xlarge"},
         {"aws.asr.0.instance_type": "inf2.48xlarge", "images.asr-neuron": DIGEST}),
    Case("images-have-digests", "images", VLLM,
         {**VLLM, "images.asr-vllm": DIGEST}),
    Case("images-have-digests", "images", {"images": ABSENT}, {}, present=False),
    Case("regions-share-no-ids", "aws.other_regions.0", other_region({}),
         other_region({"aws.vad.machine_image": "/voice/vad:3", "aws.asr": FLEETS_WITHOUT_IMAGE_ID})),
    Case("regions-share-no-ids", "aws.other_regions.0", other_region({"aws.vad.machine_image": "/voice/vad:3"}),
         other_region({"aws.vad.machine_image": "/voice/vad:3", "aws.asr": FLEETS_WITHOUT_IMAGE_ID})),
    Case("accepted-checks-exist", "accepted_checks.0.id", {"accepted_checks.0.id": "load-fits-gpus"},
         {"accepted_checks.0.id": "vm-size-in-location"}),
    Case("accepted-checks-exist", "accepted_checks.0.id", {"accepted_checks.0.id": "ena-express-hop"},
         {"accepted_checks.0.id": "ena-express-mtu"}),
)  # fmt: skip
