"""One row per rule of a check: an edit of the base document that trips it, and the nearest one that does not."""

from dataclasses import dataclass
from typing import Any

from blueprint.checks.network import NEEDED_ENDPOINTS
from tests.blueprint.documents import ABSENT, BASE, Edits, parsed

VAD_RULE = "aws.vad.scaling.0"
ASR_RULE = "aws.asr.1.scaling.0"
EXPRESS = {"aws.vad.ena_express.enabled": True}
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
TWO_CORES = {f"{EDGE}.gateway.vcpu": 2, f"{EDGE}.gateway.memory_gib": 4, f"{EDGE}.gateway.measured": ABSENT}
FEWER = {"date": "2026-11-22", "conditions": "measured by hand", "calls": 147}
JWT = {"kind": "jwt", "issuer": "https://login.callers.dev/", "audience": "voice"}
CERTIFICATE = "arn:aws:acm:us-east-1:123456789012:certificate/00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class Case:
    """A check that holds for ``passes`` and, at the place ``at``, does not hold for ``trips``.

    Attributes:
        says: Words that the message has to have.
        present: Whether the file spells ``at`` out; otherwise the line is that of what stands around it.
        base: The document that is edited.
    """

    check: str
    at: str
    trips: Edits
    passes: Edits
    says: tuple[str, ...] = ()
    present: bool = True
    base: str = BASE


def rule(**values: object) -> dict[str, Any]:
    """A scale-in rule to put beside the base document's, or in their place."""
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


def live_on_vllm(longest_call_s: int) -> Edits:
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
    """The base document in a second region, with as many zones."""
    zones = [f"us-west-2{letter}" for letter in "abc"]
    return {"aws.other_regions": [{"region": "us-west-2", "availability_zones": zones}], **edits}


ABSENT_IDS = [
    {key: value for key, value in fleet.items() if key not in {"machine_image", "purchase"}}
    for fleet in parsed(BASE)["aws"]["asr"]
]
MTU = "aws.vad.data_path.mtu"
QUEUES = "aws.vad.data_path.rx_queues"
RING = "aws.vad.data_path.rx_ring_size"
COUNT = "aws.vad.huge_pages.count"
CIDR = "aws.network.cidr"

