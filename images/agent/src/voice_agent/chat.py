"""The language model: one that reads what was said, or one that hears it."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipecat.adapters.llm.services.nvidia_omni_adapter import NvidiaOmniLLMAdapter
from pipecat.adapters.llm.services.open_ai_adapter import OpenAILLMInvocationParams
from pipecat.frames.frames import InputAudioRawFrame
from pipecat.metrics.metrics import LLMTokenUsage
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.nvidia.omni.llm import NvidiaOmniLLMService
from pipecat.services.openai.llm import OpenAILLMService

from blueprint.contract.session_api import ROUTING_HEADER
from voice_agent.hearing import RATE
from voice_agent.settings import AgentSettings
from voice_agent.trace import Trace

BEFORE_S = 0.5
"""Of audio kept from before a voice is noticed, which takes about 0.2 s: a question begins with its first sound."""
BYTES_A_S = 2 * RATE
LONGEST_QUESTION_BYTES = 120 * BYTES_A_S
"""Two minutes; of a longer one the model hears the end."""
TOKENS_A_S = 5
"""Of words spoken: three a second, and what marks them; a transcript takes nothing from its answer's tokens."""
TEMPERATURE = 0.2
"""What Mistral recommends for Voxtral (https://huggingface.co/mistralai/Voxtral-Small-24B-2507)."""


class Chat(OpenAILLMService):
    """A language model that is told whose request it answers.

    Args:
        asked: Told of each request its tokens and those that the engine had in its cache, by engines that say it.
    """

    supports_developer_role = False  # no template of the open models knows it

    def __init__(
        self,
        settings: AgentSettings,
        trace: Trace,
        asked: Callable[[int, int], None],
        **more: Any,  # noqa: ANN401  Pipecat's
    ) -> None:
        own = more.pop("own", {})
        super().__init__(
            # Without one, Pipecat's client asks the environment for it; engines of a cluster ask for none.
            api_key=settings.chat_key.get_secret_value() or "none",
            base_url=settings.chat_url,
            settings=self.Settings(
                model=settings.chat_model,
                system_instruction=settings.prompt,
                max_completion_tokens=settings.answer_tokens,
                **own,
            ),
            **more,
        )
        self._trace = trace
        self._asked = asked

    async def start_llm_usage_metrics(self, tokens: LLMTokenUsage) -> None:
        """Tell what a request took."""
        if tokens.cache_read_input_tokens is not None:
            self._asked(tokens.prompt_tokens, tokens.cache_read_input_tokens)

    def build_chat_completion_params(self, params_from_context: OpenAILLMInvocationParams) -> dict[str, Any]:
        """Return what a request holds."""
        headers = {**self._trace.headers(), ROUTING_HEADER: self._trace.session}
        return {**super().build_chat_completion_params(params_from_context), "extra_headers": headers}


class _OpenAIAudio(NvidiaOmniLLMAdapter):
    """Audio as OpenAI's API has it, which vLLM knows beside NVIDIA's."""

    def to_provider_content_parts(self, parts: Sequence[Mapping[str, Any]]) -> list[Any]:
        return list(parts)


class ListeningChat(Chat, NvidiaOmniLLMService):
    """A language model that is given the audio of a question, and says what it heard before it answers.

    Pipecat's service for NVIDIA's Omni does that with any model behind OpenAI's API. Only the newest question goes as
    audio: vLLM takes five pieces a request of Voxtral, and those before are remembered as words.

    Event handlers: ``on_heard``, with the words of a question.
    """

    adapter_class = _OpenAIAudio

    def __init__(
        self, settings: AgentSettings, trace: Trace, asked: Callable[[int, int], None], context: LLMContext
    ) -> None:
        own = {"pre_speech_buffer_secs": BEFORE_S, "temperature": TEMPERATURE}
        super().__init__(settings, trace, asked, context=context, own=own)
        self._register_event_handler("on_heard")

    def build_chat_completion_params(self, params_from_context: OpenAILLMInvocationParams) -> dict[str, Any]:
        params = super().build_chat_completion_params(params_from_context)
        audio = sum(len(part["input_audio"]["data"]) for part in self._active_turn_parts or () if "input_audio" in part)
        # Base64 has four characters for three bytes.
        params["max_completion_tokens"] += TOKENS_A_S * math.ceil(audio * 3 / 4 / BYTES_A_S)
        return params

    def _handle_input_audio(self, frame: InputAudioRawFrame) -> None:
        super()._handle_input_audio(frame)
        while sum(map(len, self._audio_buffer)) > LONGEST_QUESTION_BYTES:
            del self._audio_buffer[0]

    async def _emit_user_transcript(self, transcript: str) -> None:
        await super()._emit_user_transcript(transcript)
        await self._call_event_handler("on_heard", transcript)
