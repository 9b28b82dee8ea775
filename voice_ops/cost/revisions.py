"""Base of a comparison: another file, or the same file at a git revision."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

LAST_RELEASE = "last-release"
"""Name for the newest tag that is an ancestor of the current commit."""


class NoSuchRevisionError(ValueError):
    """There is no file to compare with. The message contains the reason and the remedy."""


@contextmanager
def open_comparison(file: Path, target: str) -> Iterator[tuple[str, Path]]:
    """Yield a label and a readable path for a comparison: a file, or a git revision of ``file``.

    Raises:
        NoSuchRevisionError: The argument is neither a file nor a revision, or the revision does not contain the file.
    """
    if target != LAST_RELEASE and (Path(target).exists() or Path(target).suffix in {".yaml", ".yml"}):
        yield target, Path(target)
        return
    revision = _find_last_release(file) if target == LAST_RELEASE else target
    commit = _run_git(file, "rev-parse", "--short", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        raise NoSuchRevisionError(
            f"--diff {target} is neither a file nor a git revision; specify one of them, or {LAST_RELEASE}"
        )
    text = _run_git(file, "show", f"{commit}:./{file.name}")
    if text is None:
        raise NoSuchRevisionError(f"--diff {target}: {file} does not exist at {revision} ({commit})")
    with TemporaryDirectory(prefix="voice-cost-") as folder:
        path = Path(folder) / file.name
        path.write_text(text + "\n", encoding="utf-8")
        yield f"{file} at {revision} ({commit})", path


def _find_last_release(file: Path) -> str:
    tag = _run_git(file, "describe", "--tags", "--abbrev=0")
    if tag is None:
        raise NoSuchRevisionError(
            f"--diff {LAST_RELEASE}: the history of {file} has no tag; specify a deployment file or a revision such "
            "as HEAD~1"
        )
    return tag


def _run_git(file: Path, *arguments: str) -> str | None:
    """Run git in the folder of a file, and return its output, or ``None`` if git fails or is not installed."""
    try:
        # The arguments are passed as a list without a shell, and revisions are separated from options.
        result = subprocess.run(  # noqa: S603
            ["git", *arguments],  # noqa: S607
            cwd=file.parent,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return result.stdout.strip() if result.returncode == 0 else None
