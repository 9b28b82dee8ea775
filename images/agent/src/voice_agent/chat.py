"""Services for language models with text input or with audio input."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipecat.adapters.llm.services.nvidia_omni_adapter import NvidiaOmniLLMAdapter
from pipecat.adapters.llm.services.open_ai_adapter import OpenAILLMInvocationParams
from pipecat.frames.frames import InputAudioRawFrame
from pipecat.metrics.metrics import LLMTokenUsage
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.nvidia.omni.llm import NvidiaOmniLLMService
from pipecat.services.openai.llm import OpenAILLMService

from voice_agent.settings import AgentSettings
from voice_agent.speech_to_text import SAMPLE_RATE_HZ
from voice_agent.trace import Trace
from voice_agent.usage import Usage
from voice_blueprint.contract.media import MAX_AUDIO_INPUTS
from voice_blueprint.contract.session_api import ROUTING_HEADER

PRE_ROLL_S = 0.5
"""Duration of the audio kept from before voice detection, so that a question includes its first sound. Detection takes
about 0.2 s."""
BYTES_PER_S = 2 * SAMPLE_RATE_HZ
MAX_QUESTION_BYTES = 120 * BYTES_PER_S
"""Maximum size of a question's audio, which is two minutes. Only the end of a longer question is used."""
CHAT_TIMEOUT_S = 30.0
"""Timeout for the next part of an answer, since callers hang up after a longer silence."""
TRANSCRIPT_TOKENS_PER_S = 5
"""Tokens per second of speech: three words, plus markup. They are added to the answer's token limit, so that the
transcript does not shorten the answer."""
TEMPERATURE = 0.2
"""Recommended by Mistral for Voxtral (https://huggingface.co/mistralai/Voxtral-Small-24B-2507)."""


class ChatLLMService(OpenAILLMService):
    """A language model whose requests identify their conversation.

    Args:
        on_usage: Callback that receives the number of prompt tokens of each request, and how many of them were cached,
            if the engine reports cached tokens.
    """

    supports_developer_role = False  # no chat template of the open models supports it

    def __init__(
        self,
        settings: AgentSettings,
        trace: Trace,
        on_usage: Callable[[int, int], None],
        usage: Usage,
        **service_options: Any,  # noqa: ANN401  Pipecat's
    ) -> None:
        own_settings = service_options.pop("own", {})
        super().__init__(
            # Without a key, Pipecat's client reads one from the environment. Engines in a cluster require no key.
            api_key=settings.chat_key.get_secret_value() or "none",
            base_url=settings.chat_url,
            settings=self.Settings(
                model=settings.chat_model,
                system_instruction=settings.prompt,
                max_completion_tokens=settings.answer_tokens,
                **own_settings,
            ),
            **service_options,
        )
        self._trace = trace
        self._on_usage = on_usage
        self._usage = usage

    def create_client(self, *arguments: Any, **client_options: Any) -> Any:  # noqa: ANN401  Pipecat's
        """Create the client for the engine, with shorter timeouts than the client's defaults."""
        client = super().create_client(*arguments, **client_options)
        return client.with_options(timeout=CHAT_TIMEOUT_S, max_retries=1)

    async def start_llm_usage_metrics(self, tokens: LLMTokenUsage) -> None:
        """Report the usage of a request."""
        self._usage.prompt_tokens += tokens.prompt_tokens
        self._usage.answer_tokens += tokens.completion_tokens
        if tokens.cache_read_input_tokens is not None:
            self._on_usage(tokens.prompt_tokens, tokens.cache_read_input_tokens)

    def build_chat_completion_params(self, params_from_context: OpenAILLMInvocationParams) -> dict[str, Any]:
        """Return the parameters of a request."""
        headers = {**self._trace.build_headers(), ROUTING_HEADER: self._trace.session_digest}
        return {**super().build_chat_completion_params(params_from_context), "extra_headers": headers}


