"""Metrics that our images publish, the values of their dimensions, and the endpoints from which telemetry reads them.

Metrics of AWS services are declared in ``voice_blueprint.aws.metrics``.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from voice_blueprint.contract.images import Image
from voice_blueprint.contract.network import Tier

NAMESPACE = "VoiceServe"
STORAGE_RESOLUTION_S = 1
"""Resolution of all metrics from our images; CloudWatch alarms read them with periods of at least 10 s."""

AWS_RESOLUTION_S = 60
"""Resolution of metrics from AWS services and metric filters."""

DEPLOYMENT_DIMENSION = "Deployment"
FLEET_DIMENSION = "Fleet"
REASON_DIMENSION = "Reason"
PHASE_DIMENSION = "Phase"
LOSS_DIMENSION = "Loss"
EVENT_DIMENSION = "Event"
ALLOWANCE_DIMENSION = "Allowance"

LOG_FAILURE_MARKER = "FAILED"
"""First word of the log line that a host writes before it abandons its launch
(userdata/voice_userdata/steps/every_boot.sh)."""

LOG_LEVEL_FIELD = "level"
"""Field of the gateway's log lines, which are JSON objects. Its value is ``error`` if a caller lost data."""

_FLEET_DIMENSIONS = (DEPLOYMENT_DIMENSION, FLEET_DIMENSION)


class DropReason(StrEnum):
    """Reason for a dropped packet; the values of ``REASON_DIMENSION``."""

    RING_FULL = "ring-full"
    NOT_RTP = "not-rtp"
    WRONG_PAYLOAD = "wrong-payload"
    """Payload type or size that the session's record does not specify."""
    UNKNOWN_SESSION = "unknown-session"
    BLOCKED = "blocked"
    ADMISSION_FULL = "admission-full"
    UNAUTHENTICATED = "unauthenticated"
    LATE = "late"
    REPLAY = "replay"
    """Replayed SRTP packet."""
    RATE_LIMITED = "rate-limited"
    """The rate exceeds the limit of the session's sender, or the limit of unknown senders."""
    NO_SOCKET = "no-socket"
    """No AF_XDP socket is bound to the packet's queue."""
    NO_HOST = "no-host"
    """No ASR host has a slot."""
    SHED = "shed"
    """Audio arrives faster than the network and the ASR hosts can process it; silence is dropped first."""


class NetworkAllowance(StrEnum):
    """EC2 network allowances that the ENA driver counts; the values of ``ALLOWANCE_DIMENSION``.

    Source: amzn-drivers, kernel/linux/ena/ena_ethtool.c (``ena_stats_eni_strings``)
    """

    BANDWIDTH_IN = "bw_in_allowance_exceeded"
    BANDWIDTH_OUT = "bw_out_allowance_exceeded"
    PACKETS = "pps_allowance_exceeded"
    CONNECTIONS = "conntrack_allowance_exceeded"
    LINK_LOCAL = "linklocal_allowance_exceeded"
    """Requests to the DNS resolver, the metadata service and the time service."""


