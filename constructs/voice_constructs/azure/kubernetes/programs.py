"""Command lines and environments for the programs that serve callers on a cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from voice_blueprint import catalog
from voice_blueprint.azure.contract import NAMESPACE, REDIS, Component
from voice_blueprint.azure.names import build_model_url
from voice_blueprint.contract.environment import (
    ARCHIVE_URL,
    CACHE_DIR,
    CHUNK_KIND,
    CHUNK_PORT,
    DATA_PATH,
    DECODERS,
    DEPLOYMENT,
    DRAIN_TIMEOUT_S,
    ENCODERS,
    ENGINE,
    FLEET,
    HEALTH_PORT,
    HOST_KIND,
    HUGE_PAGE_SIZE_MIB,
    INTERFACE,
    MAX_SESSIONS,
    MODEL,
    MODEL_REVISION,
    PROMETHEUS_PORT,
    REGION,
    RTP_PORT,
    RX_QUEUES,
    RX_RING_SIZE,
    SESSIONS,
    TELEMETRY_SOURCES,
    VALKEY_HOST_FILE,
    VALKEY_PASSWORD_FILE,
    VALKEY_PORT,
    Variable,
)
from voice_blueprint.contract.network import (
    CHUNK,
    ENGINE_HEALTH,
    GATEWAY_HTTP,
    PROMETHEUS,
    RTP,
    VAD_HEALTH,
)
from voice_blueprint.engines.launch.base import ANY_ADDRESS, Launcher, build_http_url
from voice_blueprint.environment import build_agent_environment, build_gateway_environment
from voice_blueprint.file.model.agents import AgentPods, AzureEngine, Endpoint
from voice_blueprint.file.model.azure import Azure
from voice_blueprint.file.model.azure_callers import AsrPods, AzureEdge, VadPods
from voice_blueprint.file.model.deployment import Deployment

STATE_HOST_DIR = "/etc/voice/state"
"""Directory that contains the file with the state store's host name."""
STATE_TOKEN_DIR = "/run/voice/token"  # noqa: S105  a folder
"""Directory in which a pod's sidecar stores a fresh token for the state store. Programs read it for each connection."""
STATE_TOKEN_FILE = f"{STATE_TOKEN_DIR}/token"
IDENTITY_TOKEN_DIR = "/var/run/secrets/voice"  # noqa: S105  a folder
"""Directory that contains the service account's token, which is exchanged for a token from Microsoft Entra."""

VAD_RUN_DIR = "/run/voice/dataplane"
"""Directory for the data plane's control socket and session tables."""


@dataclass(frozen=True)
class Program(Launcher):
    """A program of one of our images, configured only by its environment."""

    argv: tuple[str, ...]
    variables: Mapping[Variable, str] = field(default_factory=dict)
    extra_environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the program that are not part of the contract."""

    def build_command(self) -> tuple[str, ...]:
        """Return the full argument vector."""
        return self.argv

    def build_environment(self) -> dict[str, str]:
        """Return all variables."""
        return {variable.name: value for variable, value in self.variables.items()} | dict(self.extra_environment)


STATE_VARIABLES: Mapping[Variable, str] = {
    VALKEY_HOST_FILE: f"{STATE_HOST_DIR}/host",
    VALKEY_PORT: str(REDIS.number),
    VALKEY_PASSWORD_FILE: STATE_TOKEN_FILE,
}
"""Variables for the connection to the state store, which are the same in every tier. The user name is not included,
since it is the object id of the tier's identity."""

STATE_TOKEN_PROGRAM = Program(
    ("python", "-m", "voice_gateway.state_token"),
    extra_environment={
        "AZURE_FEDERATED_TOKEN_FILE": f"{IDENTITY_TOKEN_DIR}/token",
        "VOICE_STATE_TOKEN_FILE": STATE_TOKEN_FILE,
    },
)
"""Program in the sidecar that refreshes the token. It is part of the gateway's image."""


