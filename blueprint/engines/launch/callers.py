"""What the tiers that carry callers are started with on the cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from blueprint.azure.contract import NAMESPACE, REDIS, ROUTER_HTTP, Component
from blueprint.contract.environment import (
    ALLOWED_ORIGINS,
    ANSWER_TOKENS,
    API_URL,
    AUTHORIZER,
    CACHE_DIR,
    CALLER_CREATIONS_PER_S,
    CALLER_SESSIONS,
    CHAT_KEY,
    CHAT_MODEL,
    CHAT_URL,
    CHUNK_KIND,
    CHUNK_PORT,
    CONVERSATIONS,
    DATA_PATH,
    DECODERS,
    DEPLOYMENT,
    DRAIN_TIMEOUT_S,
    ENCODERS,
    END_OF_TURN_MS,
    ENGINE,
    FLEET,
    GATEWAY_URL,
    HEALTH_PORT,
    HOST_KIND,
    HTTP_PORT,
    HUGE_PAGE_SIZE_MIB,
    IDLE_TIMEOUT_S,
    INTERFACE,
    JWT_AUDIENCE,
    JWT_ISSUER,
    LANGUAGE,
    LISTENING,
    MAX_CONNECTIONS,
    MAX_SESSIONS,
    MEDIA_HOST,
    MEDIA_PORT,
    MODEL,
    MODEL_REVISION,
    OTHER_REGIONS,
    PROMETHEUS_PORT,
    PROMPT,
    RECONNECT_GRACE_S,
    REGION,
    RTP_PORT,
    RX_QUEUES,
    RX_RING_SIZE,
    SESSION_MAX_S,
    SESSIONS,
    SPEECH_KEY,
    SPEECH_MODEL,
    SPEECH_RATE,
    SPEECH_URL,
    SPEECH_VOICE,
    TELEMETRY_SOURCES,
    TOKEN_TTL_S,
    TOOLS_URL,
    TRACE_COLLECTOR,
    TRACED_SHARE,
    VALKEY_HOST_FILE,
    VALKEY_PASSWORD_FILE,
    VALKEY_PORT,
    Variable,
)
from blueprint.contract.network import (
    AGENT_HTTP,
    CHUNK,
    ENGINE_HEALTH,
    GATEWAY_HTTP,
    GATEWAY_MEDIA,
    PROMETHEUS,
    RTP,
    VAD_HEALTH,
)
from blueprint.engines.launch.base import ANY_ADDRESS, Launcher, http
from blueprint.file.model.agents import AgentPods, AzureEngine, Endpoint
from blueprint.file.model.azure import Azure
from blueprint.file.model.azure_callers import AsrPods, AzureEdge, VadPods
from blueprint.file.model.deployment import Deployment
from blueprint.file.model.edge import JwtAuthorizer

STATE_HOST_DIR = "/etc/voice/state"
"""Where a pod reads the state store's name."""
STATE_TOKEN_DIR = "/run/voice/token"  # noqa: S105  a folder
"""Where a pod's sidecar leaves a fresh token for the state store: programs read it whenever they connect."""
STATE_TOKEN_FILE = f"{STATE_TOKEN_DIR}/token"
IDENTITY_TOKEN_DIR = "/var/run/secrets/voice"  # noqa: S105  a folder
"""Where that sidecar alone reads its service account's token, which Microsoft Entra exchanges."""

VAD_RUN_DIR = "/run/voice/dataplane"
"""Where the data plane has its control socket and its session tables."""

GATEWAY_DRAIN_TIMEOUT_S = 110
"""What a stopping gateway gives its callers to move, as on AWS: they go on at another one within a moment."""


@dataclass(frozen=True)
class Program(Launcher):
    """A program of an image of ours: it takes everything from its environment."""

    argv: tuple[str, ...]
    variables: Mapping[Variable, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)
    """Variables of the program alone, which the contract does not know."""

    def command(self) -> tuple[str, ...]:
        """Return the full argument vector."""
        return self.argv

    def environment(self) -> dict[str, str]:
        """Return its variables."""
        return {variable.name: value for variable, value in self.variables.items()} | dict(self.own)


