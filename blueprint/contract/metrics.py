"""The metrics that our images publish, with the words of their dimensions, and where telemetry reads them.

The metrics that AWS itself publishes are declared in ``blueprint.aws.metrics``.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from blueprint.contract.images import Image
from blueprint.contract.network import Tier

NAMESPACE = "VoiceServe"
STORAGE_RESOLUTION_S = 1
"""Every metric of ours is stored at one second; CloudWatch alarms read it at 10 s or more."""

AWS_RESOLUTION_S = 60
"""AWS' services publish once a minute, and so do metric filters."""

DEPLOYMENT_DIMENSION = "Deployment"
FLEET_DIMENSION = "Fleet"
REASON_DIMENSION = "Reason"
PHASE_DIMENSION = "Phase"
LOSS_DIMENSION = "Loss"
EVENT_DIMENSION = "Event"
ALLOWANCE_DIMENSION = "Allowance"

LOG_FAILURE_MARKER = "FAILED"
"""First word of what a host writes to its log before it abandons its launch (userdata/steps/every_boot.sh)."""

LOG_LEVEL_FIELD = "level"
"""The gateway writes one JSON object a line; this field is ``error`` where a caller lost something."""

_OF_FLEET = (DEPLOYMENT_DIMENSION, FLEET_DIMENSION)


class DropReason(StrEnum):
    """Why the data plane dropped a packet; the values of ``REASON_DIMENSION``."""

    RING_FULL = "ring-full"
    NOT_RTP = "not-rtp"
    WRONG_PAYLOAD = "wrong-payload"
    """A payload type, or a size, that the session's record does not name."""
    UNKNOWN_SESSION = "unknown-session"
    BLOCKED = "blocked"
    ADMISSION_FULL = "admission-full"
    UNAUTHENTICATED = "unauthenticated"
    LATE = "late"
    REPLAY = "replay"
    """SRTP that has come before."""
    RATE_LIMITED = "rate-limited"
    """More than a session's sender sends, or than others may in its name."""
    NO_SOCKET = "no-socket"
    """No AF_XDP socket is bound to the packet's queue."""
    NO_HOST = "no-host"
    """No ASR host has a slot."""
    SHED = "shed"
    """The ASR hosts or the network take less than comes; silence goes first."""


class Allowance(StrEnum):
    """What EC2 grants an instance type, by the ENA driver's counters of what went beyond; of ``ALLOWANCE_DIMENSION``.

    Source: amzn-drivers, kernel/linux/ena/ena_ethtool.c (``ena_stats_eni_strings``)
    """

    BANDWIDTH_IN = "bw_in_allowance_exceeded"
    BANDWIDTH_OUT = "bw_out_allowance_exceeded"
    PACKETS = "pps_allowance_exceeded"
    CONNECTIONS = "conntrack_allowance_exceeded"
    LINK_LOCAL = "linklocal_allowance_exceeded"
    """Requests to the DNS resolver, the metadata service and the time service."""


class DataPlaneEvent(StrEnum):
    """What the data plane counts beside drops, by part of the program; the values of ``EVENT_DIMENSION``."""

    HANDED_OVER = "packets.handed_over"
    """Packets that reached another receive queue than their session's: its sender's address has changed."""
    DUPLICATES = "packets.duplicates"
    RESTARTS = "packets.restarts"
    """Senders that have started over in the middle of a session."""
    VAD_FALLBACK_FRAMES = "vad.fallback_frames"
    """Frames taken for speech because nobody could judge them."""
    VAD_TRAPS = "vad.traps"
    """Modules that were stopped at the border of their sandbox."""
    VAD_RUNAWAYS = "vad.runaways"
    """Modules that were stopped since they did not come to an end."""
    VAD_SWAPS = "vad.swaps"
    SENT = "ship.sent"
    """Chunks to ASR hosts."""
    RESENT = "ship.resent"
    """Chunks that went to another host, since the first was lost."""
    WINDOW_SHORT = "ship.window_short"
    """Chunks that the window of what is kept was too short for."""
    SEND_FAILED = "ship.failed"
    STALLS = "ship.stalls"
    """Times that the kernel's send buffer was full."""
    MOVES = "ship.moves"
    """Sessions that had to change their ASR host."""
    ADMITTED = "admission.admitted"
    REFUSED = "admission.refused"
    MALFORMED = "admission.malformed"
    """Session records that make no sense."""
    ADMISSION_UNANSWERED = "admission.unanswered"
    SILENT = "admission.silent"
    EXPIRED = "admission.expired"
    CLOSED = "admission.closed"
    """Sessions that ended since their record was closed or deleted."""
    ENDED = "admission.ended"
    """Sessions whose sender said goodbye (RTCP BYE)."""
    NO_ROOM = "admission.no_room"
    STATE_WRITTEN = "state.written"
    STATE_GONE = "state.gone"
    STATE_UNANSWERED = "state.unanswered"
    REGISTRY_REFRESHES = "registry.refreshes"
    REGISTRY_MALFORMED = "registry.malformed"
    REGISTRY_UNANSWERED = "registry.unanswered"
    PRESENCE_UNANSWERED = "presence.unanswered"


