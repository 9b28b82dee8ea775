"""Tokens of a spoken turn for a model with audio input, for `voice plan`."""

from collections.abc import Iterator

from rich.table import Table

from voice_blueprint.engines.sizing.turns import QUESTION_S, TURNS, audio_chat_model, kv_megabytes, turns
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
        for heard, read in zip(turns(model, audio=True), turns(model, audio=False), strict=True):
            if heard.number in SHOWN_TURNS:
                kv = f"{kv_megabytes(model, heard.prompt + heard.generated):,.0f} MB"
                table.add_row(
                    str(heard.number),
                    f"{heard.prompt:,}",
                    f"{heard.fresh:,}",
                    f"{read.prompt:,}",
                    f"{read.fresh:,}",
                    kv,
                )
        yield table


def turns_as_dict(deployment: Deployment) -> list[dict[str, object]]:
    """Return the turns for ``--json``."""
    return [
        {
            "model": model.name,
            "turns": [
                {"turn": heard.number, "audio_tokens": heard.prompt, "audio_computed": heard.fresh,
                 "word_tokens": read.prompt, "word_computed": read.fresh}
                for heard, read in zip(turns(model, audio=True), turns(model, audio=False), strict=True)
            ],
        }
        for section in (deployment.aws_section, deployment.azure_section)
        if section and section.agents and (model := audio_chat_model(deployment, section.agents))
    ]  # fmt: skip


SHOWN_TURNS = (1, 2, 5, 6, TURNS)
"""Turns of the table: the first, the last that is all audio, and the one whose older questions are text."""
