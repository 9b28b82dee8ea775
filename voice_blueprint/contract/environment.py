"""Environment variables that launchers set and images read."""

from dataclasses import dataclass

from voice_blueprint.contract.images import Image


@dataclass(frozen=True)
class Variable:
    """An environment variable that a launcher sets and an image reads."""

    name: str
    meaning: str


DEPLOYMENT = Variable("VOICE_DEPLOYMENT", "Name of the deployment; dimension of every metric")
FLEET = Variable("VOICE_FLEET", "Name of the fleet; dimension of every metric")
HOST = Variable("VOICE_HOST", "Instance or task id; key of the host registry")
HOST_ADDRESS = Variable("VOICE_HOST_ADDRESS", "Private IPv4 address at which other tiers reach the host")
ZONE = Variable("VOICE_ZONE", "Availability zone of the host; audio is preferably sent to hosts of the same zone")
REGION = Variable("VOICE_REGION", "Region of the CloudWatch endpoint; empty disables CloudWatch")
VALKEY_HOST = Variable("VOICE_VALKEY_HOST", "Primary endpoint of the state store")
VALKEY_HOST_FILE = Variable("VOICE_VALKEY_HOST_FILE", "File that contains the endpoint; it is updated after a restore")
VALKEY_PORT = Variable("VOICE_VALKEY_PORT", "Port of the state store")
VALKEY_USER = Variable("VOICE_VALKEY_USER", "User name of the tier in the state store")
VALKEY_PASSWORD_FILE = Variable("VOICE_VALKEY_PASSWORD_FILE", "File that contains that user's password")
VALKEY_PASSWORD = Variable("VOICE_VALKEY_PASSWORD", "That user's password, if the launcher injects secrets")
RTP_PORT = Variable("VOICE_RTP_PORT", "UDP port of RTP and SRTP audio")
CHUNK_PORT = Variable("VOICE_CHUNK_PORT", "UDP port of AudioChunk datagrams")
HEALTH_PORT = Variable("VOICE_HEALTH_PORT", "TCP port that accepts connections while the program accepts load")
HTTP_PORT = Variable("VOICE_HTTP_PORT", "TCP port of the gateway's session API, or of an agent")
MEDIA_PORT = Variable("VOICE_MEDIA_PORT", "TCP port of the gateway's WebSocket audio")
PROMETHEUS_PORT = Variable(
    "VOICE_PROMETHEUS_PORT", "Port of the Prometheus endpoint; on hosts it listens on the loopback"
)
DATA_PATH = Variable("VOICE_DATA_PATH", "Data path: af_xdp, or vfio on a secondary interface")
INTERFACE = Variable("VOICE_INTERFACE", "Network interface that receives audio")
RX_QUEUES = Variable("VOICE_RX_QUEUES", "Number of receive queues, each polled by one core")
RX_RING_SIZE = Variable("VOICE_RX_RING_SIZE", "Number of descriptors of each receive ring")
MAX_SESSIONS = Variable("VOICE_MAX_SESSIONS", "Maximum concurrent sessions per VAD host; further sessions are rejected")
HUGE_PAGE_SIZE_MIB = Variable("VOICE_HUGE_PAGE_SIZE_MIB", "Size of one huge page, MiB")
HOST_KIND = Variable("VOICE_HOST_KIND", "neuron, gpu or cpu; sessions are assigned to hosts in that order")
ENGINE = Variable(
    "VOICE_ENGINE",
    "Inference engine: whisper, or on the host's loopback vllm, or vllm-realtime for streaming models",
)
MODEL = Variable("VOICE_MODEL", "Whisper model: a Hugging Face repository, or a folder")
MODEL_REVISION = Variable("VOICE_MODEL_REVISION", "Commit of that repository; empty selects the latest one")
SESSIONS = Variable("VOICE_SESSIONS", "Maximum concurrent sessions per ASR host; further sessions are rejected")
ENCODERS = Variable("VOICE_ENCODERS", "Number of worker processes for Whisper's prefill")
DECODERS = Variable("VOICE_DECODERS", "Number of worker processes for Whisper's decode")
CHUNK_KIND = Variable("VOICE_CHUNK_KIND", "log-mel, or pcm16 for engines that compute features themselves")
CACHE_DIR = Variable("VOICE_CACHE_DIR", "Directory of compile caches and weights; on local NVMe if available")
TELEMETRY_SOURCES = Variable("VOICE_TELEMETRY_SOURCES", "Comma-separated sources: dataplane, nic, neuron, gpu, engine")
TOKEN_KEY = Variable("VOICE_TOKEN_KEY", "Key for signing session tokens (injected secret)")
TOKEN_TTL_S = Variable("VOICE_TOKEN_TTL_S", "Lifetime of a session token, seconds")
AUTHORIZER = Variable("VOICE_AUTHORIZER", "Authorization of session creation: iam, jwt, api-key or none")
JWT_ISSUER = Variable(
    "VOICE_JWT_ISSUER", "OpenID Connect issuer of callers' tokens; empty if API Gateway authorizes callers"
)
JWT_AUDIENCE = Variable("VOICE_JWT_AUDIENCE", "Required audience of those tokens; empty without an issuer")
OTHER_REGIONS = Variable(
    "VOICE_OTHER_REGIONS", "Comma-separated session APIs of the deployment's other regions; may be empty"
)
API_HOST = Variable(
    "VOICE_API_HOST", "Public host name of the session API, which gateways request every minute; empty without one"
)
API_URL = Variable(
    "VOICE_API_URL", "Session API of this region or cell, if callers may use another host name; otherwise empty"
)
CELLS = Variable(
    "VOICE_CELLS",
    "Comma-separated cells: session API, `=`, and its address for health checks; empty without cells",
)
ALLOWED_ORIGINS = Variable("VOICE_ALLOWED_ORIGINS", "Comma-separated origins of web pages that may use the session API")
TRACE_COLLECTOR = Variable("VOICE_TRACE_COLLECTOR", "OTLP endpoint (HTTPS) for traces of calls; empty disables tracing")
TRACED_SHARE = Variable("VOICE_TRACED_SHARE", "Fraction of calls that are traced, 0 to 1")
ARCHIVE_URL = Variable("VOICE_ARCHIVE_URL", "Bucket or container for archived transcripts; empty disables the archive")
RECONNECT_GRACE_S = Variable("VOICE_RECONNECT_GRACE_S", "Time that a session waits for a disconnected caller, seconds")
END_OF_TURN_MS = Variable("VOICE_END_OF_TURN_MS", "Silence that ends a finished sentence, milliseconds")
SESSION_MAX_S = Variable("VOICE_SESSION_MAX_S", "Maximum duration of a session, seconds")
CALLER_SESSIONS = Variable("VOICE_CALLER_SESSIONS", "Maximum concurrent sessions per caller")
CALLER_CREATIONS_PER_S = Variable(
    "VOICE_CALLER_CREATIONS_PER_S", "Maximum rate at which a caller may open sessions, per second"
)
CALLER_MINUTES_PER_DAY = Variable(
    "VOICE_CALLER_MINUTES_PER_DAY", "Maximum audio per caller and day (UTC), minutes; empty for no limit"
)
MAX_CONNECTIONS = Variable("VOICE_MAX_CONNECTIONS", "Maximum audio sockets and event streams per gateway task")
MEDIA_HOST = Variable("VOICE_MEDIA_HOST", "Public host name of the TLS and UDP listeners")
IDLE_TIMEOUT_S = Variable("VOICE_IDLE_TIMEOUT_S", "Time without data after which a socket is closed, seconds")
DRAIN_TIMEOUT_S = Variable("VOICE_DRAIN_TIMEOUT_S", "Time that a stopping process has to finish sessions, seconds")

