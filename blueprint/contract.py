"""The contract between what provisions and what runs: names that both sides must spell alike.

User data, task definitions, security groups, alarms and dashboards are rendered from these tables, and the
programs in ``images/`` read the environment that they describe. Nothing here depends on a cloud; the metrics that
AWS itself publishes are declared beside it, in ``blueprint.aws_metrics``.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag, StrEnum
from typing import Literal

# --- Images -----------------------------------------------------------------------------------------------


class Image(StrEnum):
    """A container image of this project; the value is its folder under ``images/`` and its repository."""

    GATEWAY = "gateway"
    VAD_DATAPLANE = "vad-dataplane"
    WHISPER_ENGINE = "whisper-engine"
    ASR_NEURON = "asr-neuron"
    ASR_VLLM = "asr-vllm"
    TELEMETRY = "telemetry"
    TTS_OMNI = "tts-omni"
    LMCACHE = "lmcache"
    ROUTER = "router"
    PD_ROUTER = "pd-router"
    """Leads a cell's callers to prefill and decode."""
    DEVICE_PLUGIN = "device-plugin"
    DCGM_EXPORTER = "dcgm-exporter"


# --- Ports and who may reach them -------------------------------------------------------------------------


@dataclass(frozen=True)
class Port:
    """A listening port."""

    number: int
    protocol: Literal["tcp", "udp"]
    purpose: str


PUBLIC_TLS = Port(443, "tcp", "TLS: WebSocket audio from browsers")
AWS_API = Port(443, "tcp", "HTTPS to AWS APIs, through VPC endpoints or a NAT gateway")
RTP = Port(5004, "udp", "RTP or SRTP audio, L16 16 kHz mono, 20 ms a packet (RFC 3550, RFC 3711)")
CHUNK = Port(5006, "udp", "AudioChunk datagrams from the VAD tier")
GATEWAY_HTTP = Port(8080, "tcp", "Session API and server-sent events, for API Gateway only, which lets callers in")
GATEWAY_MEDIA = Port(8083, "tcp", "WebSocket audio, let in by session token only; the session API is not here")
VAD_HEALTH = Port(8081, "tcp", "Answers only while packets can flow")
VALKEY = Port(6379, "tcp", "Valkey over TLS")
ENGINE_HEALTH = Port(8082, "tcp", "Whisper engine's readiness, on the host's loopback only")
PROMETHEUS = Port(9400, "tcp", "Telemetry in Prometheus format, on the host's loopback only")
VLLM = Port(8000, "tcp", "vLLM's OpenAI-compatible API, on the host's loopback only")


class Tier(StrEnum):
    """A group of network interfaces that share a security group."""

    INTERNET = "internet"
    PUBLIC_LOAD_BALANCER = "public-load-balancer"
    API_LOAD_BALANCER = "api-load-balancer"
    GATEWAY = "gateway"
    VAD = "vad"
    ASR = "asr"
    STATE = "state"
    AWS = "aws"


@dataclass(frozen=True)
class Flow:
    """Traffic that the network allows; whatever is not listed in ``FLOWS`` is refused."""

    source: Tier
    destination: Tier
    port: Port


FLOWS: tuple[Flow, ...] = (
    Flow(Tier.INTERNET, Tier.PUBLIC_LOAD_BALANCER, PUBLIC_TLS),
    Flow(Tier.INTERNET, Tier.PUBLIC_LOAD_BALANCER, RTP),
    Flow(Tier.PUBLIC_LOAD_BALANCER, Tier.GATEWAY, GATEWAY_MEDIA),
    Flow(Tier.PUBLIC_LOAD_BALANCER, Tier.VAD, RTP),
    Flow(Tier.PUBLIC_LOAD_BALANCER, Tier.VAD, VAD_HEALTH),
    Flow(Tier.API_LOAD_BALANCER, Tier.GATEWAY, GATEWAY_HTTP),
    Flow(Tier.GATEWAY, Tier.VAD, RTP),
    Flow(Tier.VAD, Tier.ASR, CHUNK),
    Flow(Tier.GATEWAY, Tier.STATE, VALKEY),
    Flow(Tier.VAD, Tier.STATE, VALKEY),
    Flow(Tier.ASR, Tier.STATE, VALKEY),
    Flow(Tier.GATEWAY, Tier.AWS, AWS_API),
    Flow(Tier.VAD, Tier.AWS, AWS_API),
    Flow(Tier.ASR, Tier.AWS, AWS_API),
)