class DataPlaneEvent(StrEnum):
    """Events other than drops that the data plane counts; the values of ``EVENT_DIMENSION``."""

    HANDED_OVER = "packets.handed_over"
    """Packets on a receive queue other than that of their session, because the address of the sender has changed."""
    FOLLOWED = "packets.followed"
    """Sessions that moved to the receive queue of their packets."""
    DUPLICATES = "packets.duplicates"
    RESTARTS = "packets.restarts"
    """Senders that restarted within a session."""
    VAD_FALLBACK_FRAMES = "vad.fallback_frames"
    """Frames treated as speech because no classification was available."""
    VAD_TRAPS = "vad.traps"
    """Modules that were stopped for leaving their sandbox."""
    VAD_RUNAWAYS = "vad.runaways"
    """Modules that were stopped because they did not terminate."""
    VAD_SWAPS = "vad.swaps"
    SENT = "ship.sent"
    """Chunks sent to ASR hosts."""
    RESENT = "ship.resent"
    """Chunks sent to another host after the first host failed."""
    WINDOW_SHORT = "ship.window_short"
    """Chunks that were missing from the resend window."""
    SEND_FAILED = "ship.failed"
    STALLS = "ship.stalls"
    """Number of times that the kernel's send buffer was full."""
    MOVES = "ship.moves"
    """Sessions that moved to another ASR host."""
    ADMITTED = "admission.admitted"
    REFUSED = "admission.refused"
    MALFORMED = "admission.malformed"
    """Invalid session records."""
    ADMISSION_UNANSWERED = "admission.unanswered"
    SILENT = "admission.silent"
    EXPIRED = "admission.expired"
    CLOSED = "admission.closed"
    """Sessions that ended because their record was closed or deleted."""
    ENDED = "admission.ended"
    """Sessions that their sender ended (RTCP BYE)."""
    NO_FREE_SLOT = "admission.no_room"
    STATE_WRITTEN = "state.written"
    STATE_MISSING = "state.gone"
    STATE_UNANSWERED = "state.unanswered"
    REGISTRY_REFRESHES = "registry.refreshes"
    REGISTRY_MALFORMED = "registry.malformed"
    REGISTRY_UNANSWERED = "registry.unanswered"
    PRESENCE_UNANSWERED = "presence.unanswered"


class LossReason(StrEnum):
    """Reason for untranscribed speech: values of ``LOSS_DIMENSION``, and names of the engine's counters."""

    REFUSED = "refused"
    """Chunks from sessions without a free slot."""
    LOST_CHUNKS = "lost_chunks"
    """Chunks that never arrived, 100 ms each."""
    ABANDONED = "given_up"
    """Utterances whose final transcript is empty because workers or vLLM failed."""
    PARTIALS_SHED = "partials_shed"
    """Partial transcripts that were skipped because they had waited too long."""


class StartPhase(StrEnum):
    """Phase of an engine's start; the values of ``PHASE_DIMENSION``. All phases together are a cold start."""

    PULL = "pull"
    """Download of the host's images from the registry."""
    WEIGHTS = "weights"
    """Loading from disk to the accelerator; at the first start, download from the model's repository."""
    COMPILE = "compile"
    GRAPHS = "graphs"
    """Capture of CUDA graphs."""
    WARM_UP = "warm-up"
    """The remaining time until the engine responds: imports, memory profiling, first batches."""


START_PHASES_FILE = "/run/voice/cold-start/phases"
"""File with the durations of a host's start, one ``PHASE SECONDS`` per line. Telemetry mounts the file at the same
path."""

CONTROL_SOCKET = "/run/voice/dataplane/control.sock"
"""Control and telemetry socket of the data plane; telemetry mounts its directory at the same path."""

NEURON_TOOLS_DIR = "/opt/aws/neuron"
"""Directory of neuron-monitor in AWS's images for Inf and Trn hosts; telemetry mounts it at the same path."""

LATENCY_BUCKETS_MS = (100, 200, 300, 500, 750, 1000, 1500, 2000, 2500, 3000, 5000, 10_000)
"""Bucket bounds of the latency histograms of gateways and agents. Prometheus can only count values up to a bound, so a
latency objective must be one of the bounds (voice_blueprint/file/model/observability.py)."""

ENGINE_METRICS_PATH = "/metrics.json"
"""Path on the health port where a speech engine reports its queues: one JSON object with values by the names of
``METRICS``."""

MetricUnit = Literal["Percent", "Count", "Milliseconds", "Microseconds", "Seconds", "Bytes/Second", "None"]


