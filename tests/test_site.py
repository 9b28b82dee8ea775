"""The documentation site builds without warnings, every link has a target, and a broken link is an error."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.nonempty import nonempty
from voice_ops.reference import DOCS_FOLDER, render_pages

ROOT = Path(__file__).parents[1]


def built(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the documents of a folder, like ``make docs`` once the packages are installed."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["make", "--old-file=.venv/.dev", "docs"],  # noqa: S607
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def copy_documents(folder: Path) -> Path:
    """Return a folder with a copy of the documents."""
    shutil.copy(ROOT / "zensical.toml", folder)  # a link would refer to its own folder
    for name in ("Makefile", "node_modules"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "docs", folder / "docs")
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_documents(tmp_path_factory.mktemp("site"))
    done = built(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "build/site"


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, _tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name == "id" and value:
                self.anchors.add(value)


def broken_links(site: Path) -> Iterator[str]:
    pages = {file: Page(file.read_text(encoding="utf-8")) for file in site.rglob("*.html") if file.name != "404.html"}
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            lost = target in pages and parts.fragment and parts.fragment not in pages[target].anchors
            if not target.exists() or (lost and not parts.fragment.startswith("__")):
                yield f"{file.relative_to(site)}: {link}"


def test_every_link_of_the_site_has_a_target(site: Path) -> None:
    assert len(list(site.rglob("index.html"))) > 60
    assert list(broken_links(site)) == []


def test_every_document_is_in_the_site_and_reached_from_its_menu(site: Path) -> None:
    documents = {file.relative_to(ROOT / "docs") for file in (ROOT / "docs").rglob("*.md")}
    menu = Page((site / "index.html").read_text(encoding="utf-8")).links
    for document in nonempty(documents):
        page = document.parent if document.stem in ("index", "README") else document.with_suffix("")
        assert (site / page / "index.html").exists(), document
        if document.parts[0] not in ("index.md", "decisions", "runbooks"):
            assert any((site / link).resolve() == (site / page).resolve() for link in menu), f"{document}: in no menu"


@pytest.mark.parametrize("link", ["[a](gone.md)", "[a](architecture.md#gone)"])
def test_a_broken_link_is_an_error(link: str, tmp_path: Path) -> None:
    with (copy_documents(tmp_path) / "docs/faq.md").open("a", encoding="utf-8") as page:
        page.write(f"\n{link}\n")
    done = built(tmp_path)
    assert done.returncode != 0
    assert "faq.md" in done.stdout + done.stderr


@pytest.mark.parametrize(("name", "text"), render_pages().items(), ids=render_pages())
def test_the_references_match_the_code(name: str, text: str) -> None:
    page = (DOCS_FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert page == text, f"docs/{name}.md is stale: run `make generate`"