XDP_MTU = 3498
"""Largest MTU with native XDP on ENA. A frame must fit a 4 KiB page beside its headroom and tail room; amzn-drivers
says 3502, users measured 3498 as the largest that attaches (https://github.com/amzn/amzn-drivers/issues/221)."""

ENA_EXPRESS_MTU = 8900
"""Largest MTU with ENA Express, whose header has to fit into a jumbo frame beside the packet.
https://github.com/amzn/amzn-ec2-ena-utilities/tree/main/ena-express"""

# --- Metrics ----------------------------------------------------------------------------------------------

NAMESPACE = "VoiceServe"
STORAGE_RESOLUTION_S = 1
"""Every metric of ours is stored at one second; CloudWatch alarms read it at 10 s or more."""

AWS_RESOLUTION_S = 60
"""AWS' services publish once a minute, and so do metric filters."""

DEPLOYMENT_DIMENSION = "Deployment"
FLEET_DIMENSION = "Fleet"
REASON_DIMENSION = "Reason"
PHASE_DIMENSION = "Phase"

LOG_FAILURE_MARKER = "FAILED"
"""First word of what a host writes to its log before it abandons its launch (userdata/steps/every_boot.sh)."""

LOG_LEVEL_FIELD = "level"
"""The gateway writes one JSON object a line; this field is ``error`` where a caller lost something."""

_OF_FLEET = (DEPLOYMENT_DIMENSION, FLEET_DIMENSION)


