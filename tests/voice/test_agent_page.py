"""The demo's page for a conversation, in a real browser with a microphone; what the agent sends is told here."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, WebSocketRoute

from ops.demo.web import PageServer

AGENT = "ws://agent.test"
RATE = 24000
PIECES = 50
PIECE_S = 0.2
ASKED = "What is the capital of France?"
ANSWERED = "The capital of France is Paris."
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
def test_an_answer_is_played_and_silenced_by_who_speaks(browser: Browser, url: str, width: int, tmp_path: Path) -> None:
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
    page.click("#talk")
    page.wait_for_function("document.getElementById('status').textContent === 'Speak.'")
    while len(sent) < PIECES:
        page.wait_for_timeout(20)
    assert {each["type"] for each in sent} == {"input_audio_buffer.append"}
    assert any(any(base64.b64decode(each["audio"])) for each in sent), "the microphone is not heard"

    [socket] = sockets
    socket.send(event("conversation.item.input_audio_transcription.completed", transcript=ASKED))
    tone = base64.b64encode(bytes([0, 16]) * round(PIECE_S * RATE)).decode()
    for _ in range(PIECES):
        socket.send(event("response.output_audio.delta", delta=tone))
    page.wait_for_function(f"window.begun === {PIECES}")
    assert page.inner_text("#status") == "Answering."
    assert page.evaluate("window.stopped") == 0
    socket.send(event("response.output_audio_transcript.done", transcript=ANSWERED))
    socket.send(event("response.done"))
    socket.send(event("input_audio_buffer.speech_started"))
    page.wait_for_function("document.getElementById('status').textContent === 'Listening.'")
    # Ten seconds were to be played: all that had not been heard is thrown away.
    assert page.evaluate("window.stopped") > PIECES / 2
    page.screenshot(path=tmp_path / f"conversation-{width}.png")
    lines = page.locator("#transcript li")
    assert lines.evaluate_all("items => items.map(item => [item.dataset.who, item.textContent])") == [
        ["you", ASKED],
        ["agent", ANSWERED],
    ]
    who = lines.first.evaluate("line => getComputedStyle(line, '::before').content")
    assert who == '"you"', "nobody sees who said it"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it does not fit the screen"
    page.click("#stop")
    page.wait_for_selector("#status[data-state=done]")
    assert page.is_enabled("#talk")
    page.close()
    assert mistakes == []
