"""Environment variables: what launchers set and images read."""

from dataclasses import dataclass

from blueprint.contract.images import Image


@dataclass(frozen=True)
class Variable:
    """An environment variable that a launcher sets and an image reads."""

    name: str
    meaning: str


DEPLOYMENT = Variable("VOICE_DEPLOYMENT", "Name of the deployment; dimension of every metric")
FLEET = Variable("VOICE_FLEET", "Name of the fleet; dimension of every metric")
HOST = Variable("VOICE_HOST", "Instance or task id; key of the host registry")
HOST_ADDRESS = Variable("VOICE_HOST_ADDRESS", "Private IPv4 address that other tiers reach the host at")
ZONE = Variable("VOICE_ZONE", "Availability zone of the host: audio goes to hosts of the same one first")
REGION = Variable("VOICE_REGION", "Region of the CloudWatch endpoint; empty: none")
VALKEY_HOST = Variable("VOICE_VALKEY_HOST", "Primary endpoint of the state store")
VALKEY_HOST_FILE = Variable(
    "VOICE_VALKEY_HOST_FILE", "File that holds the endpoint: it follows a store that was restored"
)
VALKEY_PORT = Variable("VOICE_VALKEY_PORT", "Its port")
VALKEY_USER = Variable("VOICE_VALKEY_USER", "The tier's own user of the state store")
VALKEY_PASSWORD_FILE = Variable("VOICE_VALKEY_PASSWORD_FILE", "File that holds that user's password")
VALKEY_PASSWORD = Variable("VOICE_VALKEY_PASSWORD", "That user's password, where the launcher injects secrets")
RTP_PORT = Variable("VOICE_RTP_PORT", "UDP port of RTP and SRTP audio")
CHUNK_PORT = Variable("VOICE_CHUNK_PORT", "UDP port of AudioChunk datagrams")
HEALTH_PORT = Variable("VOICE_HEALTH_PORT", "TCP port that answers while the program can take load")
HTTP_PORT = Variable("VOICE_HTTP_PORT", "TCP port of the gateway's session API, or of an agent")
MEDIA_PORT = Variable("VOICE_MEDIA_PORT", "TCP port of the gateway's WebSocket audio")
PROMETHEUS_PORT = Variable("VOICE_PROMETHEUS_PORT", "Port of the Prometheus endpoint, on a host on its loopback")
DATA_PATH = Variable("VOICE_DATA_PATH", "af_xdp, or vfio on a secondary interface")
INTERFACE = Variable("VOICE_INTERFACE", "Network interface that receives audio")
RX_QUEUES = Variable("VOICE_RX_QUEUES", "Receive queues that are polled, one core each")
RX_RING_SIZE = Variable("VOICE_RX_RING_SIZE", "Descriptors in each receive ring")
MAX_SESSIONS = Variable("VOICE_MAX_SESSIONS", "Most sessions of a VAD host at a time; a full one refuses")
HUGE_PAGE_SIZE_MIB = Variable("VOICE_HUGE_PAGE_SIZE_MIB", "Size of one huge page, MiB")
HOST_KIND = Variable("VOICE_HOST_KIND", "neuron, gpu or cpu: placement fills hosts in that order")
ENGINE = Variable(
    "VOICE_ENGINE",
    "whisper, vllm on the host's loopback, or vllm-realtime there for a model that hears audio as it comes",
)
MODEL = Variable("VOICE_MODEL", "Whisper model of the engine: a repository at Hugging Face, or a folder")
MODEL_REVISION = Variable("VOICE_MODEL_REVISION", "Commit of that repository; empty: its newest")
SESSIONS = Variable("VOICE_SESSIONS", "Most sessions of an ASR host at a time; a full one refuses")
ENCODERS = Variable("VOICE_ENCODERS", "Worker processes for Whisper's prefill")
DECODERS = Variable("VOICE_DECODERS", "Worker processes for Whisper's decode")
CHUNK_KIND = Variable("VOICE_CHUNK_KIND", "log-mel, or pcm16 for fleets whose engine makes features of its own")
CACHE_DIR = Variable("VOICE_CACHE_DIR", "Directory for compile caches and weights; local NVMe where it exists")
TELEMETRY_SOURCES = Variable("VOICE_TELEMETRY_SOURCES", "Comma-separated: dataplane, nic, neuron, gpu, engine")
TOKEN_KEY = Variable("VOICE_TOKEN_KEY", "Key that signs session tokens (injected secret)")
TOKEN_TTL_S = Variable("VOICE_TOKEN_TTL_S", "Lifetime of a session token, seconds")
AUTHORIZER = Variable("VOICE_AUTHORIZER", "Who may open sessions: iam, jwt, api-key or none")
JWT_ISSUER = Variable(
    "VOICE_JWT_ISSUER", "OpenID Connect issuer of callers' tokens; empty: API Gateway lets callers in"
)
JWT_AUDIENCE = Variable("VOICE_JWT_AUDIENCE", "Audience that those tokens must name; empty without an issuer")
OTHER_REGIONS = Variable(
    "VOICE_OTHER_REGIONS", "Session APIs of the deployment's other regions, by commas; empty: there are none"
)
API_URL = Variable(
    "VOICE_API_URL", "Session API of this region, where callers may ask at a name of all regions; empty: they do not"
)
ALLOWED_ORIGINS = Variable("VOICE_ALLOWED_ORIGINS", "Origins of web pages that may use the session API, by commas")
TRACE_COLLECTOR = Variable("VOICE_TRACE_COLLECTOR", "Where traces of calls go, by OTLP over HTTPS; empty: nowhere")
TRACED_SHARE = Variable("VOICE_TRACED_SHARE", "Of calls that are traced, 0 to 1")
RECONNECT_GRACE_S = Variable("VOICE_RECONNECT_GRACE_S", "How long a session waits for a caller that broke off, seconds")
END_OF_TURN_MS = Variable("VOICE_END_OF_TURN_MS", "Silence that ends a finished sentence, milliseconds")
SESSION_MAX_S = Variable("VOICE_SESSION_MAX_S", "Longest that a session lasts, seconds")
CALLER_SESSIONS = Variable("VOICE_CALLER_SESSIONS", "Live sessions of one caller")
CALLER_CREATIONS_PER_S = Variable("VOICE_CALLER_CREATIONS_PER_S", "Sessions that one caller may open in a second")
MAX_CONNECTIONS = Variable("VOICE_MAX_CONNECTIONS", "Audio sockets and event streams of one gateway task")
MEDIA_HOST = Variable("VOICE_MEDIA_HOST", "Public host name of the TLS and UDP listeners")
IDLE_TIMEOUT_S = Variable("VOICE_IDLE_TIMEOUT_S", "Longest silence on a socket before it is closed, seconds")
DRAIN_TIMEOUT_S = Variable("VOICE_DRAIN_TIMEOUT_S", "Time that a stopping process may finish sessions in, seconds")