def create_gateway_program(deployment: Deployment, edge: AzureEdge, sockets: int) -> Program:
    """Return the program of the gateway's pods.

    Args:
        sockets: Maximum number of sockets, calculated by ``voice_blueprint.capacity``.
    """
    shared = build_gateway_environment(
        deployment, edge, fleet=Component.GATEWAY.value, sockets=sockets, media_host=f"media.{edge.domain.name}"
    )
    return Program(
        ("python", "-m", "voice_gateway"),
        # with an archive, the value is an output of the cluster
        {**STATE_VARIABLES, **shared, **({} if edge.archive else {ARCHIVE_URL: ""})},
        {
            "VOICE_RTP_HOST": f"rtp.{edge.domain.name}",
            "VOICE_FORWARDED": "true",
            PROMETHEUS_PORT.name: str(PROMETHEUS.number),
        },
    )


def create_telemetry_program(deployment: Deployment, tier: Component, source: str) -> Program:
    """Return the telemetry program of a tier. It has no region, so it does not publish to CloudWatch."""
    return Program(
        ("python", "-m", "voice_telemetry"),
        {
            **STATE_VARIABLES,
            DEPLOYMENT: deployment.name,
            FLEET: tier.value,
            REGION: "",
            INTERFACE: "eth0",
            TELEMETRY_SOURCES: source,
            PROMETHEUS_PORT: str(PROMETHEUS.number),
        },
        {"VOICE_PROMETHEUS_ADDRESS": ANY_ADDRESS},
    )


def create_agent_program(deployment: Deployment, pods: AgentPods, edge: AzureEdge) -> Program:
    """Return the program of the agents' pods, which reach engines through the router or at external endpoints."""
    shared = build_agent_environment(
        deployment,
        pods,
        edge,
        fleet=Component.AGENT.value,
        gateway_url=build_http_url(GATEWAY_HTTP.number, f"{Component.GATEWAY}.{NAMESPACE}"),
        drain_timeout_s=pods.drain_timeout_s,
        chat=_resolve_engine_endpoint(deployment.azure, pods.chat),
        speech=_resolve_engine_endpoint(deployment.azure, pods.speech),
    )
    return Program(
        ("python", "-m", "voice_agent"),
        {**STATE_VARIABLES, **shared},
        {"VOICE_FORWARDED": "true", PROMETHEUS_PORT.name: str(PROMETHEUS.number)},
    )


def _resolve_engine_endpoint(azure: Azure, engine: AzureEngine) -> tuple[str, str]:
    """Return the base URL of an engine's API, and the name of the model in requests."""
    if isinstance(engine, Endpoint):
        return engine.url, engine.model
    service = next(each for each in azure.services if each.name == engine.service)
    return f"{build_model_url(service.model)}/v1", service.model


def create_vad_program(pods: VadPods, sessions: int) -> Program:
    """Return the data plane's program, which runs without privileges.

    It uses kernel sockets, each of which is polled on its own core.

    Args:
        sessions: Maximum sessions of a pod, calculated by ``voice_blueprint.capacity``.
    """
    return Program(
        ("vad-dataplane",),
        {
            **STATE_VARIABLES,
            DATA_PATH: "socket",
            INTERFACE: "eth0",
            RX_QUEUES: str(pods.cpus - 1),
            RX_RING_SIZE: "1024",
            HUGE_PAGE_SIZE_MIB: "2",
            MAX_SESSIONS: str(sessions),
            RTP_PORT: str(RTP.number),
            CHUNK_PORT: str(CHUNK.number),
            # vLLM computes its own features.
            CHUNK_KIND: "pcm16",
            HEALTH_PORT: str(VAD_HEALTH.number),
            DRAIN_TIMEOUT_S: str(pods.drain_timeout_s),
        },
    )


def create_asr_program(pods: AsrPods) -> Program:
    """Return the program of our engine, which sends utterances through the router to the engines of its model.

    A model with streaming audio input receives the audio over a WebSocket.
    """
    live = catalog.models()[pods.model].hears_live
    return Program(
        ("python", "-m", "voice_whisper"),
        {
            **STATE_VARIABLES,
            CHUNK_PORT: str(CHUNK.number),
            HEALTH_PORT: str(ENGINE_HEALTH.number),
            # No computation takes place here; the transcribing engine has a GPU.
            HOST_KIND: "gpu",
            ENGINE: "vllm-realtime" if live else "vllm",
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
            "VOICE_VLLM_URL": build_model_url(pods.model),
        },
    )
