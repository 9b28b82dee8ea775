"""A person at the demo's page, in a real browser: presses a button, and reads what was said."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from ops.demo.command import SAMPLE_TEXT, WORST_ERROR_RATE, weights, word_error_rate
from ops.demo.services import DATA_PLANE_BUILD, VoicePath
from ops.demo.web import PageServer

FINISHED_MS = 120_000
LENGTH_MS = 24_000
"""Of the sample, whose end the microphone's listener has to wait for."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page, with the whole voice path behind it."""
    server = PageServer()
    built = DATA_PLANE_BUILD if (DATA_PLANE_BUILD / "vad-dataplane").exists() else None
    with VoicePath(tmp_path_factory.mktemp("voice"), weights(None), built, server.url) as path:
        path.start_store().wait_ready()
        gateway = path.start_gateway()
        path.start_vad()
        path.start_engine()
        path.wait_ready()
        path.wait_for_capacity(gateway)
        server.start(gateway=gateway.url)
        yield server.url
        server.stop()


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    """The page as it is opened; an error in its scripts fails the test."""
    mistakes: list[str] = []
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.goto(url)
    yield page
    page.close()
    assert mistakes == []


def finished(page: Page, tmp_path: Path) -> str:
    """Wait until the page is done, and return what it says was said."""
    page.wait_for_selector("#status[data-state=done], #status[data-state=failed]", timeout=FINISHED_MS)
    page.screenshot(path=tmp_path / "page.png")
    assert page.inner_text("#status") == "Done."
    return " ".join(page.locator("#transcript li").evaluate_all("items => items.map(item => item.lastChild.data)"))


def check_transcript(heard: str) -> None:
    assert word_error_rate(SAMPLE_TEXT.read_text(encoding="utf-8"), heard) <= WORST_ERROR_RATE, heard


def test_microphone_is_transcribed_on_the_page(page: Page, tmp_path: Path) -> None:
    page.click("#microphone")
    page.wait_for_timeout(LENGTH_MS)
    page.click("#stop")
    check_transcript(finished(page, tmp_path))


def test_page_says_what_is_wrong(page: Page) -> None:
    page.route("**/v1/sessions", lambda route: route.fulfill(status=503, json={"error": "no capacity", "detail": "x"}))
    page.click("#sample")
    page.wait_for_selector("#status[data-state=failed]")
    assert page.inner_text("#status") == "no capacity: x"
    assert page.is_enabled("#sample")
