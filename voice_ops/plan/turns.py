"""Computes the tokens per spoken turn for models with audio input, for `voice plan`."""

from collections.abc import Iterator

from rich.table import Table

from voice_blueprint.engines.sizing.turns import (
    DEFAULT_TURNS,
    QUESTION_S,
    audio_chat_model,
    conversation_turns,
    kv_megabytes,
)
from voice_blueprint.file.model.deployment import Deployment
from voice_ops.output import empty_table


def turn_tables(deployment: Deployment) -> Iterator[Table]:
    """Yield a table for each section whose agents use a model with audio input."""
    for section in (deployment.aws_section, deployment.azure_section):
        if section is None or section.agents is None or (model := audio_chat_model(deployment, section.agents)) is None:
            continue
        table = empty_table(
            f"a question of {QUESTION_S:g} s to {model.name}",
            ["turn"],
            ["as audio", "computed", "as text", "computed", "KV as audio"],
            caption="tokens per request without the deployment's prompt; computed: tokens that are not in the prefix "
            "cache",
        )
        for audio_turn, text_turn in zip(
            conversation_turns(model, audio=True), conversation_turns(model, audio=False), strict=True
        ):
            if audio_turn.number in SHOWN_TURNS:
                kv = f"{kv_megabytes(model, audio_turn.prompt + audio_turn.generated):,.0f} MB"
                table.add_row(
                    str(audio_turn.number),
                    f"{audio_turn.prompt:,}",
                    f"{audio_turn.fresh:,}",
                    f"{text_turn.prompt:,}",
                    f"{text_turn.fresh:,}",
                    kv,
                )
        yield table


def turns_as_dict(deployment: Deployment) -> list[dict[str, object]]:
    """Return the tokens of each turn as audio and as text, for ``--json``."""
    return [
        {
            "model": model.name,
            "turns": [
                {"turn": audio_turn.number, "audio_tokens": audio_turn.prompt, "audio_computed": audio_turn.fresh,
                 "word_tokens": text_turn.prompt, "word_computed": text_turn.fresh}
                for audio_turn, text_turn in zip(
                    conversation_turns(model, audio=True), conversation_turns(model, audio=False), strict=True
                )
            ],
        }
        for section in (deployment.aws_section, deployment.azure_section)
        if section and section.agents and (model := audio_chat_model(deployment, section.agents))
    ]  # fmt: skip


SHOWN_TURNS = (1, 2, 5, 6, DEFAULT_TURNS)
"""Numbers of the turns in the table: the first two, the last with all questions as audio, the next, and the last."""
