"""The demo's page in a real browser: a user presses a button, and reads the transcript."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from voice_ops.demo.command import MAX_WORD_ERROR_RATE, SAMPLE_TEXT_FILE, calculate_word_error_rate, find_weights
from voice_ops.demo.services import DATA_PLANE_BUILD, VoicePath
from voice_ops.demo.web import PageServer

FINISHED_MS = 120_000
SAMPLE_DURATION_MS = 24_000
"""Duration of the sample, for whose end a test with the microphone must wait."""

RECORDED_MS = 12_000
"""Two sentences from the microphone, and the beginning of a third."""
RECORD = """async ([url, protocols, recordedMs]) => {
    const socket = new WebSocket(url, protocols);
    const told = [];
    const closed = new Promise((resolve) => { socket.onclose = ({ code }) => resolve(code); });
    socket.onmessage = ({ data }) => {
        const message = JSON.parse(data);
        if (message.type === "Results" && message.is_final) told.push(message.channel.alternatives[0].transcript);
    };
    await new Promise((resolve, reject) => { socket.onopen = resolve; socket.onerror = reject; });
    const microphone = await navigator.mediaDevices.getUserMedia({ audio: true });
    const recorder = new MediaRecorder(microphone, { mimeType: "audio/webm;codecs=opus" });
    recorder.ondataavailable = ({ data }) => socket.send(data);
    const stopped = new Promise((resolve) => { recorder.onstop = resolve; });
    recorder.start(250);
    await new Promise((resolve) => setTimeout(resolve, recordedMs));
    recorder.stop();
    await stopped;
    socket.send(JSON.stringify({ type: "CloseStream" }));
    return { protocol: socket.protocol, code: await closed, told };
}"""
"""A page that uses Deepgram's protocol: a key as a subprotocol, and WebM from the browser's recorder."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the page with the complete voice path."""
    server = PageServer()
    built = DATA_PLANE_BUILD if (DATA_PLANE_BUILD / "vad-dataplane").exists() else None
    with VoicePath(tmp_path_factory.mktemp("voice"), find_weights(None), built, server.url) as path:
        path.start_store().wait_until_ready()
        gateway = path.start_gateway()
        path.start_vad()
        path.start_engine()
        path.wait_until_ready()
        path.wait_for_capacity(gateway)
        server.start(gateway=gateway.url)
        yield server.url
        server.stop()


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    """Open the page; an error in its scripts fails the test."""
    mistakes: list[str] = []
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.goto(url)
    yield page
    page.close()
    assert mistakes == []


def wait_for_transcript(page: Page, tmp_path: Path) -> str:
    """Wait until the page has finished, and return its transcript."""
    page.wait_for_selector("#status[data-state=done], #status[data-state=failed]", timeout=FINISHED_MS)
    page.screenshot(path=tmp_path / "page.png")
    assert page.inner_text("#status") == "Done."
    return " ".join(page.locator("#transcript li").evaluate_all("items => items.map(item => item.lastChild.data)"))


def check_transcript(transcript: str) -> None:
    assert calculate_word_error_rate(SAMPLE_TEXT_FILE.read_text(encoding="utf-8"), transcript) <= MAX_WORD_ERROR_RATE, (
        transcript
    )


def test_microphone_is_transcribed_on_the_page(page: Page, tmp_path: Path) -> None:
    page.click("#microphone")
    page.wait_for_timeout(SAMPLE_DURATION_MS)
    page.click("#stop")
    check_transcript(wait_for_transcript(page, tmp_path))


def test_audio_of_a_media_recorder_is_transcribed_without_a_library(page: Page) -> None:
    """The page has another origin than the gateway, and each test uses a private window."""
    gateway: str = page.evaluate("fetch('config.json').then((answer) => answer.json()).then(({ gateway }) => gateway)")
    listen = f"{gateway.replace('http', 'ws', 1)}/v1/listen?language=en"
    found = page.evaluate(RECORD, [listen, ["token", "any-key"], RECORDED_MS])
    assert (found["protocol"], found["code"]) == ("token", 1000)
    heard = " ".join(found["told"])
    assert all(word in heard.lower() for word in ("whole system", "one machine", "answer")), heard


def test_page_shows_errors(page: Page) -> None:
    page.route("**/v1/sessions", lambda route: route.fulfill(status=503, json={"error": "no capacity", "detail": "x"}))
    page.click("#sample")
    page.wait_for_selector("#status[data-state=failed]")
    assert page.inner_text("#status") == "no capacity: x"
    assert page.is_enabled("#sample")