CONVERSATIONS = Variable(
    "VOICE_CONVERSATIONS", "Maximum concurrent conversations per agent; further ones are assigned to other agents"
)
GATEWAY_URL = Variable("VOICE_GATEWAY_URL", "Internal URL of the gateway, which transcribes the agent's callers")
CHAT_URL = Variable("VOICE_CHAT_URL", "OpenAI-compatible API of an agent's language model, up to /v1")
CHAT_MODEL = Variable("VOICE_CHAT_MODEL", "Name of the language model")
CHAT_KEY = Variable("VOICE_CHAT_KEY", "Key of that API (may be an injected secret); empty if it requires none")
SPEECH_URL = Variable("VOICE_SPEECH_URL", "OpenAI-compatible text-to-speech API of an agent, up to /v1")
SPEECH_MODEL = Variable("VOICE_SPEECH_MODEL", "Name of the text-to-speech model")
SPEECH_KEY = Variable("VOICE_SPEECH_KEY", "Key of that API (may be an injected secret); empty if it requires none")
SPEECH_VOICE = Variable("VOICE_SPEECH_VOICE", "Voice of that model")
SPEECH_RATE = Variable("VOICE_SPEECH_RATE", "Sample rate of that API's raw PCM, Hz; 24000 for OpenAI")
PROMPT = Variable("VOICE_PROMPT", "System prompt of the language model (may be an injected secret)")
TOOLS_URL = Variable("VOICE_TOOLS_URL", "Endpoint of the tools that the language model may call; empty disables tools")
TOOLS_KEY = Variable(
    "VOICE_TOOLS_KEY", "Key for signing requests to that endpoint (may be an injected secret); empty disables signing"
)
TWILIO_ACCOUNT = Variable("VOICE_TWILIO_ACCOUNT", "Twilio account whose calls are accepted; empty accepts any account")
TWILIO_TOKEN = Variable(
    "VOICE_TWILIO_TOKEN", "Auth token of that account (may be an injected secret); empty disables signature checks"
)
LANGUAGE = Variable("VOICE_LANGUAGE", "Language of callers, such as en; if empty, it is detected from the audio")
ANSWER_TOKENS = Variable("VOICE_ANSWER_TOKENS", "Maximum number of tokens per answer")
LISTENING = Variable("VOICE_LISTENING", "Input of the language model: the transcript or the audio of a question")