STATE: Mapping[Variable, str] = {
    VALKEY_HOST_FILE: f"{STATE_HOST_DIR}/host",
    VALKEY_PORT: str(REDIS.number),
    VALKEY_PASSWORD_FILE: STATE_TOKEN_FILE,
}
"""How every tier reaches the state store; its user is the object id of the tier's identity."""

STATE_TOKEN = Program(
    ("python", "-m", "voice_gateway.state_token"),
    own={
        "AZURE_FEDERATED_TOKEN_FILE": f"{IDENTITY_TOKEN_DIR}/token",
        "VOICE_STATE_TOKEN_FILE": STATE_TOKEN_FILE,
    },
)
"""The sidecar that keeps the token fresh; it is in the gateway's image."""


def gateway(deployment: Deployment, edge: AzureEdge, sockets: int) -> Program:
    """Return the gateway's process.

    Args:
        sockets: At which it refuses more, by ``blueprint.capacity``.
    """
    jwt = edge.authorizer if isinstance(edge.authorizer, JwtAuthorizer) else None
    return Program(
        ("python", "-m", "voice_gateway"),
        {
            **STATE,
            DEPLOYMENT: deployment.name,
            FLEET: Component.GATEWAY.value,
            HTTP_PORT: str(GATEWAY_HTTP.number),
            MEDIA_PORT: str(GATEWAY_MEDIA.number),
            RTP_PORT: str(RTP.number),
            TOKEN_TTL_S: str(edge.token_ttl_s),
            AUTHORIZER: edge.authorizer.kind,
            JWT_ISSUER: jwt.issuer if jwt else "",
            JWT_AUDIENCE: jwt.audience if jwt else "",
            ALLOWED_ORIGINS: ",".join(edge.allowed_origins),
            OTHER_REGIONS: "",  # of AWS alone
            API_URL: "",
            TRACE_COLLECTOR: edge.trace_collector or "",
            TRACED_SHARE: str(edge.traced_share),
            RECONNECT_GRACE_S: str(edge.reconnect_grace_s),
            END_OF_TURN_MS: str(edge.end_of_turn_ms),
            SESSION_MAX_S: str(edge.session_max_s),
            CALLER_SESSIONS: str(edge.caller_sessions),
            CALLER_CREATIONS_PER_S: str(edge.caller_creations_per_s),
            MAX_CONNECTIONS: str(sockets),
            MEDIA_HOST: f"media.{edge.domain.name}",
            IDLE_TIMEOUT_S: str(edge.idle_timeout_s),
            DRAIN_TIMEOUT_S: str(GATEWAY_DRAIN_TIMEOUT_S),
        },
        {"VOICE_RTP_HOST": f"rtp.{edge.domain.name}", PROMETHEUS_PORT.name: str(PROMETHEUS.number)},
    )


def telemetry(deployment: Deployment, tier: Component, source: str) -> Program:
    """Return what reads a tier's program and shows it to Prometheus; without a region it tells no CloudWatch."""
    return Program(
        ("python", "-m", "voice_telemetry"),
        {
            **STATE,
            DEPLOYMENT: deployment.name,
            FLEET: tier.value,
            REGION: "",
            INTERFACE: "eth0",
            TELEMETRY_SOURCES: source,
            PROMETHEUS_PORT: str(PROMETHEUS.number),
        },
        {"VOICE_PROMETHEUS_ADDRESS": ANY_ADDRESS},
    )


