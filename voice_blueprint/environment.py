"""Environment of the gateway and of agents, rendered once for both clouds."""

from collections.abc import Mapping

from voice_blueprint.contract import environment as contract
from voice_blueprint.contract.environment import (
    ANSWER_TOKENS,
    API_HOST,
    API_URL,
    AUTHORIZER,
    CELLS,
    CHAT_KEY,
    CHAT_MODEL,
    CHAT_URL,
    CONVERSATIONS,
    DEPLOYMENT,
    DRAIN_TIMEOUT_S,
    FLEET,
    GATEWAY_URL,
    HTTP_PORT,
    IDLE_TIMEOUT_S,
    JWT_AUDIENCE,
    JWT_ISSUER,
    LANGUAGE,
    LISTENING,
    MAX_CONNECTIONS,
    MEDIA_HOST,
    MEDIA_PORT,
    OTHER_REGIONS,
    PROMPT,
    RTP_PORT,
    SPEECH_KEY,
    SPEECH_MODEL,
    SPEECH_RATE,
    SPEECH_URL,
    SPEECH_VOICE,
    TOKEN_TTL_S,
    TOOLS_KEY,
    TOOLS_URL,
    TRACE_COLLECTOR,
    TRACED_SHARE,
    TWILIO_ACCOUNT,
    TWILIO_TOKEN,
    Variable,
)
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.network import AGENT_HTTP, GATEWAY_HTTP, GATEWAY_MEDIA, RTP
from voice_blueprint.contract.session_api import HEALTH_PATH
from voice_blueprint.file.model.agents import ConversationSettings
from voice_blueprint.file.model.azure_callers import AzureEdge
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.edge import CallerSettings, Edge, JwtAuthorizer

GATEWAY_DRAIN_TIMEOUT_S = 110
"""Time for the callers of a stopping gateway to reconnect to another one, seconds. Fargate kills a task 10 s later."""

_VARIABLES_BY_NAME = {each.name: each for each in vars(contract).values() if isinstance(each, Variable)}


def _create_variable_for_setting(field: str, description: str) -> Variable:
    name = f"VOICE_{field.upper()}"
    return _VARIABLES_BY_NAME.get(name) or Variable(name, description)


CALLER_VARIABLE_BY_SETTING: Mapping[str, Variable] = {
    name: _create_variable_for_setting(name, field.description or "")
    for name, field in CallerSettings.model_fields.items()
    if name != "archive"
}
"""Gateway variables, by setting in ``CallerSettings``. The archive is excluded, since it is a resource."""

VARIABLES_BY_IMAGE: Mapping[Image, tuple[Variable, ...]] = contract.VARIABLES_BY_IMAGE | {
    Image.GATEWAY: tuple(
        dict.fromkeys((*contract.VARIABLES_BY_IMAGE[Image.GATEWAY], *CALLER_VARIABLE_BY_SETTING.values()))
    )
}
"""Variables for each image: those in the contract, and those derived from settings."""


def _format_value(value: object) -> str:
    """Return a setting's value as text: lists are comma-separated, and a missing value is empty."""
    if value is None:
        return ""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def build_gateway_environment(
    deployment: Deployment, edge: Edge | AzureEdge, *, fleet: str, sockets: int, media_host: str
) -> dict[Variable, str]:
    """Return the gateway's variables except those for the state store, the archive and other regions' addresses.

    Args:
        deployment: The deployment.
        edge: Edge of the deployment, on either cloud.
        fleet: Name of the gateway's fleet.
        sockets: Maximum number of open sockets.
        media_host: Host name of the media port.
    """
    cells = deployment.list_cell_domains(edge.domain.name) if edge.domain else ()
    jwt = edge.authorizer if isinstance(edge.authorizer, JwtAuthorizer) else None
    return {
        DEPLOYMENT: deployment.name,
        FLEET: fleet,
        HTTP_PORT: str(GATEWAY_HTTP.number),
        MEDIA_PORT: str(GATEWAY_MEDIA.number),
        RTP_PORT: str(RTP.number),
        AUTHORIZER: edge.authorizer.kind,
        JWT_ISSUER: jwt.issuer if jwt else "",
        JWT_AUDIENCE: jwt.audience if jwt else "",
        OTHER_REGIONS: "",
        API_HOST: f"api.{edge.domain.name}" if edge.domain else "",
        API_URL: f"https://api.{edge.domain.name}" if edge.domain and cells else "",
        CELLS: ",".join(f"https://api.{cell}=https://media.{cell}{HEALTH_PATH}" for cell in cells),
        MAX_CONNECTIONS: str(sockets),
        MEDIA_HOST: media_host,
        DRAIN_TIMEOUT_S: str(GATEWAY_DRAIN_TIMEOUT_S),
        **{variable: _format_value(getattr(edge, name)) for name, variable in CALLER_VARIABLE_BY_SETTING.items()},
    }


def build_agent_environment(
    deployment: Deployment,
    rules: ConversationSettings,
    edge: CallerSettings,
    *,
    fleet: str,
    gateway_url: str,
    drain_timeout_s: int,
    chat: tuple[str, str],
    speech: tuple[str, str],
) -> dict[Variable, str]:
    """Return an agent's variables except those for the state store. Secrets are empty.

    Args:
        deployment: The deployment.
        rules: Settings of its agents, on either cloud.
        edge: Settings of the edge, for traces.
        fleet: Name of the agents' fleet.
        gateway_url: URL of the gateway inside the network.
        drain_timeout_s: Time for conversations to end when an agent stops, seconds.
        chat: URL and model of the language model.
        speech: URL and model of the text-to-speech engine.
    """
    (chat_url, chat_model), (speech_url, speech_model) = chat, speech
    return {
        DEPLOYMENT: deployment.name,
        FLEET: fleet,
        HTTP_PORT: str(AGENT_HTTP.number),
        TOKEN_TTL_S: str(rules.token_ttl_s),
        IDLE_TIMEOUT_S: str(rules.idle_timeout_s),
        DRAIN_TIMEOUT_S: str(drain_timeout_s),
        CONVERSATIONS: str(rules.conversations),
        GATEWAY_URL: gateway_url,
        CHAT_URL: chat_url,
        CHAT_MODEL: chat_model,
        CHAT_KEY: "",
        SPEECH_URL: speech_url,
        SPEECH_MODEL: speech_model,
        SPEECH_KEY: "",
        SPEECH_VOICE: rules.voice,
        SPEECH_RATE: str(rules.speech_rate),
        PROMPT: rules.prompt or "",
        TOOLS_URL: rules.tools_url or "",
        TOOLS_KEY: "",
        TWILIO_ACCOUNT: rules.twilio.account if rules.twilio else "",
        TWILIO_TOKEN: "",
        LANGUAGE: rules.language or "",
        ANSWER_TOKENS: str(rules.answer_tokens),
        LISTENING: rules.listening,
        TRACE_COLLECTOR: edge.trace_collector or "",
        TRACED_SHARE: str(edge.traced_share),
    }