class DropReason(StrEnum):
    """Why the data plane dropped a packet; the values of ``REASON_DIMENSION``."""

    RING_FULL = "ring-full"
    NOT_RTP = "not-rtp"
    UNKNOWN_SESSION = "unknown-session"
    BLOCKED = "blocked"
    ADMISSION_FULL = "admission-full"
    UNAUTHENTICATED = "unauthenticated"
    LATE = "late"
    REPLAY = "replay"
    """SRTP that has come before."""
    RATE_LIMITED = "rate-limited"
    """More than one session sends."""
    NO_SOCKET = "no-socket"
    """No AF_XDP socket is bound to the packet's queue."""
    NO_HOST = "no-host"
    """No ASR host has a slot."""
    SHED = "shed"
    """The ASR hosts or the network take less than comes; silence goes first."""


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
    """

    name: str
    unit: Unit
    publisher: Image | Literal["aws", "log-filter"]
    meaning: str
    tiers: tuple[Tier, ...]
    load: Literal["rises", "falls"] | None = None
    dimensions: tuple[str, ...] = _OF_FLEET
    namespace: str = NAMESPACE

    @property
    def is_of_whole_fleet(self) -> bool:
        """Whether one series tells the state of a fleet, as scaling rules need it."""
        return self.dimensions == _OF_FLEET

    @property
    def resolution_s(self) -> int:
        """Seconds between stored values; a shorter period shows nothing more."""
        return STORAGE_RESOLUTION_S if isinstance(self.publisher, Image) else AWS_RESOLUTION_S


_VAD = (Tier.VAD,)
_ASR = (Tier.ASR,)
_GATEWAY = (Tier.GATEWAY,)
_TELEMETRY = Image.TELEMETRY

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("RxRingOccupancy", "Percent", _TELEMETRY,
               "Fullest AF_XDP receive ring of a host, percent of its descriptors. The ENA poll-mode driver "
               "has no receive-queue count (-ENOTSUP, later a constant 0), so the ring is what is read.",
               _VAD, "rises"),
        Metric("RxDropped", "Count", _TELEMETRY, "Packets that the data plane dropped, by reason.", _VAD,
               dimensions=(*_OF_FLEET, REASON_DIMENSION)),
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
        Metric("FreeSlots", "Count", _TELEMETRY, "Sessions that a host can still take; each publishes its own.",
               _ASR, "falls"),
        Metric("EncoderQueueDepth", "Count", _TELEMETRY, "Utterances waiting for prefill.", _ASR, "rises"),
        Metric("DecoderQueueDepth", "Count", _TELEMETRY, "Utterances waiting for decode.", _ASR, "rises"),
        Metric("RealTimeFactor", "None", _TELEMETRY, "Processing time over audio time; below 1 keeps up.",
               _ASR, "rises"),
        Metric("ColdStart", "Seconds", _TELEMETRY,
               "What a host's start took, by phase; published once, when its engine has become ready.", _ASR,
               dimensions=(*_OF_FLEET, PHASE_DIMENSION)),
        Metric("OpenSockets", "Count", Image.GATEWAY, "WebSocket and event-stream connections of a task.",
               _GATEWAY, "rises"),
        Metric("SessionsCreated", "Count", Image.GATEWAY, "Sessions opened.", _GATEWAY),
        Metric("SessionsRefused", "Count", Image.GATEWAY, "Sessions refused for want of capacity.", _GATEWAY),
        Metric("FirstTranscriptLatency", "Milliseconds", Image.GATEWAY,
               "End of the first speech to its first transcript event.", _GATEWAY),
    )
}  # fmt: skip

# --- Environment of the containers ------------------------------------------------------------------------


@dataclass(frozen=True)
class Variable:
    """An environment variable that a launcher sets and an image reads."""

    name: str
    meaning: str


DEPLOYMENT = Variable("VOICE_DEPLOYMENT", "Name of the deployment; dimension of every metric")
FLEET = Variable("VOICE_FLEET", "Name of the fleet; dimension of every metric")
HOST = Variable("VOICE_HOST", "Instance or task id; key of the host registry")
HOST_ADDRESS = Variable("VOICE_HOST_ADDRESS", "Private IPv4 address that other tiers reach the host at")
REGION = Variable("VOICE_REGION", "Region of the CloudWatch endpoint")
VALKEY_HOST = Variable("VOICE_VALKEY_HOST", "Primary endpoint of the state store")
VALKEY_PORT = Variable("VOICE_VALKEY_PORT", "Its port")
VALKEY_USER = Variable("VOICE_VALKEY_USER", "The tier's own user of the state store")
VALKEY_PASSWORD_FILE = Variable("VOICE_VALKEY_PASSWORD_FILE", "File that holds that user's password")
VALKEY_PASSWORD = Variable("VOICE_VALKEY_PASSWORD", "That user's password, where the launcher injects secrets")
RTP_PORT = Variable("VOICE_RTP_PORT", "UDP port of RTP and SRTP audio")
CHUNK_PORT = Variable("VOICE_CHUNK_PORT", "UDP port of AudioChunk datagrams")
HEALTH_PORT = Variable("VOICE_HEALTH_PORT", "TCP port that answers while the program can take load")
HTTP_PORT = Variable("VOICE_HTTP_PORT", "TCP port of the gateway's session API")
MEDIA_PORT = Variable("VOICE_MEDIA_PORT", "TCP port of the gateway's WebSocket audio")
PROMETHEUS_PORT = Variable("VOICE_PROMETHEUS_PORT", "Loopback port of the Prometheus endpoint")
DATA_PATH = Variable("VOICE_DATA_PATH", "af_xdp, or vfio on a secondary interface")
INTERFACE = Variable("VOICE_INTERFACE", "Network interface that receives audio")
RX_QUEUES = Variable("VOICE_RX_QUEUES", "Receive queues that are polled, one core each")
RX_RING_SIZE = Variable("VOICE_RX_RING_SIZE", "Descriptors in each receive ring")
HUGE_PAGE_SIZE_MIB = Variable("VOICE_HUGE_PAGE_SIZE_MIB", "Size of one huge page, MiB")
HOST_KIND = Variable("VOICE_HOST_KIND", "silicon or gpu: placement fills silicon first")
ENGINE = Variable("VOICE_ENGINE", "whisper, or vllm on the host's loopback")
SESSIONS = Variable("VOICE_SESSIONS", "Most sessions of an ASR host at a time; a full one refuses")
ENCODERS = Variable("VOICE_ENCODERS", "Worker processes for Whisper's prefill")
DECODERS = Variable("VOICE_DECODERS", "Worker processes for Whisper's decode")
CHUNK_KIND = Variable("VOICE_CHUNK_KIND", "log-mel, or pcm16 for fleets whose engine makes features of its own")
CACHE_DIR = Variable("VOICE_CACHE_DIR", "Directory for compile caches and weights; local NVMe where it exists")
TELEMETRY_SOURCES = Variable("VOICE_TELEMETRY_SOURCES", "Comma-separated: dataplane, neuron, gpu, engine")
TOKEN_KEY = Variable("VOICE_TOKEN_KEY", "Key that signs session tokens (injected secret)")
TOKEN_TTL_S = Variable("VOICE_TOKEN_TTL_S", "Lifetime of a session token, seconds")
JWT_ISSUER = Variable(
    "VOICE_JWT_ISSUER", "OpenID Connect issuer of callers' tokens; empty: API Gateway lets callers in"
)
JWT_AUDIENCE = Variable("VOICE_JWT_AUDIENCE", "Audience that those tokens must name; empty without an issuer")
MEDIA_HOST = Variable("VOICE_MEDIA_HOST", "Public host name of the TLS and UDP listeners")
IDLE_TIMEOUT_S = Variable("VOICE_IDLE_TIMEOUT_S", "Longest silence on a socket before it is closed, seconds")
DRAIN_TIMEOUT_S = Variable("VOICE_DRAIN_TIMEOUT_S", "Time that a stopping process may finish sessions in, seconds")

_IDENTITY = (DEPLOYMENT, FLEET, HOST, HOST_ADDRESS, REGION)
_STATE = (VALKEY_HOST, VALKEY_PORT, VALKEY_USER, VALKEY_PASSWORD_FILE)
_WHISPER = (
    *_IDENTITY, *_STATE, CHUNK_PORT, HEALTH_PORT, HOST_KIND, ENGINE, SESSIONS, ENCODERS, DECODERS, CACHE_DIR,
    DRAIN_TIMEOUT_S,
)  # fmt: skip

ENVIRONMENT: dict[Image, tuple[Variable, ...]] = {
    Image.VAD_DATAPLANE: (
        *_IDENTITY, *_STATE, DATA_PATH, INTERFACE, RX_QUEUES, RX_RING_SIZE, HUGE_PAGE_SIZE_MIB, RTP_PORT,
        CHUNK_PORT, CHUNK_KIND, HEALTH_PORT, DRAIN_TIMEOUT_S,
    ),
    Image.WHISPER_ENGINE: _WHISPER,
    Image.ASR_NEURON: _WHISPER,
    Image.ASR_VLLM: (),
    Image.TTS_OMNI: (),
    Image.LMCACHE: (),
    Image.ROUTER: (),
    Image.PD_ROUTER: (),
    Image.DEVICE_PLUGIN: (),
    Image.DCGM_EXPORTER: (),
    Image.TELEMETRY: (*_IDENTITY, *_STATE, TELEMETRY_SOURCES, PROMETHEUS_PORT),
    Image.GATEWAY: (
        DEPLOYMENT, FLEET, REGION, VALKEY_HOST, VALKEY_PORT, VALKEY_USER, VALKEY_PASSWORD, HTTP_PORT,
        MEDIA_PORT, RTP_PORT, TOKEN_KEY, TOKEN_TTL_S, JWT_ISSUER, JWT_AUDIENCE, MEDIA_HOST, IDLE_TIMEOUT_S,
        DRAIN_TIMEOUT_S,
    ),
}  # fmt: skip

# --- Gateway ----------------------------------------------------------------------------------------------

HEALTH_PATH = "/healthz"
"""Both ports of the gateway answer 200 here while the task can take callers."""

HEALTH_COMMAND = "/usr/local/bin/healthcheck"
"""Program of the gateway image that exits 0 while ``HEALTH_PATH`` answers 200; the image needs no shell."""

TOKEN_HEADER = "X-Voice-Token"  # noqa: S105  the name of a header
"""Carries the session token to the session API; ``Authorization`` belongs to the caller's own credentials."""

