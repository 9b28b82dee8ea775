"""What a deployment is compared with: another file, or the same file as git has it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

LAST_RELEASE = "last-release"
"""Stands for the newest tag that the commit in hand descends from."""


class NoSuchRevisionError(ValueError):
    """There is nothing to compare with; the message says why and what to give instead."""


@contextmanager
def other(file: Path, asked: str) -> Iterator[tuple[str, Path]]:
    """Yield what was asked for, its name for people and where it can be read: a file, or a git revision of ``file``.

    Raises:
        NoSuchRevisionError: It is neither, or git does not have the file there.
    """
    if asked != LAST_RELEASE and (Path(asked).exists() or Path(asked).suffix in {".yaml", ".yml"}):
        yield asked, Path(asked)
        return
    revision = _last_release(file) if asked == LAST_RELEASE else asked
    commit = _git(file, "rev-parse", "--short", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        raise NoSuchRevisionError(
            f"--diff {asked} is neither a file nor a git revision; give one of them, or {LAST_RELEASE}"
        )
    text = _git(file, "show", f"{commit}:./{file.name}")
    if text is None:
        raise NoSuchRevisionError(f"--diff {asked}: git has no {file} at {revision} ({commit})")
    with TemporaryDirectory(prefix="voice-cost-") as folder:
        path = Path(folder) / file.name
        path.write_text(text + "\n", encoding="utf-8")
        yield f"{file} at {revision} ({commit})", path


def _last_release(file: Path) -> str:
    tag = _git(file, "describe", "--tags", "--abbrev=0")
    if tag is None:
        raise NoSuchRevisionError(
            f"--diff {LAST_RELEASE}: git knows no release of {file}, since no tag leads here; "
            "give a deployment file or a revision such as HEAD~1"
        )
    return tag


def _git(file: Path, *arguments: str) -> str | None:
    """Return what git answers about the folder of a file; ``None`` where it refuses, or is not installed."""
    try:
        # Arguments, not a shell's line; revisions are set off from options.
        done = subprocess.run(  # noqa: S603
            ["git", *arguments],  # noqa: S607
            cwd=file.parent,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
