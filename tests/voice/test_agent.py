"""Conversations with the agent, with only real programs and models."""

import asyncio
import base64
from collections.abc import Iterator

import numpy as np
import pytest
import soxr
from faster_whisper import WhisperModel
from playwright.sync_api import Browser, Page

from voice_blueprint.contract.session_api import TOKEN_HEADER
from voice_ops.demo.agent.caller import FRAME_S, SAMPLE_RATE_HZ, SAMPLES_PER_FRAME, Caller, Samples
from voice_ops.demo.agent.command import (
    INTERRUPTION_TEXT,
    LONG_STORY_PROMPT,
    MAX_WORD_ERROR_RATE,
    QUESTIONS,
    Turn,
    read_conversation,
    read_token_counts,
    resample_for_caller,
    run_conversation,
    start_services,
    transcribe,
)
from voice_ops.demo.agent.services import AgentPath, fetch_text
from voice_ops.demo.services import LOOPBACK
from voice_ops.demo.web import PageServer
from voice_runtime.store import connect

pytestmark = pytest.mark.nightly

QUESTION = QUESTIONS[0]
SPEAKER_RATE = 24000
LONG_ANSWER_S = 5.0
"""Minimum duration of a long answer."""
PATIENCE_MS = 120_000
MICROPHONE = """
const context = new AudioContext();
const microphone = context.createMediaStreamDestination();
navigator.mediaDevices.getUserMedia = async () => microphone.stream;
window.say = (pcm, rate) => {
  const samples = new Int16Array(Uint8Array.from(atob(pcm), (letter) => letter.charCodeAt(0)).buffer);
  const buffer = context.createBuffer(1, samples.length, rate);
  buffer.getChannelData(0).set(Float32Array.from(samples, (value) => value / 32768));
  const source = new AudioBufferSourceNode(context, { buffer });
  source.connect(microphone);
  source.start();
};
window.played = [];
const { start } = AudioBufferSourceNode.prototype;
AudioBufferSourceNode.prototype.start = function (...given) {
  if (this.context !== context) window.played.push(...this.buffer.getChannelData(0));
  return start.apply(this, given);
};
"""
"""A microphone that plays given audio, and a recording of the loudspeaker."""
RECORD_STATUSES = """() => {
  window.statuses = [];
  const status = document.getElementById("status");
  const record = () => {
    if (status.textContent !== window.statuses.at(-1)) window.statuses.push(status.textContent);
  };
  new MutationObserver(record).observe(status, { childList: true, characterData: true, subtree: true });
}"""
"""Records each new status of the page."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentPath]:
    with start_services(tmp_path_factory.mktemp("agent")) as path:
        yield path


def test_answers_are_transcribed_correctly(path: AgentPath) -> None:
    held = asyncio.run(run_conversation(path, [QUESTION]))
    [turn] = held.turns
    assert turn.text
    assert turn.error_rate <= MAX_WORD_ERROR_RATE, turn
    assert {"endpointing_wait", "transcription", "llm_inference", "speech_synthesis"} <= held.stages_ms[0].keys()


def test_the_conversation_of_a_returning_caller_is_a_prefix_cache_hit(path: AgentPath) -> None:
    first, second = asyncio.run(ask_twice(path))
    assert second["cached"] >= first["tokens"], f"hit rate {second['cached'] / second['tokens']:.0%}"


async def ask_twice(path: AgentPath) -> list[dict[str, int]]:
    url, store = f"ws://{LOOPBACK}:{path.ports['agent']}/v1/conversations", connect(path.store_settings)
    rate, before = int(fetch_text(f"http://{LOOPBACK}:{path.ports['speech']}/") or 0), len(read_token_counts(path))

    async def ask(caller: Caller, text: str, messages: int) -> None:
        async def is_answered() -> bool:
            return len(await read_conversation(store, caller.conversation)) == messages

        await caller.ask_question(resample_for_caller(path.synthesize(text), rate), is_answered)

    async with Caller(url) as caller:
        await ask(caller, QUESTION, 2)
    async with Caller(f"{url}/{caller.conversation}", {TOKEN_HEADER: caller.token}) as again:
        await ask(again, QUESTIONS[1], 4)
    await store.aclose()
    return read_token_counts(path)[before:]


class LoudspeakerCaller(Caller):
    """A caller without echo cancellation: the microphone records what the loudspeaker plays, quieter and later."""

    GAIN = 0.3
    DELAY_S = 0.15

    def _reset(self) -> None:
        super()._reset()
        self._echoed = 0

    def _record_frame(self, samples: Samples) -> Samples:
        size = round(self.heard_rate * FRAME_S)
        played_until = (
            self._get_current_time()
            - self.DELAY_S
            - (self._playback_ends_at - self._get_received_audio().size / self.heard_rate)
        )
        if not self._playback_ends_at or (self._echoed + 1) * FRAME_S > played_until:
            return samples  # nothing was played at this time, or playback was paused
        played = self._get_received_audio()[self._echoed * size : (self._echoed + 1) * size]
        self._echoed += 1
        echo = np.resize(soxr.resample(played.astype(np.float32), self.heard_rate, SAMPLE_RATE_HZ), SAMPLES_PER_FRAME)
        return np.clip(samples + self.GAIN * echo, -32768, 32767).astype(np.int16)


def test_an_answer_from_a_loudspeaker_does_not_interrupt_itself(path: AgentPath) -> None:
    rate = int(fetch_text(f"http://{LOOPBACK}:{path.ports['speech']}/") or 0)

    async def listen() -> tuple[list[dict[str, str]], int, int]:
        store = connect(path.store_settings)
        async with LoudspeakerCaller(f"ws://{LOOPBACK}:{path.ports['agent']}/v1/conversations") as caller:

            async def is_answered() -> bool:
                return len(await read_conversation(store, caller.conversation)) >= 2

            heard = await caller.ask_question(
                resample_for_caller(path.synthesize(LONG_STORY_PROMPT), rate), is_answered
            )
            said = await read_conversation(store, caller.conversation)
            assert caller._echoed * FRAME_S > LONG_ANSWER_S, "the microphone has recorded no answer"
            result = said, caller.interruptions, heard.size
        await store.aclose()
        return result

    said, interruptions, samples = asyncio.run(listen())
    assert [each["role"] for each in said] == ["user", "assistant"]
    assert interruptions == 1, "that was the turn's own beginning"
    assert samples / SPEAKER_RATE > LONG_ANSWER_S


def test_the_page_plays_the_answer_and_speech_interrupts_it(path: AgentPath, browser: Browser) -> None:
    mistakes: list[str] = []
    server = PageServer()
    server.start(agent=f"ws://{LOOPBACK}:{path.ports['agent']}")
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.add_init_script(MICROPHONE)
    page.goto(f"{server.url}/agent.html")
    page.click("#talk")
    status = "document.getElementById('status').textContent"
    page.wait_for_function(f"{status} === 'Speak.'")

    say(page, path, QUESTION)
    page.wait_for_selector("#transcript li[data-who=agent]")
    page.wait_for_function(f"{status} === 'Speak.'")
    asked, answered = (page.locator(f"#transcript li[data-who={who}]").first.inner_text() for who in ("you", "agent"))
    assert "France" in asked
    heard = np.asarray(32767 * np.asarray(page.evaluate("window.played")), np.int16)
    whisper = WhisperModel(str(path.model), device="cpu", compute_type="int8", cpu_threads=1)
    turn = Turn(answered, transcribe(whisper, heard, SPEAKER_RATE))
    assert turn.error_rate <= MAX_WORD_ERROR_RATE, turn

    page.evaluate(RECORD_STATUSES)
    say(page, path, LONG_STORY_PROMPT)
    page.wait_for_function("window.statuses.at(-1) === 'Answering.'")
    page.evaluate("window.statuses = []")
    say(page, path, INTERRUPTION_TEXT)
    page.wait_for_selector("#transcript li[data-who=you] >> nth=2")
    statuses = page.evaluate("window.statuses")
    began, ended = statuses.index("Listening."), statuses.index("Thinking.")
    assert ended == began + 1, f"the old answer is heard again: {statuses}"
    assert page.locator("#transcript li[data-who=agent]").count() == 1, "the answer was over before the objection"
    page.click("#stop")
    page.wait_for_selector("#status[data-state=done]")
    page.close()
    server.stop()
    assert mistakes == []


def say(page: Page, path: AgentPath, text: str) -> None:
    rate = int(fetch_text(f"http://{LOOPBACK}:{path.ports['speech']}/") or 0)
    page.evaluate("([pcm, rate]) => window.say(pcm, rate)", [base64.b64encode(path.synthesize(text)).decode(), rate])