CALLER_HEADER = "X-Voice-Caller"
"""Who opens a session, as API Gateway tells it: it overwrites what a caller sends. Unread where callers bring a JWT."""

# --- State store ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StateAccess:
    """What one tier's user may do in the state store, as a Valkey ACL string."""

    tier: Tier
    acl: str


_SAFE = "-@all +@connection +@read +@write +@stream +@hash +@keyspace +@transaction -@dangerous"
STATE_USERS: tuple[StateAccess, ...] = (
    StateAccess(Tier.GATEWAY, f"on resetkeys ~session:* %R~transcript:* %R~host:* resetchannels {_SAFE}"),
    StateAccess(Tier.VAD, f"on resetkeys ~session:* ~host:* resetchannels {_SAFE}"),
    StateAccess(Tier.ASR, f"on resetkeys ~session:* ~transcript:* ~audio:* ~host:* resetchannels {_SAFE}"),
)
"""Who may touch which of the keys below."""

SESSION_KEY = "session:{ssrc}"
"""Hash of one session, its SSRC in decimal; ``SessionField`` names what is in it."""

SESSION_LEASE_KEY = "session:{ssrc}:asr"
"""Id of the ASR host that transcribes the session, for as long as it renews it."""

CALLER_SESSIONS_KEY = "session:of:{caller}"
"""Sorted set of a caller's live sessions, scored by their expiry: what bounds the sessions of one key."""

TRANSCRIPT_KEY = "transcript:{ssrc}"
"""Bounded stream of the session's transcript. An entry's id is where its utterance begins in the audio, in 20 ms
frames, and a number that counts up inside the utterance; the final's is ``TRANSCRIPT_FINAL_NUMBER``. So Valkey itself
refuses whatever a host says of an utterance that another host has finished."""

