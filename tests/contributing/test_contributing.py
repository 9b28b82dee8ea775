"""Each change in CONTRIBUTING.md requires exactly its files, and a missing edit fails a test that reports the file."""

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

IGNORED_FILES = shutil.ignore_patterns(
    ".*", "node_modules", "__pycache__", "cdk.out", "build", "subprojects", "bench", "*.png"
)
OMISSIONS = [(kind, path) for kind, change in CHANGES.items() for path in change.without]


def table() -> dict[str, list[str]]:
    """Return the files in CONTRIBUTING.md by kind of change."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (an? [^|]+) \| ([^|]+) \| [^|]+ \|$", text, re.MULTILINE)
    return {kind.strip(): re.findall(r"`([^` ]+)`", files) for kind, files in rows}


def copy_repository(folder: Path) -> Path:
    shutil.copytree(ROOT, folder, ignore=IGNORED_FILES)
    (folder / "node_modules").symlink_to(ROOT / "node_modules")
    return folder


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the sources of a copied tree, which precede the installed ones."""
    roots = [tree, *(tree / name for name in ("constructs", "stacks", "userdata")), *tree.glob("images/*/src")]
    return subprocess.run(  # noqa: S603
        [sys.executable, *arguments],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, roots))},
        capture_output=True,
        text=True,
        check=False,
    )


def voice(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(tree, "-c", "from voice_ops.main import main; main()", *arguments)


def failure_messages(tree: Path, change: Change, *, forgotten: str = "") -> str:
    """Apply a change to a tree, and return the output of its tests and plans if they fail, otherwise nothing."""
    for path, edit in change.files.items():
        if path != forgotten:
            file = tree / path
            file.parent.mkdir(exist_ok=True)
            file.write_text(edit.apply(file.read_text(encoding="utf-8") if file.exists() else ""), encoding="utf-8")
    for path, arguments in change.made.items():
        if path != forgotten:
            output = run(tree, *arguments).stdout
            if path not in arguments:  # otherwise the command has written it
                (tree / path).write_text(output, encoding="utf-8")
    done = [voice(tree, "plan", plan) for plan in change.plans]
    done.append(run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", *change.tests))
    return "\n".join(each.stdout + each.stderr for each in done if each.returncode != 0)


def test_every_kind_of_change_is_tested() -> None:
    assert table().keys() == CHANGES.keys()


@pytest.mark.parametrize("kind", CHANGES)
def test_the_documented_files_match_the_edited_files(kind: str) -> None:
    patterns = [re.sub(r"<\w+>", "*", name) for name in table()[kind]]
    edited = [*CHANGES[kind].files]
    assert [path for path in edited if not any(fnmatch.fnmatch(path, pattern) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not fnmatch.filter(edited, pattern)] == []


@pytest.mark.parametrize("kind", CHANGES)
def test_the_text_to_edit_exists(kind: str) -> None:
    for path, edit in CHANGES[kind].files.items():
        edit.apply((ROOT / path).read_text(encoding="utf-8") if (ROOT / path).exists() else "")


@pytest.mark.nightly
@pytest.mark.parametrize("kind", CHANGES)
def test_the_documented_files_are_sufficient(kind: str, tmp_path: Path) -> None:
    assert failure_messages(copy_repository(tmp_path / "tree"), CHANGES[kind]) == ""


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "path"), OMISSIONS)
def test_an_omitted_file_is_reported(kind: str, path: str, tmp_path: Path) -> None:
    said = failure_messages(copy_repository(tmp_path / "tree"), CHANGES[kind], forgotten=path)
    assert CHANGES[kind].without[path] in said