CASES: tuple[Case, ...] = (
    # 80 % of 96 GiB are 76.8 GiB: 39321.6 pages of 2 MiB, 2457.6 of 32 MiB, 76.8 of 1 GiB
    Case("huge-pages-fit-memory", COUNT, pages(39322), pages(39321), ("39322", "96 GiB", "80%", "76.8 GiB")),
    Case("huge-pages-fit-memory", COUNT, pages(2458, 32), pages(2457, 32)),
    Case("huge-pages-fit-memory", COUNT, pages(77, 1024), pages(76, 1024), ("77 GiB",)),
    Case("huge-pages-fit-memory", COUNT, pages(39322, 2, "c8gn.12xlarge"), pages(39321, 2, "c8gn.12xlarge")),
    Case("huge-pages-fit-memory", COUNT, pages(24576, 2, "c8g.4xlarge"), pages(24576, 2, "c8g.8xlarge"), ("48 GiB",)),
    Case("ena-express-supported", "aws.vad.ena_express", {**EXPRESS, "aws.vad.instance_type": "c8g.4xlarge"},
         {**EXPRESS, "aws.vad.instance_type": "c8g.8xlarge"}, ("c8g.4xlarge", "16 vCPU")),
    Case("ena-express-supported", "aws.vad.ena_express", {**EXPRESS, "aws.vad.instance_type": "c8g.4xlarge"},
         {"aws.vad.instance_type": "c8g.4xlarge"}),
    Case("ena-express-disputed", "aws.vad.ena_express", {**EXPRESS, "aws.vad.instance_type": "c8g.8xlarge"},
         {**EXPRESS, "aws.vad.instance_type": "c8g.12xlarge"}, ("c8g.8xlarge",)),
    Case("ena-express-disputed", "aws.vad.ena_express", {**EXPRESS, "aws.vad.instance_type": "c8g.8xlarge"},
         {"aws.vad.instance_type": "c8g.8xlarge"}),
    Case("ena-express-peers-supported", "aws.asr.1.instance_type",
         {**EXPRESS, "aws.asr.1.instance_type": "inf2.48xlarge"}, EXPRESS, ("inf2.48xlarge", "c8g.12xlarge")),
    Case("ena-express-peers-supported", "aws.asr.0.instance_type",
         {**EXPRESS, "aws.asr.0.instance_type": "trn1.2xlarge"}, {"aws.asr.0.instance_type": "trn1.2xlarge"}),
    Case("ena-express-hops", "aws.vad.ena_express", EXPRESS, {}),
    Case("ena-express-mtu", MTU, mtu(8901, VFIO, EXPRESS), mtu(8900, VFIO, EXPRESS), ("8901", "8900")),
    Case("ena-express-mtu", MTU, mtu(9001, VFIO, EXPRESS), mtu(9001, VFIO)),
    Case("xdp-mtu", MTU, mtu(3499), mtu(3498), ("3499", "3498")),
    Case("xdp-mtu", MTU, mtu(9001), mtu(9001, VFIO)),
    Case("chunk-fits-mtu", MTU, mtu(3243), mtu(3244), ("3243", "3244")),
    Case("chunk-fits-mtu", MTU, mtu(1500, VFIO), mtu(9001, VFIO), ("1500",)),
    Case("rx-ring-size", RING, {RING: 128}, {RING: 256}, ("128",)),
    Case("rx-ring-size", RING, {RING: 257}, {RING: 512}, ("257",)),
    Case("rx-ring-size", RING, {RING: 32768}, {RING: 16384}, ("32768", "16384")),
    Case("rx-ring-size", RING, {RING: 16383}, {RING: 8192}),
    Case("rx-queues-fit", QUEUES, queues(5, "c8g.12xlarge"), queues(4, "c8g.12xlarge"), ("5", "8 queues", "48 vCPU")),
    Case("rx-queues-fit", QUEUES, queues(9, "c8g.12xlarge", VFIO), queues(8, "c8g.12xlarge", VFIO)),
    Case("rx-queues-fit", QUEUES, queues(3, "c8g.xlarge", VFIO), queues(2, "c8g.xlarge", VFIO), ("4 vCPU",)),
    Case("rx-queues-fit", QUEUES, queues(1, "c8g.medium"), queues(1, "c8g.large")),
    Case("rx-queues-fit", QUEUES, queues(2, "c8g.large"), queues(1, "c8g.large"), ("2 vCPU of which 1 stay free",)),
    Case("rx-queues-fit", QUEUES, {**queues(4, "c8g.xlarge"), "aws.vad.data_path": ABSENT},
         {"aws.vad.data_path": ABSENT}, present=False),
    # Load: the base document has 6 x 1,000, 30 x 8,000 and 20 x 221 places, and a store for 7,028 calls
    Case("load-fits-tiers", "aws.edge.gateway.tasks",
         {"load": {"calls": 1501}, f"{EDGE}.gateway.sockets_per_task": 1000},
         {"load": {"calls": 1500}, f"{EDGE}.gateway.sockets_per_task": 1000}, ("3,000", "3,002")),
    # One core of x86 has 60 / 0.28 calls, half of them are counted on; the second core of a task has none.
    Case("load-fits-tiers", "aws.edge.gateway.tasks", {"load": {"calls": 322}, **TWO_CORES},
         {"load": {"calls": 321}, **TWO_CORES}, ("642", "644")),
    Case("load-fits-tiers", "aws.asr.0.hosts", {"load": {"calls": 2211}}, {"load": {"calls": 2210}},
         ("4,420", "4,422")),
    Case("load-fits-tiers", "aws.state.node_type", {"load": {"calls": 135}, "aws.state.node_type": "cache.t4g.micro"},
         {"load": {"calls": 134}, "aws.state.node_type": "cache.t4g.micro"}, ("268", "270")),
    Case("tiers-balanced", "aws.vad.hosts_per_zone", {"aws.vad.hosts_per_zone.max": 3},
         {"aws.vad.hosts_per_zone.max": 2}, ("72,000", "16 times", "4,192 USD")),
    Case("tiers-balanced", "aws.vad.instance_type", pages(1, 2, "c8g.8xlarge"), pages(1, 2, "c8g.4xlarge"),
         ("4 of 32 vCPU", "c8g.2xlarge", "699 USD")),
    Case("tiers-balanced", "aws.vad.instance_type", pages(1, 2, "c8gn.12xlarge"), pages(1, 2, "c8gn.4xlarge"),
         ("4 of 48 vCPU", "c8gn.2xlarge")),
    Case("live-load-is-a-call", "aws.asr.0.vllm.load", live_on_vllm(601), live_on_vllm(600), ("7513 tokens",)),
    Case("full-host-scales-out", "aws.vad.scaling", {"aws.vad.scaling.2": ABSENT}, {}, ("vad", "refuse")),
    Case("full-host-scales-out", "aws.asr.1.scaling", {"aws.asr.1.scaling.2.metric": "GpuBusy"},
         {"aws.asr.1.scaling.2": rule(name="free", metric="FreeSlots", threshold=20, steps=[{"adjustment": 1}])}),
    Case("full-host-scales-out", "aws.asr.1.scaling", {"aws.asr.1.scaling.2.threshold": 100},
         {"aws.asr.1.scaling.2.threshold": 99}),
    Case("fleet-can-grow", "aws.asr.0.scaling", {"aws.asr.0.hosts.max": 5}, {}, ("p5", "5 hosts")),
    Case("threshold-in-range", f"{ASR_RULE}.threshold", {f"{ASR_RULE}.threshold": 100}, {f"{ASR_RULE}.threshold": 99},
         ("GpuBusy above 100",)),
    Case("threshold-in-range", "aws.asr.1.scaling.1.threshold", {"aws.asr.1.scaling.1.threshold": 0},
         {"aws.asr.1.scaling.1.threshold": 1}, ("GpuBusy below 0",)),
    Case("sockets-fit-task", f"{EDGE}.gateway.sockets_per_task", {f"{EDGE}.gateway.sockets_per_task": 2001},
         {f"{EDGE}.gateway.sockets_per_task": 2000}, ("2,001", "2,000", "compute")),
    Case("sockets-fit-task", f"{EDGE}.gateway.sockets_per_task",
         {f"{EDGE}.gateway.sockets_per_task": 14337, f"{EDGE}.gateway.measured.calls": 8000},
         {f"{EDGE}.gateway.sockets_per_task": 14336, f"{EDGE}.gateway.measured.calls": 8000}, ("14,337", "2 GiB")),
    Case("store-holds-calls", "aws.state.node_type", {"aws.state.node_type": "cache.t4g.micro"},
         {"aws.state.node_type": "cache.t4g.micro", "load": {"calls": 100}}, ("268", "4,420")),
    # 3 x c8g.12xlarge, 4 x p5.4xlarge and 1 x p5.48xlarge
    Case("budget-covers-minimum", "aws.observability.monthly_budget_usd",
         {"aws.observability.monthly_budget_usd": 64460}, {"aws.observability.monthly_budget_usd": 64461}, ("64,461",)),
    Case("vad-on-graviton", "aws.vad.instance_type", {"aws.vad.instance_type": "p5.4xlarge"}, {},
         ("x86_64 with H100",)),
    Case("images-run-on-hosts", "aws.asr.0.instance_type", {**VLLM, "aws.asr.0.instance_type": "c8g.4xlarge"},
         {"aws.asr.0.instance_type": "c8g.4xlarge"}, ("asr-vllm", "arm64")),
    Case("asr-has-fleets", "aws.asr", {"aws.asr": []}, {}),
    Case("spot-drain-fits-notice", "aws.asr.0.drain_timeout_s",
         {"aws.asr.0.purchase": {"option": "spot"}, "aws.asr.0.drain_timeout_s": 101},
         {"aws.asr.0.purchase": {"option": "spot"}, "aws.asr.0.drain_timeout_s": 100}, ("101 s",)),
    Case("warm-pool-in-fleet", "aws.asr.0.warm_pool.size",
         {"aws.asr.0.warm_pool": {"size": 4}, "aws.asr.0.hosts.min": 1},
         {"aws.asr.0.warm_pool": {"size": 3}, "aws.asr.0.hosts.min": 1}, ("3 more",)),
    Case("endpoints-exist", "aws.network.interface_endpoints.0", {"aws.network.interface_endpoints": ["ecr.apis"]},
         {"aws.network.interface_endpoints": ["ecr.api"]}, ("ecr.apis", "ecr.api")),
    # Capacity
    Case("instance-type-in-region", "aws.asr.0.instance_type", {"aws.asr.0.instance_type": "trn2.48xlarge"}, {},
         ("trn2.48xlarge", "us-east-1")),
    Case("instance-type-in-region", "aws.vad.instance_type", {"aws.region": "me-south-1"}, {"aws.region": "us-east-2"},
         ("c8g.12xlarge", "me-south-1")),
    Case("zones-belong-to-region", "aws.availability_zones.1",
         {"aws.availability_zones": ["us-east-1a", "us-east-2b", "us-east-1c"]}, {}, ("us-east-2b", "us-east-1")),
    *(Case("zones-belong-to-region", "aws.availability_zones.2", {"aws.availability_zones.2": zone}, {}, (zone,))
      for zone in ("us-east-1", "us-east-1ab", "us-east-1C", "us-east-11", "use1-az3", "us-east-1-bos-1a")),
    Case("zones-belong-to-region", "aws.asr.0.availability_zones.1",
         {"aws.asr.0.availability_zones": ["us-east-1a", "us-east-1d"]},
         {"aws.asr.0.availability_zones": ["us-east-1a", "us-east-1b"]}, ("p5", "us-east-1d")),
    Case("capacity-block-fits", "aws.asr.1.purchase",
         {"aws.asr.1.purchase": CAPACITY_BLOCK, "aws.asr.1.instance_type": "inf2.48xlarge"},
         {"aws.asr.1.purchase": CAPACITY_BLOCK}, ("inf2.48xlarge",)),
    Case("capacity-block-fits", "aws.asr.0.purchase", {"aws.asr.0.purchase": CAPACITY_BLOCK},
         {"aws.asr.0.purchase": CAPACITY_BLOCK, "aws.asr.0.availability_zones": ["us-east-1b"]}, ("p5", "3")),
    Case("capacity-block-fits", "aws.asr.0.purchase",
         {"aws.asr.0.purchase": CAPACITY_BLOCK, "aws.asr.0.availability_zones": ["us-east-1b", "us-east-1c"]}, {}),
    *(Case("warm-pool-allowed", "aws.asr.0.warm_pool",
           {"aws.asr.0.warm_pool": {"size": 1}, "aws.asr.0.purchase": purchase},
           {"aws.asr.0.warm_pool": {"size": 1}}, ("p5", str(purchase["option"])))
      for purchase in ({"option": "spot"}, CAPACITY_BLOCK, {**CAPACITY_BLOCK, "option": "capacity-reservation"})),
    Case("engine-supports-accelerator", "aws.asr.0.instance_type",
         {"aws.asr.0.instance_type": "c8g.12xlarge", "aws.asr.0.model": "Systran/faster-whisper-large-v2"},
         {"aws.asr.0.instance_type": "c8g.12xlarge"}, ("c8g.12xlarge", "the speed of Systran/faster-whisper-large-v2")),
    Case("engine-supports-accelerator", "aws.asr.0.engine", {**VLLM, "aws.asr.0.instance_type": "c8g.12xlarge"},
         {"aws.asr.0.instance_type": "c8g.12xlarge"}, ("c8g.12xlarge", "vLLM")),
    *(Case("engine-supports-accelerator", "aws.asr.0.engine",
           {**VLLM, "aws.asr.0.instance_type": kind}, {"aws.asr.0.instance_type": kind},
           (kind, why))
      for kind, why in (("inf2.48xlarge", "Trn2 and Trn3 only"), ("trn1.2xlarge", "Trn2 and Trn3 only"),
                        ("trn2.48xlarge", "our engine only"))),
    Case("engine-supports-accelerator", "aws.asr.0.engine",
         {**VLLM, "aws.asr.0.instance_type": "inf2.48xlarge"}, VLLM),
    *(Case("neuron-lifecycle", "aws.asr.0.instance_type", {"aws.asr.0.instance_type": kind},
           {"aws.asr.0.instance_type": "trn2.48xlarge"}, (kind,))
      for kind in ("inf2.xlarge", "trn1.2xlarge", "trn1n.32xlarge")),
    Case("quota-need", "aws.asr.0", {},
         {"aws.asr.0.purchase": {"option": "spot"}, "aws.asr.1.purchase": CAPACITY_BLOCK},
         # 4 x p5.4xlarge + 1 x p5.48xlarge, 4 x + 2 x
         ("L-417A185B", "256 vCPU at the minimum", "448 at the maximum")),
    # Network: a /16 in three zones makes subnets of /20 with 4091 addresses; the ASR fleets take 4 and 2 of them
    Case("subnets-hold-fleets", CIDR, {"aws.vad.hosts_per_zone.max": 4086}, {"aws.vad.hosts_per_zone.max": 4085},
         ("10.40.0.0/16", "/20", "4091", "4092")),
    Case("subnets-hold-fleets", CIDR,
         {"aws.vad.hosts_per_zone.max": 4085, "aws.network.interface_endpoints": ["logs"]},
         {"aws.vad.hosts_per_zone.max": 4084, "aws.network.interface_endpoints": ["logs"]}),
    Case("subnets-large-enough", CIDR, {CIDR: "10.40.0.0/24", "aws.availability_zones": ZONES},
         {CIDR: "10.40.0.0/24", "aws.availability_zones": ZONES[:5]}, ("10.40.0.0/24", "6 zones", "/29")),
    Case("subnets-large-enough", CIDR, {CIDR: "10.40.0.0/24", "aws.availability_zones": ZONES},
         {CIDR: "10.40.0.0/23", "aws.availability_zones": ZONES}),
    Case("hosts-reach-aws", "aws.network.nat_gateways", {"aws.network.nat_gateways": 0},
         {"aws.network.nat_gateways": 0, "aws.network.interface_endpoints": list(NEEDED_ENDPOINTS)}, ("ecr.api",)),
    *(Case("hosts-reach-aws", "aws.network.nat_gateways",
           {"aws.network.nat_gateways": 0,
            "aws.network.interface_endpoints": [other for other in NEEDED_ENDPOINTS if other != name]},
           {"aws.network.nat_gateways": 1}, (f"no interface endpoint for {name}:",))
      for name in NEEDED_ENDPOINTS),
    Case("nat-per-zone", "aws.network.nat_gateways", {"aws.network.nat_gateways": 2}, {}, ("2 NAT", "3 zones")),
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
    *(Case("alarm-period", f"{VAD_RULE}.period_s", period(bad), period(good), (f"{bad} s",))
      for bad, good in ((1, 10), (9, 10), (11, 20), (15, 30), (40, 30), (59, 60), (61, 60), (90, 120))),
    Case("alarm-period", f"{VAD_RULE}.evaluation_periods", period(60, 1441), period(60, 1440), ("86460 s",)),
    Case("alarm-period", f"{VAD_RULE}.evaluation_periods", period(10, 8641), period(10, 8640)),
    Case("scaling-metric-published", f"{VAD_RULE}.metric", {f"{VAD_RULE}.metric": "RxRingOcupancy"},
         {f"{VAD_RULE}.metric": "RxRingOccupancy"}, ("RxRingOcupancy", "fleet vad", "did you mean `RxRingOccupancy`?")),
    Case("scaling-metric-published", f"{VAD_RULE}.metric", {f"{VAD_RULE}.metric": "GpuBusy"},
         {f"{VAD_RULE}.metric": "VadSessions"}, ("GpuBusy", "fleet vad")),
    Case("scaling-metric-published", f"{ASR_RULE}.metric", {f"{ASR_RULE}.metric": "VadSessions"},
         {f"{ASR_RULE}.metric": "EncoderQueueDepth"}, ("VadSessions", "fleet p5-large")),
    # A metric with a dimension of its own never matches an alarm on the fleet's.
    Case("scaling-metric-published", f"{VAD_RULE}.metric", {f"{VAD_RULE}.metric": "RxDropped"}, {}, ("RxDropped",)),
    Case("scaling-metric-measurable", f"{ASR_RULE}.metric", {f"{ASR_RULE}.metric": "NeuronUtilization"}, {},
         ("NeuronUtilization", "p5.48xlarge", "H100")),
    Case("scaling-metric-measurable", f"{ASR_RULE}.metric", {"aws.asr.1.instance_type": "inf2.48xlarge"},
         {"aws.asr.1.instance_type": "inf2.48xlarge", f"{ASR_RULE}.metric": "FreeSlots",
          "aws.asr.1.scaling.1.metric": "FreeSlots"}, ("GpuBusy", "Inferentia2")),
    Case("scaling-metric-measurable", f"{ASR_RULE}.metric", {"aws.asr.1.instance_type": "c8g.xlarge"},
         {"aws.asr.1.instance_type": "c8g.xlarge", f"{ASR_RULE}.metric": "SlotsTaken",
          "aws.asr.1.scaling.1.metric": "SlotsTaken"}, ("GpuBusy", "no accelerator")),
    Case("scaling-direction", f"{VAD_RULE}.comparison", {f"{VAD_RULE}.comparison": "below"}, {},
         ("RxRingOccupancy below 80 adds hosts to fleet vad while it is idle",)),
    Case("scaling-direction", f"{VAD_RULE}.comparison", {f"{VAD_RULE}.steps": [{"adjustment": -2}]}, {},
         ("RxRingOccupancy above 80 removes hosts from fleet vad while it is busy",)),
    Case("scaling-direction", f"{ASR_RULE}.comparison", {f"{ASR_RULE}.metric": "FreeSlots"},
         {f"{ASR_RULE}.metric": "FreeSlots", f"{ASR_RULE}.comparison": "below",
          f"{ASR_RULE}.steps": [{"adjustment": 1}]},
         ("FreeSlots above 90 adds hosts to fleet p5-large while it is idle",)),
    # Silence says nothing of load: neither direction is wrong.
    Case("scaling-direction", f"{VAD_RULE}.comparison", {f"{VAD_RULE}.comparison": "below"},
         {f"{VAD_RULE}.comparison": "below", f"{VAD_RULE}.metric": "SilenceDropped"}),
    Case("scale-in-beside-scale-out", "aws.vad.scaling", {"aws.vad.scaling.1": ABSENT}, {}, ("vad", "out", "never in")),
    Case("scale-in-beside-scale-out", "aws.asr.1.scaling", {"aws.asr.1.scaling": [rule()]}, {},
         ("p5-large", "in but never out")),
    Case("scale-in-beside-scale-out", "aws.asr.1.scaling", {"aws.asr.1.scaling": [rule()]}, {"aws.asr.1.scaling": []}),
    Case("scaling-does-not-flap", VAD_RULE, thresholds(80, 81), thresholds(80, 80), ("above 80", "below 81")),
    Case("scaling-does-not-flap", VAD_RULE, thresholds(20, 20.5), thresholds(20, 19.5)),
    Case("scaling-does-not-flap", VAD_RULE, {"aws.vad.scaling.1.comparison": "above"},
         {"aws.vad.scaling.1.comparison": "above", "aws.vad.scaling.1.metric": "SilenceDropped"}, ("ring-low",)),
    Case("scaling-does-not-flap", ASR_RULE, {"aws.asr.1.scaling.2": rule(threshold=91)},
         {"aws.asr.1.scaling.2": rule(threshold=90)}, ("busy", "extra")),
    Case("scaling-does-not-flap", ASR_RULE,
         {"aws.asr.1.scaling": [rule(name="out", metric="FreeSlots", threshold=20, steps=[{"adjustment": 1}]),
                                rule(name="back", metric="FreeSlots", comparison="above", threshold=19)]},
         {"aws.asr.1.scaling": [rule(name="out", metric="FreeSlots", threshold=20, steps=[{"adjustment": 1}]),
                                rule(name="back", metric="FreeSlots", comparison="above", threshold=20)]}),
    Case("scales-from-zero", "aws.vad", {"aws.vad.hosts_per_zone.min": 0}, {}, ("fleet vad", "0 hosts")),
    Case("scales-from-zero", "aws.asr.1", {"aws.asr.1.hosts.min": 0},
         {"aws.asr.1.hosts.min": 0, "aws.asr.1.scaling": []}, ("fleet p5-large",)),
    Case("missing-data-is-safe", f"{VAD_RULE}.missing_data", {f"{VAD_RULE}.missing_data": "breaching"},
         {f"{VAD_RULE}.missing_data": "not-breaching"}, ("ring-high", "vad", "2 hosts")),
    Case("missing-data-is-safe", "aws.vad.scaling.1.missing_data", {"aws.vad.scaling.1.missing_data": "missing"},
         {"aws.vad.scaling.1.missing_data": "ignore"}, ("ring-low", "-1 hosts")),
    Case("silent-alarm-ends", "aws.vad.scaling.1.missing_data", {"aws.vad.scaling.1.missing_data": "ignore"},
         {"aws.vad.scaling.1.missing_data": "not-breaching"}, ("ring-low", "-1 every minute")),
    Case("alarm-actions-fit", "aws.availability_zones", {"aws.availability_zones": ZONES},
         {"aws.availability_zones": ZONES[:5]}, ("6 zones", "5")),
    # Edge
    Case("gateway-drain-exceeds-idle", f"{EDGE}.idle_timeout_s", {f"{EDGE}.idle_timeout_s": 110},
         {f"{EDGE}.idle_timeout_s": 109}, ("110", "120 s")),
    Case("edge-authorizer-in-production", f"{EDGE}.authorizer.kind", {f"{EDGE}.authorizer": {"kind": "none"}},
         {f"{EDGE}.authorizer": {"kind": "api-key"}}, ("anybody",)),
    Case("edge-authorizer-in-production", f"{EDGE}.authorizer.kind", {f"{EDGE}.authorizer": {"kind": "none"}},
         {f"{EDGE}.authorizer": {"kind": "none"}, "environment": "staging"}),
    Case("api-limits", f"{EDGE}.idle_timeout_s", {f"{EDGE}.idle_timeout_s": 900, f"{EDGE}.token_ttl_s": 3600},
         {f"{EDGE}.idle_timeout_s": 899, f"{EDGE}.token_ttl_s": 3600}, ("every 300 s", "after 300 s")),
    Case("api-limits", f"{EDGE}.token_ttl_s", {f"{EDGE}.token_ttl_s": 60}, {f"{EDGE}.token_ttl_s": 61},
         ("token_ttl_s 60", "idle_timeout_s 60")),
    Case("api-limits", f"{EDGE}.throttle.requests_per_s", {f"{EDGE}.throttle.requests_per_s": 10_001},
         {f"{EDGE}.throttle.requests_per_s": 10_000}, ("10001", "10000")),
    Case("api-limits", f"{EDGE}.throttle.burst", {f"{EDGE}.throttle.burst": 5001}, {f"{EDGE}.throttle.burst": 5000},
         ("5001", "5000")),
    Case("edge-limits-fit-capacity", f"{EDGE}.caller_sessions", {f"{EDGE}.caller_sessions": 4419},
         {f"{EDGE}.caller_sessions": 4420}, ("4,419", "100% of the 4,420", "iam")),
    Case("edge-limits-fit-capacity", f"{EDGE}.caller_sessions", {f"{EDGE}.caller_sessions": 4419},
         {f"{EDGE}.caller_sessions": 4419, "aws.vad.measured": FEWER}, ("4,420",)),
    Case("edge-limits-fit-capacity", f"{EDGE}.caller_sessions", {f"{EDGE}.caller_sessions": 1},
         {f"{EDGE}.caller_sessions": 1, f"{EDGE}.authorizer": JWT}, ("1 refuses",)),
    Case("edge-limits-fit-capacity", f"{EDGE}.throttle.requests_per_address_5_min",
         {f"{EDGE}.throttle.requests_per_address_5_min": 8999}, {f"{EDGE}.throttle.requests_per_address_5_min": 9000},
         ("8,999", "10.0 sessions a second", "9,000")),
    Case("edge-limits-fit-capacity", f"{EDGE}.throttle.requests_per_s", {f"{EDGE}.throttle.requests_per_s": 29},
         {f"{EDGE}.throttle.requests_per_s": 30}, ("29 of all callers", "the 30")),
    Case("edge-limits-fit-capacity", f"{EDGE}.gateway.tasks.max",
         {f"{EDGE}.gateway.measured.calls": 736}, {f"{EDGE}.gateway.measured.calls": 737}, ("4,416", "4,420")),
    Case("placeholder-domain", f"{EDGE}.domain", domain("example.com"), domain("example-callers.com"),
         ("example.com",)),
    Case("placeholder-domain", f"{EDGE}.domain", domain("voice.example"),
         {**domain("voice.example"), "environment": "sandbox"}),
    Case("certificate-names-media-host", f"{EDGE}.certificate_arn",
         {f"{EDGE}.domain": ABSENT, f"{EDGE}.certificate_arn": CERTIFICATE}, {}, (CERTIFICATE,)),
    Case("cross-zone-cost", f"{EDGE}.cross_zone", {f"{EDGE}.cross_zone": True}, {},
         ("67%", "1.54 USD", "1,000 callers")),
    Case("artifacts-used", "aws.asr.0", {"environment": "production"},
         {"environment": "production", "aws.asr.0.artifacts": True}, ("from a hub",)),
    # Agents, of whom base's 20 hosts of 221 calls hear 4,420
    Case("agents-fit-core", "aws.agents.conversations", agents(conversations=9), agents(conversations=8),
         ("9 conversations", "69%")),
    Case("agents-fit-tiers", "aws.agents.tasks", agents(tasks={"min": 1, "max": 553}),
         agents(tasks={"min": 1, "max": 552}), ("4,424", "asr carries 4,420")),
    Case("load-fits-agents", "aws.agents.tasks", agents(load={"calls": 33, "conversation_share": 0.5}),
         agents(load={"calls": 32, "conversation_share": 0.5}), ("32 conversations", "peak is 33")),
    Case("voice-licence-allows-use", "aws.agents.speech.model", agents("voxtral-4b-tts"), agents(),
         ("CC-BY-NC-4.0", "commercial")),
    Case("voice-licence-allows-use", "aws.agents.speech.model", agents("mistralai/Voxtral-4B-TTS-2603"),
         agents("voxtral-4b-tts", commercial=False)),
    Case("voice-licence-allows-use", "aws.agents.speech.model", agents("voxtral-4b-tts"),
         agents("voxtral-4b-tts", model_agreements=[{"model": "voxtral-4b-tts", "reference": "contract 2026-17"}])),
    Case("chat-model-hears", "aws.agents.chat", agents(listening="audio"),
         agents(listening="audio", chat={"url": "https://chat.callers.dev/v1", "model": "gpt-audio"}),
         ("qwen3-8b", "text alone")),
    Case("chat-model-hears", "aws.agents.chat",
         agents(listening="audio", chat={"url": "https://chat.callers.dev/v1", "model": "Qwen/Qwen3-8B"}),
         agents(listening="transcript")),
    # Supply
    Case("production-protected", "aws.deletion_protection", {"aws.deletion_protection": False},
         {"aws.deletion_protection": True}, ("can be deleted",)),
    Case("production-protected", "aws.deletion_protection", {"aws.deletion_protection": False},
         {"aws.deletion_protection": False, "environment": "staging"}),
    Case("machine-images-pinned", "aws.vad.machine_image", {"aws.vad.machine_image": ABSENT},
         {"aws.vad.machine_image": ABSENT, "environment": "staging"}, ("newest image of AWS",), present=False),
    Case("machine-images-pinned", "aws.asr.0.machine_image", {"aws.asr.0.machine_image": "/voice/p5"},
         {"aws.asr.0.machine_image": "/voice/p5:1"}, ("/voice/p5",)),
    Case("machine-images-pinned", "aws.asr.0.machine_image", {"aws.asr.0.machine_image": "/voice/p5"},
         {"aws.asr.0.machine_image": "/voice/p5", "aws.asr.1.machine_image": "/voice/p5", "images.telemetry": ABSENT,
          "aws.vad.machine_image": ABSENT}),
    Case("model-revision-pinned", "aws.asr.0", {"aws.asr.0.revision": ABSENT},
         {"aws.asr.0.revision": ABSENT, "environment": "staging"}, ("p5", "Systran/faster-whisper-large-v2")),
    Case("model-revision-pinned", "aws.asr.0", VLLM, {}, ("p5", "openai/whisper-large-v3")),
    Case("images-signed", "image_signing.signature", {"images.gateway": DIGEST}, {}, ("not the key's own",)),
    Case("images-signed", "image_signing.signature", {"image_signing.signature": "MEQC"}, {}, ("not the key's own",)),
    Case("images-signed", "images", {"image_signing": ABSENT}, {"image_signing": ABSENT, "images": ABSENT},
         ("nobody vouches", "gateway")),
    Case("images-signed", "images", {"image_signing": ABSENT}, {"image_signing": ABSENT, "environment": "staging"}),
    Case("vfio-image-baked", "aws.vad.data_path.mode", {**VFIO, "aws.vad.machine_image": "/aws/service/ecs/one:2"},
         VFIO, ("write combining",)),
    Case("images-have-digests", "images", {"images.telemetry": ABSENT}, {}, ("telemetry",)),
    Case("images-have-digests", "images", {"images.gateway": ABSENT}, {}, ("gateway",)),
    Case("images-have-digests", "images", {"aws.asr.0.instance_type": "inf2.48xlarge"},
         {"aws.asr.0.instance_type": "inf2.48xlarge", "images.asr-neuron": DIGEST}, ("asr-neuron",)),
    Case("images-have-digests", "images", VLLM,
         {**VLLM, "images.asr-vllm": DIGEST}, ("asr-vllm",)),
    Case("images-have-digests", "images", {"images": ABSENT}, {}, ("vad-dataplane",), present=False),
    Case("regions-share-no-ids", "aws.other_regions.0", other_region({}),
         other_region({"aws.vad.machine_image": "/voice/vad:3", "aws.asr": ABSENT_IDS}), ("in us-east-1 alone",)),
    Case("regions-share-no-ids", "aws.other_regions.0", other_region({"aws.vad.machine_image": "/voice/vad:3"}),
         other_region({"aws.vad.machine_image": "/voice/vad:3", "aws.asr": ABSENT_IDS}), ("cr-0123456789abcdef0",)),
    Case("accepted-checks-exist", "accepted_checks.0.id", {"accepted_checks.0.id": "load-fits-gpus"},
         {"accepted_checks.0.id": "vm-size-in-location"}, ("`load-fits-gpus` cannot be accepted",)),
    Case("accepted-checks-exist", "accepted_checks.0.id", {"accepted_checks.0.id": "ena-express-hop"},
         {"accepted_checks.0.id": "ena-express-mtu"}, ("ena-express-hop", "did you mean `ena-express-hops`?")),
)  # fmt: skip