_STATE_VARIABLES = (VALKEY_HOST_FILE, VALKEY_PORT, VALKEY_USER, VALKEY_PASSWORD_FILE)
_WHISPER_VARIABLES = (
    HOST, HOST_ADDRESS, ZONE, *_STATE_VARIABLES, CHUNK_PORT, HEALTH_PORT, HOST_KIND, ENGINE, MODEL, MODEL_REVISION,
    SESSIONS, ENCODERS, DECODERS, CACHE_DIR, DRAIN_TIMEOUT_S,
)  # fmt: skip

VARIABLES_BY_IMAGE: dict[Image, tuple[Variable, ...]] = {
    Image.VAD_DATAPLANE: (
        HOST, HOST_ADDRESS, ZONE, *_STATE_VARIABLES, DATA_PATH, INTERFACE, RX_QUEUES, RX_RING_SIZE, MAX_SESSIONS,
        HUGE_PAGE_SIZE_MIB, RTP_PORT, CHUNK_PORT, CHUNK_KIND, HEALTH_PORT, DRAIN_TIMEOUT_S,
    ),
    Image.WHISPER_ENGINE: _WHISPER_VARIABLES,
    Image.ASR_NEURON: _WHISPER_VARIABLES,
    Image.ASR_VLLM: (),
    Image.TTS_OMNI: (),
    Image.LMCACHE: (),
    Image.ROUTER: (),
    Image.PD_ROUTER: (),
    Image.DEVICE_PLUGIN: (),
    Image.DCGM_EXPORTER: (),
    Image.TELEMETRY: (DEPLOYMENT, FLEET, HOST, REGION, *_STATE_VARIABLES, TELEMETRY_SOURCES, PROMETHEUS_PORT),
    Image.GATEWAY: (
        DEPLOYMENT, FLEET, VALKEY_HOST, VALKEY_PORT, VALKEY_USER, VALKEY_PASSWORD, HTTP_PORT, MEDIA_PORT, RTP_PORT,
        TOKEN_KEY, TOKEN_TTL_S, AUTHORIZER, JWT_ISSUER, JWT_AUDIENCE, ALLOWED_ORIGINS, OTHER_REGIONS, API_HOST,
        API_URL, CELLS, RECONNECT_GRACE_S, END_OF_TURN_MS, SESSION_MAX_S, CALLER_SESSIONS, CALLER_CREATIONS_PER_S,
        CALLER_MINUTES_PER_DAY, MAX_CONNECTIONS, MEDIA_HOST, IDLE_TIMEOUT_S, DRAIN_TIMEOUT_S, TRACE_COLLECTOR,
        TRACED_SHARE, ARCHIVE_URL,
    ),
    Image.AGENT: (
        DEPLOYMENT, FLEET, VALKEY_HOST, VALKEY_PORT, VALKEY_USER, VALKEY_PASSWORD, HTTP_PORT, TOKEN_KEY, TOKEN_TTL_S,
        IDLE_TIMEOUT_S, DRAIN_TIMEOUT_S, CONVERSATIONS, GATEWAY_URL, CHAT_URL, CHAT_MODEL, CHAT_KEY, SPEECH_URL,
        SPEECH_MODEL, SPEECH_KEY, SPEECH_VOICE, SPEECH_RATE, PROMPT, TOOLS_URL, TOOLS_KEY, TWILIO_ACCOUNT,
        TWILIO_TOKEN, LANGUAGE, ANSWER_TOKENS, LISTENING, TRACE_COLLECTOR, TRACED_SHARE,
    ),
}  # fmt: skip
"""Variables that each image's program reads and its launcher sets. All other settings of a program have their
defaults."""
