"""Tokens in a spoken turn for a model with audio input, for questions sent as audio and as text."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from voice_blueprint import catalog
from voice_blueprint.catalog.inference import ModelCard, ModelTask
from voice_blueprint.contract.media import MAX_AUDIO_INPUTS
from voice_blueprint.engines.sizing.memory import calculate_kv_bytes_per_token
from voice_blueprint.file.model.agents import AgentPods, AwsAgents, ClusterService
from voice_blueprint.file.model.deployment import Deployment

QUESTION_DURATION_S = 5.0
"""Duration of a question. ASSUMED."""
WORD_TOKENS_PER_S = 4
"""Tokens per second of speech as text: three words. ASSUMED."""
TOKENS_PER_ANSWER = 40
"""Tokens in an answer of one or two short sentences. ASSUMED."""
INSTRUCTION_TOKEN_COUNT = 48
"""Tokens in the instruction to transcribe, which is sent with each audio question (Pipecat's text, number of words
times 1.3)."""
DEFAULT_TURN_COUNT = 10


@dataclass(frozen=True)
class Turn:
    """A turn in a conversation.

    Attributes:
        number: Number of the turn, starting at 1.
        prompt_tokens: Tokens of the request, without the system prompt.
        uncached_tokens: Tokens after the longest prefix shared with an earlier request; an engine with a cache computes
            only these.
        generated_tokens: Tokens of the answer.
    """

    number: int
    prompt_tokens: int
    uncached_tokens: int
    generated_tokens: int


def iter_conversation_turns(model: ModelCard, *, audio: bool, count: int = DEFAULT_TURN_COUNT) -> Iterator[Turn]:
    """Yield the turns of a conversation as ``voice_agent/chat.py`` requests them.

    Args:
        audio: Whether questions are sent as audio, including as many earlier questions as a request may contain, or as
            text.
    """
    words = round(QUESTION_DURATION_S * WORD_TOKENS_PER_S)
    audio_tokens = round(QUESTION_DURATION_S * (model.audio_tokens_per_s or 0)) + INSTRUCTION_TOKEN_COUNT
    question_tokens: list[int] = []
    cached_tokens: list[int] = []
    for number in range(1, count + 1):
        question_tokens.append(audio_tokens if audio else words)
        request = [tokens for question in question_tokens for tokens in (question, TOKENS_PER_ANSWER)][:-1]
        shared = takewhile(lambda pair: pair[0] == pair[1], zip(cached_tokens, request, strict=False))
        prompt = sum(request)
        yield Turn(
            number, prompt, prompt - sum(tokens for tokens, _ in shared), TOKENS_PER_ANSWER + (words if audio else 0)
        )
        # A text answer follows its question in the cache; an answer to audio was generated after a transcript.
        cached_tokens = request if audio else [*request, TOKENS_PER_ANSWER]
        if audio and question_tokens.count(audio_tokens) == MAX_AUDIO_INPUTS:
            question_tokens = [words] * (len(question_tokens) - MAX_AUDIO_INPUTS // 2) + [audio_tokens] * (
                MAX_AUDIO_INPUTS // 2
            )


def find_audio_chat_model(deployment: Deployment, agents: AwsAgents | AgentPods) -> ModelCard | None:
    """Return the model that transcribes audio for the agents, if it is in the catalogue."""
    if agents.listening != "audio":
        return None
    chat = agents.chat
    named = (
        next((each.model for each in deployment.azure.services if each.name == chat.service), "")
        if isinstance(chat, ClusterService)
        else chat.model
    )
    cards = catalog.models().values()
    return next(
        (each for each in cards if named in (each.name, each.repository) and each.task is ModelTask.AUDIO_CHAT), None
    )


def calculate_kv_cache_mb(model: ModelCard, tokens: int) -> float:
    """Return the size of the KV cache for this many tokens, MB."""
    return tokens * calculate_kv_bytes_per_token(model) / 1e6