TRANSCRIPT_FINAL_NUMBER = 2**32

AUDIO_KEY = "audio:{ssrc}"
"""Bounded stream of the ``AudioChunk`` datagrams of utterances that have no final transcript yet: what another host
goes on from when the session's host dies."""

HOSTS_KEY = "host:{tier}"
"""Set of the ids of a tier's hosts (``vad``, ``asr``), so that readers need not scan the store."""

HOST_KEY = "host:{tier}:{host}"
"""Hash of one host, written anew with every heartbeat and left to expire; ``HostField`` names what is in it."""

HOST_SESSIONS_KEY = "host:{tier}:{host}:sessions"
"""Set of the sessions that an ASR host transcribes; outlives the host, for those who take over."""


class SessionField(StrEnum):
    """Fields of the hash of a session. Each is written by one tier; readers skip what they do not know."""

    STATE = "state"
    """Gateway: ``open``, or ``closed``; the VAD tier lets in nothing but ``open``."""
    KIND = "kind"
    """Gateway: ``gateway`` for plain RTP from inside the network, ``external`` for SRTP."""
    SRTP_KEY = "srtp_key"
    """Gateway: base64 of the master key and salt (30 bytes); with ``external`` only."""
    EXPIRES_AT = "expires_at"
    """Gateway: seconds since 1970 (UTC) after which no audio is taken."""
    ID = "id"
    """Gateway: the session's name in the API."""
    CALLER = "caller"
    """Gateway: who opened it."""
    LANGUAGE = "language"
    """Gateway: spoken language (BCP 47); absent: found out from the audio."""
    LAST_SEQUENCE = "last_sequence"
    """VAD: ``sequence`` of the last chunk that was shipped."""
    CHUNKS = "chunks"
    """VAD: chunks shipped."""
    SEEN_AT = "seen_at"
    """VAD: seconds since 1970 of the last packet."""
    TRANSCRIBED_TO = "transcribed_to"
    """ASR: ``sequence`` of the last chunk that a final transcript covers. Not less than ``last_sequence``: all that was
    said has been transcribed."""


class HostField(StrEnum):
    """Fields of the hash of a host."""

    KIND = "kind"
    """``silicon`` or ``gpu`` in the ASR tier, where silicon is filled first; ``vad`` in the VAD tier."""
    ADDRESS = "address"
    """IPv4 address that other tiers send to."""
    FREE_SLOTS = "free_slots"
    """Sessions that it can still take."""
    DRAINING = "draining"
    """``1``: takes no new session; ``0`` otherwise."""
    HEARTBEAT = "heartbeat"
    """A number that changes every second; a host whose number stands still for ``HOST_DEAD_AFTER_S`` is dead."""


HOST_HEARTBEAT_S = 1
HOST_DEAD_AFTER_S = 3
"""Two heartbeats may be late."""
HOST_EXPIRES_S = 10
"""A dead host's hash is gone after that."""

# --- AudioChunk, VAD tier -> ASR tier ---------------------------------------------------------------------

CHUNK_HEADER = struct.Struct("<QIBBH")
"""session u64, sequence u32, kind u8, flags u8, count u16; little-endian, 16 bytes."""

CHUNK_PAYLOAD_BYTES = 3200
"""100 ms of audio: 80 x 10 float32 log-mel values, or 1600 PCM16 samples."""

IP_UDP_HEADER_BYTES = 28
"""IPv4 (20, no options) and UDP (8) headers."""

CHUNK_DATAGRAM_BYTES = CHUNK_HEADER.size + CHUNK_PAYLOAD_BYTES + IP_UDP_HEADER_BYTES
"""3244: what one chunk takes of a link's MTU."""


CHUNK_MEL_BINS = 80
CHUNK_MEL_FRAMES = 10
CHUNK_SAMPLES = 1600
"""What a full payload holds: 100 ms at 16 kHz."""

CHUNK_FRAME_SAMPLES = 320
"""20 ms: the unit of ``sequence``, which is the place of a chunk's first frame in its session."""


class ChunkKind(IntEnum):
    """What the payload of an ``AudioChunk`` holds. ``count`` says how much of it: log-mel frames or samples."""

    LOG_MEL = 1
    PCM16 = 2


class ChunkFlag(IntFlag):
    """Bits of ``flags``."""

    END_OF_SPEECH = 1
    CONCEALED = 2
    """Some of it is made up: packets were lost."""
    START_OF_SPEECH = 4
    SILENCE = 8
    """None of it was judged speech: pre-roll or hangover; the first to be shed."""
