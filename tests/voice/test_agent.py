"""A spoken question has a spoken answer, over programs and models that are all real."""

import asyncio
from collections.abc import Iterator

import pytest

from ops.demo.agent.command import WORST_ERROR_RATE, started, talk
from ops.demo.agent.services import AgentPath

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentPath]:
    with started(tmp_path_factory.mktemp("agent")) as path:
        yield path


def test_an_answer_is_heard_as_it_was_given(path: AgentPath) -> None:
    held = asyncio.run(talk(path, ["What is the capital of France?"]))
    [turn] = held.turns
    assert turn.text
    assert turn.error_rate <= WORST_ERROR_RATE, turn
    assert {"endpointing_wait", "transcription", "llm_inference", "speech_synthesis"} <= held.stages_ms[0].keys()