def agent(deployment: Deployment, pods: AgentPods, edge: AzureEdge) -> Program:
    """Return an agent, whose engines are behind the cluster's router, or elsewhere."""
    (chat_url, chat_model), (speech_url, speech_model) = (
        _engine(deployment.azure, engine) for engine in (pods.chat, pods.speech)
    )
    return Program(
        ("python", "-m", "voice_agent"),
        {
            **STATE,
            DEPLOYMENT: deployment.name,
            FLEET: Component.AGENT.value,
            HTTP_PORT: str(AGENT_HTTP.number),
            TOKEN_TTL_S: str(pods.token_ttl_s),
            IDLE_TIMEOUT_S: str(pods.idle_timeout_s),
            DRAIN_TIMEOUT_S: str(pods.drain_timeout_s),
            CONVERSATIONS: str(pods.conversations),
            GATEWAY_URL: http(GATEWAY_HTTP.number, f"{Component.GATEWAY}.{NAMESPACE}"),
            CHAT_URL: chat_url,
            CHAT_MODEL: chat_model,
            CHAT_KEY: "",
            SPEECH_URL: speech_url,
            SPEECH_MODEL: speech_model,
            SPEECH_KEY: "",
            SPEECH_VOICE: pods.voice,
            SPEECH_RATE: str(pods.speech_rate),
            PROMPT: pods.prompt or "",
            TOOLS_URL: pods.tools_url or "",
            LANGUAGE: pods.language or "",
            ANSWER_TOKENS: str(pods.answer_tokens),
            LISTENING: pods.listening,
            TRACE_COLLECTOR: edge.trace_collector or "",
            TRACED_SHARE: str(edge.traced_share),
        },
        {PROMETHEUS_PORT.name: str(PROMETHEUS.number)},
    )


def _engine(azure: Azure, engine: AzureEngine) -> tuple[str, str]:
    """Return an engine's API and the name that its model has there."""
    if isinstance(engine, Endpoint):
        return engine.url, engine.model
    service = next(each for each in azure.services if each.name == engine.service)
    return f"{http(ROUTER_HTTP.number, f'{Component.ROUTER}.{NAMESPACE}')}/v1", service.model


def vad(pods: VadPods, sessions: int) -> Program:
    """Return the data plane, as an ordinary user: kernel sockets, each polled on a core of its own.

    Args:
        sessions: That a pod carries, by ``blueprint.capacity``.
    """
    return Program(
        ("vad-dataplane",),
        {
            **STATE,
            DATA_PATH: "socket",
            INTERFACE: "eth0",
            RX_QUEUES: str(pods.cpus - 1),
            RX_RING_SIZE: "1024",
            HUGE_PAGE_SIZE_MIB: "2",
            MAX_SESSIONS: str(sessions),
            RTP_PORT: str(RTP.number),
            CHUNK_PORT: str(CHUNK.number),
            # vLLM makes features of its own.
            CHUNK_KIND: "pcm16",
            HEALTH_PORT: str(VAD_HEALTH.number),
            DRAIN_TIMEOUT_S: str(pods.drain_timeout_s),
        },
    )


def asr(pods: AsrPods) -> Program:
    """Return our engine, which posts utterances to the router of the cluster's services."""
    return Program(
        ("python", "-m", "voice_whisper"),
        {
            **STATE,
            CHUNK_PORT: str(CHUNK.number),
            HEALTH_PORT: str(ENGINE_HEALTH.number),
            # Nothing is computed here; it is what transcribes that has one.
            HOST_KIND: "gpu",
            ENGINE: "vllm",
            MODEL: pods.model,
            MODEL_REVISION: "",
            SESSIONS: str(pods.sessions),
            ENCODERS: "1",
            DECODERS: "1",
            CACHE_DIR: "/tmp",  # noqa: S108  the pod's own
            DRAIN_TIMEOUT_S: str(pods.drain_timeout_s),
        },
        {
            "VOICE_HEALTH_ADDRESS": ANY_ADDRESS,
            "VOICE_VLLM_MODEL": pods.model,
            "VOICE_VLLM_URL": http(ROUTER_HTTP.number, f"{Component.ROUTER}.{NAMESPACE}"),
        },
    )
