"""Computes the tokens per spoken turn for models with audio input, for `voice plan`."""

from collections.abc import Iterator

from rich.table import Table

from voice_blueprint.engines.sizing.turns import (
    DEFAULT_TURN_COUNT,
    QUESTION_DURATION_S,
    calculate_kv_cache_mb,
    find_audio_chat_model,
    iter_conversation_turns,
)
from voice_blueprint.file.model.deployment import Deployment
from voice_ops.output import create_table


def create_turn_tables(deployment: Deployment) -> Iterator[Table]:
    """Yield a table for each section whose agents use a model with audio input."""
    for section in (deployment.aws_section, deployment.azure_section):
        if (
            section is None
            or section.agents is None
            or (model := find_audio_chat_model(deployment, section.agents)) is None
        ):
            continue
        table = create_table(
            f"a question of {QUESTION_DURATION_S:g} s to {model.name}",
            ["turn"],
            ["as audio", "computed", "as text", "computed", "KV as audio"],
            caption="tokens per request without the deployment's prompt; computed: tokens that are not in the prefix "
            "cache",
        )
        for audio_turn, text_turn in zip(
            iter_conversation_turns(model, audio=True), iter_conversation_turns(model, audio=False), strict=True
        ):
            if audio_turn.number in SHOWN_TURNS:
                kv = f"{calculate_kv_cache_mb(model, audio_turn.prompt_tokens + audio_turn.generated_tokens):,.0f} MB"
                table.add_row(
                    str(audio_turn.number),
                    f"{audio_turn.prompt_tokens:,}",
                    f"{audio_turn.uncached_tokens:,}",
                    f"{text_turn.prompt_tokens:,}",
                    f"{text_turn.uncached_tokens:,}",
                    kv,
                )
        yield table


def serialize_turns(deployment: Deployment) -> list[dict[str, object]]:
    """Return the tokens of each turn as audio and as text, for ``--json``."""
    return [
        {
            "model": model.name,
            "turns": [
                {"turn": audio_turn.number,
                 "audio_tokens": audio_turn.prompt_tokens, "audio_computed": audio_turn.uncached_tokens,
                 "word_tokens": text_turn.prompt_tokens, "word_computed": text_turn.uncached_tokens}
                for audio_turn, text_turn in zip(
                    iter_conversation_turns(model, audio=True), iter_conversation_turns(model, audio=False), strict=True
                )
            ],
        }
        for section in (deployment.aws_section, deployment.azure_section)
        if section and section.agents and (model := find_audio_chat_model(deployment, section.agents))
    ]  # fmt: skip


SHOWN_TURNS = (1, 2, 5, 6, DEFAULT_TURN_COUNT)
"""Numbers of the turns in the table: the first two, the last with all questions as audio, the next, and the last."""
