"""Likely words of a session, from the settings of OpenAI's clients."""

import pytest

from voice_blueprint.contract.session_api import MAX_PROMPT_CHARACTERS
from voice_gateway.realtime import TranscriptionSettings


@pytest.mark.parametrize(
    ("prompt", "keywords", "hints"),
    [
        (None, None, None),
        ("A call about Kubernetes.", None, "A call about Kubernetes."),
        (None, ["Valkey", "vLLM"], "Valkey, vLLM"),
        ("A call", ["Valkey", "vLLM"], "A call. Valkey, vLLM"),
        ("", None, ""),
        (None, [], ""),
        ("x" * (MAX_PROMPT_CHARACTERS + 1), None, "x" * MAX_PROMPT_CHARACTERS),
    ],
)
def test_a_prompt_and_keywords_are_joined(prompt: str | None, keywords: list[str] | None, hints: str | None) -> None:
    """Empty ones remove earlier hints, and absent ones keep them."""
    assert TranscriptionSettings(prompt=prompt, keywords=keywords).hints == hints