@dataclass(frozen=True)
class Metric:
    """A metric that alarms, dashboards and scaling may read.

    Attributes:
        publisher: The image that publishes the metric, as individual values from which percentiles can be calculated;
            ``aws`` for a metric of a service; ``log-filter`` for a metric filter on a log group.
        dimensions: The exact dimension set. A CloudWatch alarm matches the complete set, so an additional dimension
            leaves the alarm without data.
        trend_under_load: Whether the value rises or falls with the load of the fleet; ``None`` if it does not depend on
            the load.
        namespace: CloudWatch namespace.
        is_summable: Whether each value counts the events since the previous value, so that values can be summed.
    """

    name: str
    unit: MetricUnit
    publisher: Image | Literal["aws", "log-filter"]
    meaning: str
    tiers: tuple[Tier, ...]
    trend_under_load: Literal["rises", "falls"] | None = None
    dimensions: tuple[str, ...] = _FLEET_DIMENSIONS
    namespace: str = NAMESPACE
    is_summable: bool = False

    @property
    def prometheus_name(self) -> str:
        """Name in Prometheus, in lower case: the counter ``RxDropped`` is ``voice_rx_dropped_total``."""
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.name).lower()
        return f"voice_{words}{'_total' * self.is_summable}"

    @property
    def is_fleet_wide(self) -> bool:
        """Whether one series describes a whole fleet, as scaling rules require."""
        return self.dimensions == _FLEET_DIMENSIONS

    @property
    def accelerator_kind(self) -> Literal["neuron", "gpu"] | None:
        """Kind of accelerator whose tools report the metric, or ``None`` if it does not concern an accelerator."""
        return "neuron" if self.name.startswith("Neuron") else "gpu" if self.name.startswith("Gpu") else None

    @property
    def resolution_s(self) -> int:
        """Seconds between stored values; shorter periods show no more detail."""
        return STORAGE_RESOLUTION_S if isinstance(self.publisher, Image) else AWS_RESOLUTION_S


