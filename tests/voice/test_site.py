"""The built site in a browser: its diagrams are drawn, and no page sends a request to another site."""

import http.server
import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.test_site import built, copy_documents

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page.relative_to(ROOT / "docs")
    for page in (ROOT / "docs").rglob("*.md")
    if "```mermaid" in page.read_text(encoding="utf-8")
)
"""Pages with a diagram."""
OPEN_SHADOWS = """
const attach = Element.prototype.attachShadow;
Element.prototype.attachShadow = function (how) { return attach.call(this, { ...how, mode: "open" }); };
"""
"""The theme renders into a closed shadow root, which a test cannot access."""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the output of ``make docs`` for a copy of the documents."""
    folder = copy_documents(tmp_path_factory.mktemp("site"))
    done = built(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    handler = partial(Quiet, directory=str(folder / "build/site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_the_site_contains_diagrams() -> None:
    assert PAGES


@pytest.mark.parametrize("page", [*PAGES, Path("faq.md")], ids=str)
def test_a_page_makes_no_external_request_and_draws_its_diagrams(browser: Browser, site: str, page: Path) -> None:
    diagrams = len(re.findall("^```mermaid$", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE))
    address = str(page.with_suffix("")).removesuffix("index")
    with browser.new_page() as opened:
        opened.add_init_script(OPEN_SHADOWS)
        requests: list[str] = []
        opened.on("request", lambda request: requests.append(request.url))
        opened.goto(f"{site}{address}", wait_until="networkidle")
        expect(opened.locator(".mermaid svg")).to_have_count(diagrams)
        assert opened.locator("pre.mermaid").count() == 0, "a diagram is shown as its source"
        assert [each for each in requests if not each.startswith((site, "data:", "blob:"))] == []
        assert any("mermaid" in each for each in requests) == bool(diagrams)