class _OpenAIAudioAdapter(NvidiaOmniLLMAdapter):
    """Adapter that sends audio in the format of OpenAI's API, which vLLM supports in addition to NVIDIA's format."""

    def to_provider_content_parts(self, parts: Sequence[Mapping[str, Any]]) -> list[Any]:
        return list(parts)


@dataclass(frozen=True)
class Question:
    """A question that the model has transcribed.

    Attributes:
        transcript: Transcript of the question, as in the context.
        content_parts: Content of the request: the question's audio, and the instruction.
    """

    transcript: str
    content_parts: list[dict[str, Any]]


class AudioChatLLMService(ChatLLMService, NvidiaOmniLLMService):
    """A language model that receives the audio of a question, and transcribes the question before answering.

    Pipecat's service for NVIDIA's Omni supports any model with OpenAI's API. Earlier questions are sent as the same
    audio again, up to Voxtral's limit for a request, so that an engine can use its prefix cache. Above this limit, the
    older half of the questions is replaced with text at once. If they were replaced one by one, each request would have
    a different prefix.

    Event handlers: ``on_heard``, with the transcript of a question.
    """

    adapter_class = _OpenAIAudioAdapter

    def __init__(
        self,
        settings: AgentSettings,
        trace: Trace,
        on_usage: Callable[[int, int], None],
        usage: Usage,
        context: LLMContext,
    ) -> None:
        extra_settings = {"pre_speech_buffer_secs": PRE_ROLL_S, "temperature": TEMPERATURE}
        super().__init__(settings, trace, on_usage, usage, context=context, own=extra_settings)
        self._register_event_handler("on_heard")
        self._questions: list[Question] = []

    def build_chat_completion_params(self, params_from_context: OpenAILLMInvocationParams) -> dict[str, Any]:
        params = super().build_chat_completion_params(params_from_context)
        # A request without audio, such as one after a tool call, requires no transcript, so the instruction is omitted.
        if self.current_turn_has_user_audio():
            params["messages"] = _merge_system_message(self._insert_question_audio(params["messages"]))
        audio = sum(len(part["input_audio"]["data"]) for part in self._active_turn_parts or () if "input_audio" in part)
        # Base64 has four characters for three bytes.
        params["max_completion_tokens"] += TRANSCRIPT_TOKENS_PER_S * math.ceil(audio * 3 / 4 / BYTES_PER_S)
        return params

    def _handle_input_audio(self, frame: InputAudioRawFrame) -> None:
        super()._handle_input_audio(frame)
        while sum(map(len, self._audio_buffer)) > MAX_QUESTION_BYTES:
            del self._audio_buffer[0]

    def _insert_question_audio(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Replace the text of questions with their audio, if the audio is still available.

        If several questions have the same text, the newest one is matched first.
        """
        questions, result = list(self._questions), []
        for message in reversed(messages):
            if questions and message["role"] == "user" and message["content"] == questions[-1].transcript:
                result.append({"role": "user", "content": list(questions.pop().content_parts)})
            else:
                result.append(message)
        return result[::-1]

    def _store_question(self, question: Question) -> None:
        """Keep the audio of a question for later requests. Above the limit, drop the older half."""
        self._questions.append(question)
        if len(self._questions) >= MAX_AUDIO_INPUTS:
            del self._questions[: -(MAX_AUDIO_INPUTS // 2)]

    async def _emit_user_transcript(self, transcript: str) -> None:
        await super()._emit_user_transcript(transcript)
        self._store_question(Question(transcript, list(self._active_turn_parts or ())))
        await self._call_event_handler("on_heard", transcript)


def _merge_system_message(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with the system message merged into the first user message.

    Voxtral's tokenizer rejects a request with both audio and a system message (mistral_common 1.13.1:
    ``tokens/tokenizers/instruct.py``, ``InstructTokenizerV7.validate_messages``).
    """
    rest = [message for message in messages if message["role"] != "system"]
    first = [{"type": "text", "text": message["content"]} for message in messages if message["role"] == "system"]
    if rest and rest[0]["role"] == "user":
        content = rest.pop(0)["content"]
        first += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [{"role": "user", "content": first}, *rest]