class Loss(StrEnum):
    """What a speech engine does not transcribe; the values of ``LOSS_DIMENSION``, and how its counters are called."""

    REFUSED = "refused"
    """Chunks of sessions that it has no slot for."""
    LOST_CHUNKS = "lost_chunks"
    """Chunks that never came, 100 ms each."""
    GIVEN_UP = "given_up"
    """Utterances with an empty final, because workers or vLLM failed on them."""
    PARTIALS_SHED = "partials_shed"
    """Partial transcripts that were left out, because they had waited for too long."""


class StartPhase(StrEnum):
    """A part of an engine's start; the values of ``PHASE_DIMENSION``. Together they are what a cold start takes."""

    PULL = "pull"
    """The images of the host, from the registry."""
    WEIGHTS = "weights"
    """From disk to the accelerator; the first time from the model's repository."""
    COMPILE = "compile"
    GRAPHS = "graphs"
    """Capture of CUDA graphs."""
    WARM_UP = "warm-up"
    """The rest until the engine answers: imports, memory profiling, first batches."""


START_PHASES_FILE = "/run/voice/cold-start/phases"
"""Where a host writes what its start took, one ``PHASE SECONDS`` a line; telemetry has it under the same path."""

CONTROL_SOCKET = "/run/voice/dataplane/control.sock"
"""The data plane's control and telemetry socket; telemetry has its directory under the same path."""

NEURON_TOOLS_DIR = "/opt/aws/neuron"
"""Where AWS' images for Inf and Trn hosts have neuron-monitor; telemetry has it under the same path."""

ENGINE_METRICS_PATH = "/metrics.json"
"""Where a speech engine tells its queues on its health port: one JSON object, values by the names of ``METRICS``."""

Unit = Literal["Percent", "Count", "Milliseconds", "Microseconds", "Seconds", "Bytes/Second", "None"]


@dataclass(frozen=True)
class Metric:
    """A metric that alarms, dashboards and scaling may read.

    Attributes:
        publisher: The image that publishes it, as single values so that percentiles can be told; ``aws`` for a
            service's own; ``log-filter`` for what a metric filter counts in a log group.
        dimensions: The exact dimension set. CloudWatch alarms match the whole set, so a publisher that adds
            one starves the alarm.
        load: Whether the value rises or falls as the fleet fills up; ``None`` where it says nothing of load.
        namespace: CloudWatch namespace.
        adds: Whether each value is what has happened since the one before, so that their sum says something.
    """

    name: str
    unit: Unit
    publisher: Image | Literal["aws", "log-filter"]
    meaning: str
    tiers: tuple[Tier, ...]
    load: Literal["rises", "falls"] | None = None
    dimensions: tuple[str, ...] = _OF_FLEET
    namespace: str = NAMESPACE
    adds: bool = False

    @property
    def series(self) -> str:
        """Its name in Prometheus, which knows no capitals: ``RxDropped``, which adds, is ``voice_rx_dropped_total``."""
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.name).lower()
        return f"voice_{words}{'_total' * self.adds}"

    @property
    def is_of_whole_fleet(self) -> bool:
        """Whether one series tells the state of a fleet, as scaling rules need it."""
        return self.dimensions == _OF_FLEET

    @property
    def measured_on(self) -> Literal["neuron", "gpu"] | None:
        """The kind of accelerator whose tools tell it; ``None`` where no accelerator is asked."""
        return "neuron" if self.name.startswith("Neuron") else "gpu" if self.name.startswith("Gpu") else None

    @property
    def resolution_s(self) -> int:
        """Seconds between stored values; a shorter period shows nothing more."""
        return STORAGE_RESOLUTION_S if isinstance(self.publisher, Image) else AWS_RESOLUTION_S


