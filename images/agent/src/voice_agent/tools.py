"""Tools that the language model may call: an operator's endpoint says which there are, and runs them.

``GET`` of it answers with a JSON list of functions as OpenAI's chat API describes them: ``name``, ``description`` and
``parameters``, a JSON Schema. ``POST`` with ``name``, ``arguments`` and ``conversation`` runs one, and any JSON is its
result.
"""

import logging
from typing import Any

import httpx2
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.services.llm_service import FunctionCallParams, LLMService
from pipecat.utils.types import NOT_GIVEN, NotGiven
from pydantic import BaseModel, TypeAdapter, ValidationError

from voice_agent.refusals import RefusedError
from voice_agent.trace import Trace

TIMEOUT_S = 10.0
"""Of a call: a caller who hears nothing for longer hangs up."""

log = logging.getLogger(__name__)


class Parameters(BaseModel):
    """Of a function: a JSON Schema of an object."""

    properties: dict[str, Any] = {}
    required: list[str] = []


class Tool(BaseModel):
    """A function that the model may call."""

    name: str
    description: str
    parameters: Parameters = Parameters()

    def as_pipecat(self) -> FunctionSchema:
        return FunctionSchema(self.name, self.description, self.parameters.properties, self.parameters.required)


_Tools = TypeAdapter(list[Tool])


class Tools:
    """The tools of one conversation."""

    def __init__(self, url: str, client: httpx2.AsyncClient, trace: Trace, conversation: str) -> None:
        self._url = url
        self._client = client
        self._trace = trace
        self._conversation = conversation

    async def read(self) -> ToolsSchema | NotGiven:
        """Return what the model is told of them; nothing where there is no endpoint.

        Raises:
            RefusedError: The endpoint does not say which there are: an agent without them would promise in vain.
        """
        if not self._url:
            return NOT_GIVEN
        try:
            answer = await self._client.get(self._url, headers=self._trace.headers(), timeout=TIMEOUT_S)
            answer.raise_for_status()
            found = _Tools.validate_json(answer.content)
        except (httpx2.HTTPError, ValidationError) as error:
            detail = f"the endpoint of the agent's tools does not say which there are: {type(error).__name__}"
            raise RefusedError(503, "tools away", detail) from None
        return ToolsSchema(standard_tools=[tool.as_pipecat() for tool in found])

    def join(self, model: LLMService[Any]) -> None:
        """Let a model's calls run."""
        model.register_function(None, self._call, timeout_secs=2 * TIMEOUT_S)

    async def _call(self, call: FunctionCallParams) -> None:
        asked = {"name": call.function_name, "arguments": dict(call.arguments), "conversation": self._conversation}
        try:
            answer = await self._client.post(self._url, json=asked, headers=self._trace.headers(), timeout=TIMEOUT_S)
            answer.raise_for_status()
            result = answer.json()
        except (httpx2.HTTPError, ValueError) as error:
            log.warning("a tool fails", extra={"fields": {"tool": call.function_name, "error": type(error).__name__}})
            result = {"error": "the tool does not answer"}
        await call.result_callback(result)