_VAD_TIERS = (Tier.VAD,)
_ASR_TIERS = (Tier.ASR,)
_GATEWAY_TIERS = (Tier.GATEWAY,)
_AGENT_TIERS = (Tier.AGENT,)
_TELEMETRY = Image.TELEMETRY

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("RxRingOccupancy", "Percent", _TELEMETRY,
               "Fullest AF_XDP receive ring of a host, percent of its descriptors. The ENA poll-mode driver "
               "has no receive-queue count (-ENOTSUP, later a constant 0), so the ring is what is read.",
               _VAD_TIERS, "rises"),
        Metric("RxRingSustained", "Percent", _TELEMETRY,
               "Least of the last ten seconds' peaks of the fullest receive ring: load that lasts. A burst of one "
               "second, which new hosts could not relieve, is not seen in it.", _VAD_TIERS, "rises"),
        Metric("RxDropped", "Count", _TELEMETRY, "Packets that the data plane dropped, by reason.", _VAD_TIERS,
               is_summable=True, dimensions=(*_FLEET_DIMENSIONS, REASON_DIMENSION)),
        Metric("DataPlaneEvents", "Count", _TELEMETRY, "What else the data plane counts, by event.", _VAD_TIERS,
               is_summable=True, dimensions=(*_FLEET_DIMENSIONS, EVENT_DIMENSION)),
        Metric("AllowanceExceeded", "Count", _TELEMETRY,
               "Packets that EC2 queued or dropped since a host exceeded what its type is allowed, by allowance.",
               _VAD_TIERS,
               is_summable=True, dimensions=(*_FLEET_DIMENSIONS, ALLOWANCE_DIMENSION)),
        Metric("VadStopped", "Count", _TELEMETRY,
               "Receive queues of a host whose VAD module was stopped: all that they get is taken for speech.",
               _VAD_TIERS),
        Metric("SilenceDropped", "Percent", _TELEMETRY, "Share of audio frames that the VAD dropped.", _VAD_TIERS),
        Metric("VadSessions", "Count", _TELEMETRY, "Live sessions on the hosts of the VAD tier.", _VAD_TIERS, "rises"),
        Metric("NeuronHeadroom", "Percent", _TELEMETRY,
               "100 minus the mean NeuronCore utilisation of a host (neuron-monitor).", _ASR_TIERS, "falls"),
        Metric("NeuronUtilization", "Percent", _TELEMETRY, "Mean NeuronCore utilisation of a host.", _ASR_TIERS,
               "rises"),
        Metric("GpuBusy", "Percent", _TELEMETRY,
               "DCGM graphics-engine activity. A single H100 runs no NCCL, so there is no NCCL figure.",
               _ASR_TIERS, "rises"),
        Metric("GpuLinkTraffic", "Bytes/Second", _TELEMETRY,
               "NVLink traffic of a host with several GPUs, both directions.", _ASR_TIERS),
        Metric("SlotsTaken", "Percent", _TELEMETRY,
               "Share of its places that a host has taken; at 100 it refuses more.", (*_VAD_TIERS, *_ASR_TIERS),
               "rises"),
        Metric("FreeSlots", "Count", _TELEMETRY, "Sessions that a host can still take; each publishes its own.",
               _ASR_TIERS, "falls"),
        Metric("EncoderQueueDepth", "Count", _TELEMETRY, "Utterances waiting for prefill.", _ASR_TIERS, "rises"),
        Metric("DecoderQueueDepth", "Count", _TELEMETRY, "Utterances waiting for decode.", _ASR_TIERS, "rises"),
        Metric("RealTimeFactor", "None", _TELEMETRY,
               "Processing time of all work over audio time, partial transcripts included.",
               _ASR_TIERS, "rises"),
        Metric("EngineStuck", "None", _TELEMETRY,
               "1 while a host's engine, or the vLLM beside it, has work and finishes none of it.", _ASR_TIERS),
        Metric("SpeechLost", "Count", _TELEMETRY, "Speech that an engine did not transcribe, by kind of loss.",
               _ASR_TIERS, is_summable=True, dimensions=(*_FLEET_DIMENSIONS, LOSS_DIMENSION)),
        Metric("ColdStart", "Seconds", _TELEMETRY,
               "What a host's start took, by phase; published once, when its engine has become ready.", _ASR_TIERS,
               dimensions=(*_FLEET_DIMENSIONS, PHASE_DIMENSION)),
        Metric("OpenSockets", "Count", Image.GATEWAY, "WebSocket and event-stream connections of a task.",
               _GATEWAY_TIERS, "rises"),
        Metric("SessionsCreated", "Count", Image.GATEWAY, "Sessions opened.", _GATEWAY_TIERS, is_summable=True),
        Metric("SessionsRefused", "Count", Image.GATEWAY, "Sessions refused because of a lack of capacity.",
               _GATEWAY_TIERS, is_summable=True),
        Metric("AudioSeconds", "Seconds", Image.GATEWAY, "Audio of sessions and files that have ended.", _GATEWAY_TIERS,
               is_summable=True),
        Metric("SpeechSeconds", "Seconds", Image.GATEWAY, "Speech in that audio.", _GATEWAY_TIERS, is_summable=True),
        Metric("TranscribedCharacters", "Count", Image.GATEWAY, "Characters of the final transcripts of it.",
               _GATEWAY_TIERS, is_summable=True),
        Metric("TimeToFirstText", "Milliseconds", Image.GATEWAY,
               "Begin of a call's first speech to its first words.", _GATEWAY_TIERS),
        Metric("TimeToFinal", "Milliseconds", Image.GATEWAY,
               "End of a call's first speech to its final transcript.", _GATEWAY_TIERS),
        Metric("FrontDoorAnswers", "None", Image.GATEWAY,
               "1 where each public name answered a gateway's own request over verified TLS, 0 where one did not.",
               _GATEWAY_TIERS),
        Metric("SyntheticCallSucceeds", "None", Image.GATEWAY,
               "1 where a gateway's own call over the public name was transcribed, 0 where it was not.",
               _GATEWAY_TIERS),
        Metric("CertificateDays", "None", Image.GATEWAY, "Days until a public name's certificate expires.",
               _GATEWAY_TIERS),
        Metric("Conversations", "Count", Image.AGENT, "Conversations of a task; a full one refuses more.", _AGENT_TIERS,
               "rises"),
        Metric("ConversationsRefused", "Count", Image.AGENT, "Callers that an agent refused.", _AGENT_TIERS),
        Metric("TurnLatency", "Milliseconds", Image.AGENT,
               "End of a caller's speech to the first sound of the answer.", _AGENT_TIERS),
        Metric("BargeInLatency", "Milliseconds", Image.AGENT,
               "Onset of speech into an answer to the message that silences it.", _AGENT_TIERS),
    )
}  # fmt: skip
