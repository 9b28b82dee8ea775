"""The demo's page for a conversation, in a real browser with a microphone; the agent is simulated."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, WebSocketRoute

from voice_ops.demo.web import PageServer

AGENT = "ws://agent.test"
RATE = 24000
CHUNKS = 50
CHUNK_S = 0.2
QUESTION = "What is the capital of France?"
ANSWER = "The capital of France is Paris."
COUNTS = """
window.begun = window.stopped = 0;
for (const [name, counted] of [["start", "begun"], ["stop", "stopped"]]) {
  const was = AudioBufferSourceNode.prototype[name];
  AudioBufferSourceNode.prototype[name] = function (...given) { window[counted] += 1; return was.apply(this, given); };
}
"""


@pytest.fixture
def url() -> Iterator[str]:
    server = PageServer()
    server.start(agent=AGENT)
    yield server.url
    server.stop()


def event(kind: str, **fields: object) -> str:
    return json.dumps({"type": kind, **fields})


@pytest.mark.parametrize("width", [1280, 375])
def test_an_answer_is_played_and_silenced_by_speech(browser: Browser, url: str, width: int, tmp_path: Path) -> None:
    mistakes: list[str] = []
    sent: list[dict[str, Any]] = []
    sockets: list[WebSocketRoute] = []
    page: Page = browser.new_page(viewport={"width": width, "height": 700})
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.add_init_script(COUNTS)

    def agent(socket: WebSocketRoute) -> None:
        sockets.append(socket)
        socket.on_message(lambda message: sent.append(json.loads(message)))
        socket.send(event("session.created"))

    page.route_web_socket(f"{AGENT}/v1/realtime", agent)
    page.goto(f"{url}/agent.html")
    page.wait_for_selector("#talk:enabled")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # there is no mouse
    page.wait_for_function("document.getElementById('status').textContent === 'Speak.'")
    while len(sent) < CHUNKS:
        page.wait_for_timeout(20)
    assert {each["type"] for each in sent} == {"input_audio_buffer.append"}
    assert any(any(base64.b64decode(each["audio"])) for each in sent), "the microphone is not heard"
    page.wait_for_function("document.getElementById('level').value > 0.2")

    [socket] = sockets
    socket.send(event("conversation.item.input_audio_transcription.completed", transcript=QUESTION))
    tone = base64.b64encode(bytes([0, 16]) * round(CHUNK_S * RATE)).decode()
    for _ in range(CHUNKS):
        socket.send(event("response.output_audio.delta", delta=tone))
    page.wait_for_function(f"window.begun === {CHUNKS}")
    assert page.inner_text("#status") == "Answering."
    assert page.evaluate("window.stopped") == 0
    socket.send(event("response.output_audio_transcript.done", transcript=ANSWER))
    socket.send(event("response.done"))
    socket.send(event("input_audio_buffer.speech_started"))
    page.wait_for_function("document.getElementById('status').textContent === 'Listening.'")
    # Ten seconds were queued, of which the unplayed part is discarded.
    assert page.evaluate("window.stopped") > CHUNKS / 2
    page.screenshot(path=tmp_path / f"conversation-{width}.png")
    lines = page.locator("#transcript li")
    assert lines.evaluate_all("items => items.map(item => [item.dataset.who, item.textContent])") == [
        ["you", QUESTION],
        ["agent", ANSWER],
    ]
    who = lines.first.evaluate("line => getComputedStyle(line, '::before').content")
    assert who == '"you"', "nobody sees who said it"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it does not fit the screen"
    heard, said = lines.evaluate_all("items => items.map(item => item.getBoundingClientRect().toJSON())")
    assert (heard["top"], heard["right"] <= said["left"]) == (said["top"], True), "they are not side by side"
    assert re.fullmatch(r"after \d+ ms", page.inner_text("#latency"))
    for role, name in (("button", "Hang up"), ("meter", "Microphone"), ("log", "Conversation"), ("status", "")):
        assert page.get_by_role(role, name=name).count() >= 1, f"a screen reader finds no {role}"
    page.keyboard.press("Escape")
    page.wait_for_selector("#status[data-state=done]")
    assert page.is_enabled("#talk")
    assert page.evaluate("document.activeElement.id") == "talk", "the keyboard has nowhere to go on from"
    assert page.evaluate("document.getElementById('level').value") == 0
    page.close()
    assert mistakes == []


MICROPHONES = """
window.tracks = [];
const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
navigator.mediaDevices.getUserMedia = async (wanted) => {
  const stream = await open(wanted);
  window.tracks.push(...stream.getTracks());
  return stream;
};
const load = AudioWorklet.prototype.addModule;
AudioWorklet.prototype.addModule = async function (name) {
  if (await new Promise((resolve) => { window.decide = resolve; })) return load.call(this, name);
  throw new Error("no module");
};
"""
"""Keeps the microphone's tracks, and lets a test decide when the module loads, and whether it does."""
MICROPHONE_IS_OFF = "window.tracks.length > 0 && window.tracks.every((track) => track.readyState === 'ended')"


@pytest.mark.parametrize("loads", [True, False])
def test_a_refusal_before_the_microphones_module_is_loaded_is_shown(browser: Browser, url: str, *, loads: bool) -> None:
    mistakes: list[str] = []
    page = browser.new_page()
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.add_init_script(MICROPHONES)
    page.set_default_timeout(10_000)
    page.route_web_socket(f"{AGENT}/v1/realtime", lambda socket: socket.close(code=1013, reason="full"))
    page.goto(f"{url}/agent.html")
    page.click("#talk:enabled")
    page.wait_for_function("!!window.decide")
    page.wait_for_timeout(200)
    page.evaluate("loads => window.decide(loads)", loads)
    page.wait_for_selector("#status[data-state=failed]")
    page.wait_for_timeout(200)
    assert page.inner_text("#status") == "1013: full"
    assert page.evaluate(MICROPHONE_IS_OFF), "the microphone is open"
    assert page.is_enabled("#talk")
    page.close()
    assert mistakes == []


def test_a_module_that_fails_to_load_ends_the_conversation(browser: Browser, url: str) -> None:
    page = browser.new_page()
    page.add_init_script(MICROPHONES)
    page.set_default_timeout(10_000)
    closed: list[int | None] = []

    def agent(socket: WebSocketRoute) -> None:
        socket.on_close(lambda code, _reason: closed.append(code))

    page.route_web_socket(f"{AGENT}/v1/realtime", agent)
    page.goto(f"{url}/agent.html")
    page.click("#talk:enabled")
    page.wait_for_function("!!window.decide")
    page.evaluate("window.decide(false)")
    page.wait_for_selector("#status[data-state=failed]")
    page.wait_for_function(MICROPHONE_IS_OFF, timeout=5000)
    page.wait_for_timeout(200)
    assert closed, "the agent is still connected"
    assert page.inner_text("#status") == "no module"
    assert page.is_enabled("#talk")
    page.close()


@pytest.mark.parametrize(
    ("name", "button"), [("agent.html", "#talk"), ("index.html", "#microphone"), ("index.html", "#sample")]
)
def test_a_button_is_disabled_until_its_page_is_ready(browser: Browser, url: str, name: str, button: str) -> None:
    """A click before this would have no effect."""
    page = browser.new_page()
    settings: list[Route] = []

    def hold(route: Route) -> None:
        settings.append(route)

    page.route("**/config.json", hold)
    page.goto(f"{url}/{name}")
    while not settings:
        page.wait_for_timeout(20)
    assert page.is_disabled(button)
    settings[0].continue_()
    page.wait_for_selector(f"{button}:enabled")
    page.close()