_VAD = (Tier.VAD,)
_ASR = (Tier.ASR,)
_GATEWAY = (Tier.GATEWAY,)
_AGENT = (Tier.AGENT,)
_TELEMETRY = Image.TELEMETRY

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("RxRingOccupancy", "Percent", _TELEMETRY,
               "Fullest AF_XDP receive ring of a host, percent of its descriptors. The ENA poll-mode driver "
               "has no receive-queue count (-ENOTSUP, later a constant 0), so the ring is what is read.",
               _VAD, "rises"),
        Metric("RxRingSustained", "Percent", _TELEMETRY,
               "Least of the last ten seconds' peaks of the fullest receive ring: load that lasts. A burst of one "
               "second, which new hosts could not relieve, is not seen in it.", _VAD, "rises"),
        Metric("RxDropped", "Count", _TELEMETRY, "Packets that the data plane dropped, by reason.", _VAD,
               adds=True, dimensions=(*_OF_FLEET, REASON_DIMENSION)),
        Metric("DataPlaneEvents", "Count", _TELEMETRY, "What else the data plane counts, by event.", _VAD,
               adds=True, dimensions=(*_OF_FLEET, EVENT_DIMENSION)),
        Metric("AllowanceExceeded", "Count", _TELEMETRY,
               "Packets that EC2 queued or dropped since a host exceeded what its type is allowed, by allowance.", _VAD,
               adds=True, dimensions=(*_OF_FLEET, ALLOWANCE_DIMENSION)),
        Metric("VadStopped", "Count", _TELEMETRY,
               "Receive queues of a host whose VAD module was stopped: all that they get is taken for speech.", _VAD),
        Metric("SilenceDropped", "Percent", _TELEMETRY, "Share of audio frames that the VAD dropped.", _VAD),
        Metric("VadSessions", "Count", _TELEMETRY, "Live sessions on the hosts of the VAD tier.", _VAD, "rises"),
        Metric("NeuronHeadroom", "Percent", _TELEMETRY,
               "100 minus the mean NeuronCore utilisation of a host (neuron-monitor).", _ASR, "falls"),
        Metric("NeuronUtilization", "Percent", _TELEMETRY, "Mean NeuronCore utilisation of a host.", _ASR,
               "rises"),
        Metric("GpuBusy", "Percent", _TELEMETRY,
               "DCGM graphics-engine activity. A single H100 runs no NCCL, so there is no NCCL figure.",
               _ASR, "rises"),
        Metric("GpuLinkTraffic", "Bytes/Second", _TELEMETRY,
               "NVLink traffic of a host with several GPUs, both directions.", _ASR),
        Metric("SlotsTaken", "Percent", _TELEMETRY,
               "Share of its places that a host has taken; at 100 it refuses more.", (*_VAD, *_ASR), "rises"),
        Metric("FreeSlots", "Count", _TELEMETRY, "Sessions that a host can still take; each publishes its own.",
               _ASR, "falls"),
        Metric("EncoderQueueDepth", "Count", _TELEMETRY, "Utterances waiting for prefill.", _ASR, "rises"),
        Metric("DecoderQueueDepth", "Count", _TELEMETRY, "Utterances waiting for decode.", _ASR, "rises"),
        Metric("RealTimeFactor", "None", _TELEMETRY,
               "Processing time of all work over audio time, partial transcripts included.",
               _ASR, "rises"),
        Metric("SpeechLost", "Count", _TELEMETRY, "What an engine did not transcribe, by loss.", _ASR,
               adds=True, dimensions=(*_OF_FLEET, LOSS_DIMENSION)),
        Metric("ColdStart", "Seconds", _TELEMETRY,
               "What a host's start took, by phase; published once, when its engine has become ready.", _ASR,
               dimensions=(*_OF_FLEET, PHASE_DIMENSION)),
        Metric("OpenSockets", "Count", Image.GATEWAY, "WebSocket and event-stream connections of a task.",
               _GATEWAY, "rises"),
        Metric("SessionsCreated", "Count", Image.GATEWAY, "Sessions opened.", _GATEWAY, adds=True),
        Metric("SessionsRefused", "Count", Image.GATEWAY, "Sessions refused for want of capacity.", _GATEWAY,
               adds=True),
        Metric("TimeToFirstText", "Milliseconds", Image.GATEWAY,
               "Begin of a call's first speech to its first words.", _GATEWAY),
        Metric("TimeToFinal", "Milliseconds", Image.GATEWAY,
               "End of a call's first speech to its final transcript.", _GATEWAY),
        Metric("Conversations", "Count", Image.AGENT, "Conversations of a task; a full one refuses more.", _AGENT,
               "rises"),
        Metric("ConversationsRefused", "Count", Image.AGENT, "Callers that an agent did not let in.", _AGENT),
        Metric("TurnLatency", "Milliseconds", Image.AGENT,
               "End of a caller's speech to the first sound of the answer.", _AGENT),
        Metric("BargeInLatency", "Milliseconds", Image.AGENT,
               "Onset of speech into an answer to the message that silences it.", _AGENT),
    )
}  # fmt: skip
