"""What the documents lead to is there: links, anchors, commands, targets, paths."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from typer._click import Command  # typer carries a click of its own
from typer.core import TyperGroup
from typer.main import get_command

from ops.cli import app, load_command

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for path in (
        *ROOT.glob("*.md"),
        *ROOT.glob(".github/*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("images/*/*.md"),
    )
)
TOP = {path.name for path in ROOT.iterdir() if path.is_dir() and (path.name[0] != "." or path.name == ".ci")} - {
    "build"
}
"""Folders of the root: what starts with one of them is a path in the tree."""
MADE_LATER = ("deployments/mine.yaml",)
"""Files that a guide tells its reader to write."""

_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*(?:\[\][^\]]*)*\]\(([^)\s]+)\)")


@cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def anchors(name: str) -> set[str]:
    """Anchors as GitHub makes them: lower case, no punctuation, hyphens for spaces, a number where one is taken."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ +(.+)$", _FENCED.sub("", text_of(name)), re.MULTILINE):
        shown = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def broken_links(name: str) -> list[str]:
    broken = []
    for link in _LINK.findall(_CODE.sub("", _FENCED.sub("", text_of(name)))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = ((ROOT / name).parent / path).resolve() if path else ROOT / name
        if not target.exists() or (anchor and anchor not in anchors(str(target.relative_to(ROOT)))):
            broken.append(link)
    return broken


def shown_code(name: str) -> list[str]:
    """Every line of a code block, without what a comment says, and every piece of code within a line."""
    blocks = [line for block in _FENCED.findall(text_of(name)) for line in block.splitlines()[1:-1]]
    return [line.partition(" #")[0] for line in blocks] + _CODE.findall(_FENCED.sub("", text_of(name)))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    assert broken_links(name) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other.md").write_text("# One heading\n", encoding="utf-8")
    (tmp_path / "page.md").write_text("[a](other.md#one-heading) [b](other.md#two) [c](gone.md)\n", encoding="utf-8")
    monkeypatch.setattr("tests.test_docs.ROOT", tmp_path)
    assert broken_links("page.md") == ["other.md#two", "gone.md"]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_and_targets_exist(name: str) -> None:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    targets = set(re.findall(r"^([a-z0-9-]+):", text_of("Makefile"), re.MULTILINE))
    for code in shown_code(name):
        for command in re.findall(r"(?:^|[\s/$;])voice ([a-z][a-z-]*)\b", code):
            assert command in group.commands, f"{name}: no command `voice {command}`"
        for target in re.findall(r"(?:^|[\s$;])make ([a-z][a-z0-9-]*)\b", code):
            assert target in targets, f"{name}: no target `make {target}`"


def options_of(command: Command) -> set[str]:
    parts = command.commands.values() if isinstance(command, TyperGroup) else ()
    own = {option for parameter in command.params for option in parameter.opts}
    return own.union({"--help"}, *(options_of(part) for part in parts))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_options_exist(name: str) -> None:
    for code in shown_code(name):
        for command, given in re.findall(r"(?:^|[\s/$])voice ([a-z]+)((?: [^|;#]+)?)", code):
            options = set(re.findall(r"(?<=\s)--[a-z][a-z-]*", given))
            assert options <= options_of(load_command(command)), f"{name}: `voice {command}` has no {options}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_paths_exist(name: str) -> None:
    """Code that starts with a folder of the root is a path there, or beside the document; ``<name>`` stands for any."""
    for code in shown_code(name):
        for path in re.findall(r"(?:^|(?<=\s))([\w.-]+/[\w./<>*-]*\w[\w/<>*]*)", code):
            if path.split("/")[0] in TOP and path not in MADE_LATER:
                pattern = re.sub(r"<\w+>", "*", path.rstrip("/"))
                found = [*ROOT.glob(pattern), *(ROOT / name).parent.glob(pattern)]
                assert found, f"{name}: no {path}"


ACCOUNT = 'console title="needs an account"'
"""How a block is marked whose commands only an account can answer."""
SHELL = re.compile(r"^```(console[^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
STARTS = ("voice init", "voice plan", "voice schema", "voice checks", "voice images", "voice diagram", "export ")
"""Commands of seconds: they run on every change. What takes longer runs nightly."""
BY_HAND = {
    "voice sandbox --keep": "waits until somebody ends it",
    "voice sandbox --hosts deployments/hosts.yaml": "make rehearse-hosts",
    "voice gameday deployments/sandbox.yaml": "tests/ops/gameday",
    "voice cost deployments/mine.yaml --diff HEAD": "tests/ops/cost, in a git repository of its own",
}
"""Commands that are run in another way, and by what."""


def documented(*, nightly: bool) -> list[tuple[str, str]]:
    """The commands of every document that need no account, in order, each with its document."""
    found = []
    for name in DOCUMENTS:
        for title, block in SHELL.findall(text_of(name)):
            for line in block.splitlines() if title != ACCOUNT else ():
                command = line.removeprefix("$ ").partition(" #")[0].strip().removeprefix(".venv/bin/")
                is_make = command.startswith("make ")
                if line.startswith("$ ") and not is_make and command not in BY_HAND:
                    found += [(name, command)] * (command.startswith(STARTS) != nightly)
    return list(dict.fromkeys(found))


def test_every_block_with_commands_is_one_of_the_two_kinds() -> None:
    titles = {title for name in DOCUMENTS for title, _ in SHELL.findall(text_of(name))}
    assert titles == {"console", ACCOUNT}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_targets_that_documents_show_are_run_by_ci(name: str) -> None:
    run = {"setup", "demo-page", *text_of(".ci/run").split(), *text_of(".ci/nightly").split()}
    for _, block in SHELL.findall(text_of(name)):
        for target in re.findall(r"^\$ make ([a-z-]+)", block, re.MULTILINE):
            assert target in run, f"{name}: neither .ci/run nor .ci/nightly runs {target}"


def ran(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(  # noqa: S603
        ["bash", "-c", command],  # noqa: S607
        cwd=folder,
        env=os.environ | {"PATH": path, "AWS_EC2_METADATA_DISABLED": "true"},
        input="aws\nus-east-1\n500\n20000\n",  # to `voice init` without options
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped files, and the reader's own, which most documents take for granted."""
    folder = tmp_path_factory.mktemp("files")
    shutil.copytree(ROOT / "deployments", folder / "deployments")
    assert ran("voice init deployments/mine.yaml", folder).returncode == 0
    return folder / "deployments"


def run_in_copy(folder: Path, files: Path, commands: list[str]) -> None:
    """Run commands where the files lie, and say which failed; what a check refuses is an answer too."""
    shutil.copytree(files, folder / "deployments")
    for command in commands:
        if command.startswith("voice init"):
            (folder / "deployments/mine.yaml").unlink(missing_ok=True)
        done = ran(command, folder)
        # More calls than the file carries are refused, and the table says what it should say instead.
        expected = {2} if "seed.yaml" in command else {0, 2} if "plan" in command and "--calls" in command else {0}
        assert done.returncode in expected, f"{command}: {done.stdout}{done.stderr}"


@pytest.mark.parametrize("name", sorted({name for name, _ in documented(nightly=False)}))
def test_commands_that_documents_show_run(name: str, files: Path, tmp_path: Path) -> None:
    run_in_copy(tmp_path, files, [command for document, command in documented(nightly=False) if document == name])


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "command"), documented(nightly=True))
def test_long_commands_that_documents_show_run(name: str, command: str, files: Path, tmp_path: Path) -> None:
    short = [each for document, each in documented(nightly=False) if document == name]
    run_in_copy(tmp_path, files, [*[each for each in short if each.startswith("voice init")][:1], command])


def test_the_changes_begin_with_the_version_in_hand() -> None:
    version = tomllib.loads(text_of("pyproject.toml"))["project"]["version"]
    newest, *_ = re.findall(r"^## (\S+?),", text_of("CHANGELOG.md"), re.MULTILINE)
    assert newest == version, "write a section of CHANGELOG.md for the version of pyproject.toml"


def test_the_first_look_is_short() -> None:
    assert len(text_of("README.md").splitlines()) <= 90
    assert len(text_of("README.md").split()) <= 700