CONVERSATIONS = Variable(
    "VOICE_CONVERSATIONS", "Most conversations of an agent at a time; others take who comes beyond them"
)
GATEWAY_URL = Variable("VOICE_GATEWAY_URL", "The gateway inside the network: what hears an agent's callers")
CHAT_URL = Variable("VOICE_CHAT_URL", "OpenAI-compatible API of an agent's language model, up to /v1")
CHAT_MODEL = Variable("VOICE_CHAT_MODEL", "That model's name")
CHAT_KEY = Variable("VOICE_CHAT_KEY", "Key of that API (may be an injected secret); empty: it asks for none")
SPEECH_URL = Variable("VOICE_SPEECH_URL", "OpenAI-compatible API of what an agent speaks with, up to /v1")
SPEECH_MODEL = Variable("VOICE_SPEECH_MODEL", "That model's name")
SPEECH_KEY = Variable("VOICE_SPEECH_KEY", "Key of that API (may be an injected secret); empty: it asks for none")
SPEECH_VOICE = Variable("VOICE_SPEECH_VOICE", "The voice of that model")
SPEECH_RATE = Variable("VOICE_SPEECH_RATE", "Sample rate of its raw PCM, Hz; OpenAI's is 24000")
PROMPT = Variable("VOICE_PROMPT", "What the language model is told to be (may be an injected secret)")
TOOLS_URL = Variable("VOICE_TOOLS_URL", "Endpoint whose tools the language model may call; empty: none")
LANGUAGE = Variable("VOICE_LANGUAGE", "Language that callers speak, such as en; empty: found out from the audio")
ANSWER_TOKENS = Variable("VOICE_ANSWER_TOKENS", "Most tokens of one answer")
LISTENING = Variable("VOICE_LISTENING", "What the language model is given of a question: its transcript, or its audio")

