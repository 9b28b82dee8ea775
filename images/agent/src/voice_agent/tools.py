"""Tools that the language model may call. An operator's endpoint lists and executes them.

``GET`` responds with a JSON list of functions in the format of OpenAI's chat API: ``name``, ``description`` and
``parameters``, a JSON Schema. ``POST`` with ``name``, ``arguments``, ``conversation`` and ``caller`` calls a function,
whose result can be any JSON value. Requests are signed if a key is configured (``voice_agent.signing``).
"""

import json
import logging
from dataclasses import dataclass
from typing import Any

import httpx2
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.services.llm_service import FunctionCallParams, LLMService
from pipecat.utils.types import NOT_GIVEN, NotGiven
from pydantic import BaseModel, TypeAdapter, ValidationError

from voice_agent.refusals import RefusedError
from voice_agent.settings import AgentSettings
from voice_agent.signing import create_signature_headers
from voice_agent.trace import Trace

TOOL_REQUEST_TIMEOUT_S = 10.0
"""Timeout for a call, since callers hang up after a longer silence."""

log = logging.getLogger(__name__)


class ToolParameters(BaseModel):
    """Parameters of a function: a JSON Schema for an object."""

    properties: dict[str, Any] = {}
    required: list[str] = []


class Tool(BaseModel):
    """A function that the model may call."""

    name: str
    description: str
    parameters: ToolParameters = ToolParameters()

    def to_pipecat(self) -> FunctionSchema:
        return FunctionSchema(self.name, self.description, self.parameters.properties, self.parameters.required)


@dataclass(frozen=True)
class CallerIdentity:
    """The caller on whose behalf a tool runs.

    Attributes:
        caller: Name of the caller, such as a JWT's subject; empty if the gateway does not distinguish callers.
    """

    conversation: str
    caller: str


_TOOLS_ADAPTER = TypeAdapter(list[Tool])


class Toolset:
    """The tools of a conversation."""

    def __init__(
        self, settings: AgentSettings, client: httpx2.AsyncClient, trace: Trace, identity: CallerIdentity
    ) -> None:
        self._url = settings.tools_url
        self._key = settings.tools_key.get_secret_value()
        self._client = client
        self._trace = trace
        self._identity = identity
        self._names: frozenset[str] = frozenset()

    async def fetch_schema(self) -> ToolsSchema | NotGiven:
        """Read the tools from the endpoint, and return their schema for the model, if an endpoint is configured.

        Raises:
            RefusedError: The endpoint does not list its tools. Without tools, an agent would make false promises.
        """
        if not self._url:
            return NOT_GIVEN
        try:
            answer = await self._send_request("GET", b"")
            tools = _TOOLS_ADAPTER.validate_json(answer.content)
        except (httpx2.HTTPError, ValidationError) as error:
            detail = f"the endpoint of the agent's tools does not say which there are: {type(error).__name__}"
            raise RefusedError(503, "tools away", detail) from None
        self._names = frozenset(tool.name for tool in tools)
        return ToolsSchema(standard_tools=[tool.to_pipecat() for tool in tools])

    def register(self, model: LLMService[Any]) -> None:
        """Register the tools as functions that a model may call."""
        model.register_function(None, self._handle_call, timeout_secs=2 * TOOL_REQUEST_TIMEOUT_S)

    async def _handle_call(self, call: FunctionCallParams) -> None:
        result = await self._run_tool(call.function_name, call.arguments)
        # Pipecat asks the model for an answer only if the result is not empty.
        await call.result_callback(result or {"result": result})

    async def _run_tool(self, name: str, arguments: Any) -> Any:  # noqa: ANN401  JSON, which the model or the tool writes
        if name not in self._names:
            log.warning("a tool that the endpoint does not list", extra={"fields": {"tool": name[:64]}})
            return {"error": "there is no such tool"}
        body = json.dumps(
            {
                "name": name,
                "arguments": dict(arguments),
                "conversation": self._identity.conversation,
                "caller": self._identity.caller,
            }
        ).encode()
        try:
            return (await self._send_request("POST", body)).json()
        except (httpx2.HTTPError, ValueError, RecursionError) as error:
            log.warning("a tool fails", extra={"fields": {"tool": name, "error": type(error).__name__}})
            return {"error": "the tool does not answer"}

    async def _send_request(self, method: str, body: bytes) -> httpx2.Response:
        headers = {**self._trace.build_headers(), **create_signature_headers(self._key, body)}
        if body:
            headers["Content-Type"] = "application/json"
        answer = await self._client.request(
            method, self._url, content=body, headers=headers, timeout=TOOL_REQUEST_TIMEOUT_S
        )
        return answer.raise_for_status()
