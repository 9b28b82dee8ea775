"""Who does what a row of CONTRIBUTING.md says, and no more, is done; who forgets a file is told."""

import fnmatch
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contributing.changes import CHANGES, Change
from tests.synthesized import ROOT

IGNORED = shutil.ignore_patterns(
    ".*", "node_modules", "__pycache__", "cdk.out", "build", "subprojects", "bench", "*.png"
)
FORGOTTEN = [(kind, path) for kind, change in CHANGES.items() for path in change.without]


def table() -> dict[str, list[str]]:
    """The files that CONTRIBUTING.md names, by kind of change."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (an? [^|]+) \| ([^|]+) \| [^|]+ \|$", text, re.MULTILINE)
    return {kind.strip(): re.findall(r"`([^` ]+)`", files) for kind, files in rows}


def copied(folder: Path) -> Path:
    shutil.copytree(ROOT, folder, ignore=IGNORED)
    (folder / "node_modules").symlink_to(ROOT / "node_modules")
    return folder


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the sources of a copied tree, which come before those that are installed."""
    roots = [tree, tree / "constructs", *tree.glob("images/*/src")]
    return subprocess.run(  # noqa: S603
        [sys.executable, *arguments],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, roots))},
        capture_output=True,
        text=True,
        check=False,
    )


def voice(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(tree, "-c", "from ops.cli import main; main()", *arguments)


def complaints(tree: Path, change: Change, *, forgotten: str = "") -> str:
    """Make a change in a tree, and return what its tests and plans print when they fail; nothing when they do not."""
    for path, edit in change.files.items():
        if path != forgotten:
            file = tree / path
            file.parent.mkdir(exist_ok=True)
            file.write_text(edit.of(file.read_text(encoding="utf-8") if file.exists() else ""), encoding="utf-8")
    for path, arguments in change.made.items():
        if path != forgotten:
            (tree / path).write_text(voice(tree, *arguments).stdout, encoding="utf-8")
    done = [voice(tree, "plan", plan) for plan in change.plans]
    done.append(run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", *change.tests))
    return "\n".join(each.stdout + each.stderr for each in done if each.returncode != 0)


def test_every_kind_of_change_is_tried() -> None:
    assert table().keys() == CHANGES.keys()


@pytest.mark.parametrize("kind", CHANGES)
def test_the_named_files_are_those_that_are_edited(kind: str) -> None:
    patterns = [re.sub(r"<\w+>", "*", name) for name in table()[kind]]
    edited = [*CHANGES[kind].files, *CHANGES[kind].made]
    assert [path for path in edited if not any(fnmatch.fnmatch(path, pattern) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not fnmatch.filter(edited, pattern)] == []


@pytest.mark.nightly
@pytest.mark.parametrize("kind", CHANGES)
def test_the_named_files_are_enough(kind: str, tmp_path: Path) -> None:
    assert complaints(copied(tmp_path / "tree"), CHANGES[kind]) == ""


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "path"), FORGOTTEN)
def test_a_forgotten_file_is_told(kind: str, path: str, tmp_path: Path) -> None:
    said = complaints(copied(tmp_path / "tree"), CHANGES[kind], forgotten=path)
    assert CHANGES[kind].without[path] in said