_STATE = (VALKEY_HOST_FILE, VALKEY_PORT, VALKEY_USER, VALKEY_PASSWORD_FILE)
_WHISPER = (
    HOST, HOST_ADDRESS, ZONE, *_STATE, CHUNK_PORT, HEALTH_PORT, HOST_KIND, ENGINE, MODEL, MODEL_REVISION, SESSIONS,
    ENCODERS, DECODERS, CACHE_DIR, DRAIN_TIMEOUT_S,
)  # fmt: skip

ENVIRONMENT: dict[Image, tuple[Variable, ...]] = {
    Image.VAD_DATAPLANE: (
        HOST, HOST_ADDRESS, ZONE, *_STATE, DATA_PATH, INTERFACE, RX_QUEUES, RX_RING_SIZE, MAX_SESSIONS,
        HUGE_PAGE_SIZE_MIB, RTP_PORT, CHUNK_PORT, CHUNK_KIND, HEALTH_PORT, DRAIN_TIMEOUT_S,
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
    Image.TELEMETRY: (DEPLOYMENT, FLEET, HOST, REGION, *_STATE, TELEMETRY_SOURCES, PROMETHEUS_PORT),
    Image.GATEWAY: (
        DEPLOYMENT, FLEET, VALKEY_HOST, VALKEY_PORT, VALKEY_USER, VALKEY_PASSWORD, HTTP_PORT, MEDIA_PORT, RTP_PORT,
        TOKEN_KEY, TOKEN_TTL_S, AUTHORIZER, JWT_ISSUER, JWT_AUDIENCE, ALLOWED_ORIGINS, OTHER_REGIONS, API_URL,
        RECONNECT_GRACE_S, END_OF_TURN_MS, SESSION_MAX_S, CALLER_SESSIONS, CALLER_CREATIONS_PER_S, MAX_CONNECTIONS,
        MEDIA_HOST, IDLE_TIMEOUT_S, DRAIN_TIMEOUT_S, TRACE_COLLECTOR, TRACED_SHARE,
    ),
    Image.AGENT: (
        DEPLOYMENT, FLEET, VALKEY_HOST, VALKEY_PORT, VALKEY_USER, VALKEY_PASSWORD, HTTP_PORT, TOKEN_KEY, TOKEN_TTL_S,
        IDLE_TIMEOUT_S, DRAIN_TIMEOUT_S, CONVERSATIONS, GATEWAY_URL, CHAT_URL, CHAT_MODEL, CHAT_KEY, SPEECH_URL,
        SPEECH_MODEL, SPEECH_KEY, SPEECH_VOICE, SPEECH_RATE, PROMPT, TOOLS_URL, LANGUAGE, ANSWER_TOKENS, LISTENING,
        TRACE_COLLECTOR, TRACED_SHARE,
    ),
}  # fmt: skip
"""What each image's program reads of it, all set by its launcher. What else a program reads stays at its default."""
