"""Recorded screens in `ops/screens`, and their excerpts in documents as sample output.

A comment above such a block contains the command and the excerpts, each with its first and last line: `<!-- screen:
voice plan deployments/seed.yaml | ✗ error huge-pages … or take c8g.8xlarge | ✗ refused -->`.
"""

import io
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from unittest.mock import patch

from voice_ops.output import out

SCREENS = Path(__file__).parent / "ops/screens"
WRITE = bool(os.environ.get("VOICE_WRITE_SCREENS"))
"""Record the output instead of comparing it."""
NARROW = "80 columns"
_HEAD = re.compile(r"^━━ (.+) ━━ (.+)\n", re.MULTILINE)
_BLOCK = re.compile(r"<!-- screen: ([^\n|]+?)((?: \| [^\n]*?)?) -->\n```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def screens(command: str, surfaces: Mapping[str, str]) -> str:
    """Return a command's output on surfaces such as `80 columns` and `pipe`; equal outputs are combined."""
    texts: dict[str, list[str]] = {}
    for surface, text in surfaces.items():
        texts.setdefault(text, []).append(surface)
    return "".join(f"━━ {command} ━━ {', '.join(names)}\n{text.rstrip()}\n\n" for text, names in texts.items())


def render_screen(prints: Callable[[], object]) -> str:
    """Return the output of a call at the narrowest width, without durations and trailing spaces."""
    caught = io.StringIO()
    with redirect_stdout(caught), patch.object(out, "_width", int(NARROW.split(maxsplit=1)[0])):
        result = prints()
    return strip_formatting(result if isinstance(result, str) else caught.getvalue())


def strip_formatting(text: str) -> str:
    """Return a text without colours, trailing spaces, durations, and progress lines."""
    lines = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text).splitlines()
    return "".join(re.sub(r" \d+\.\d s$", "", line.rstrip()) + "\n" for line in lines if not line.startswith("… "))


def compare(name: str, text: str) -> None:
    """Compare screens with the recorded ones, or record them."""
    file = SCREENS / f"{name}.txt"
    if WRITE:
        file.write_text(text, encoding="utf-8")
    recorded = file.read_text(encoding="utf-8") if file.exists() else ""
    assert text == recorded, "VOICE_WRITE_SCREENS=1 pytest with this test records it again"


def recorded(command: str) -> str:
    """Return a command's recorded output at the narrowest width.

    Raises:
        LookupError: The command is not recorded.
    """
    for file in sorted(SCREENS.glob("*.txt")):
        text = file.read_text(encoding="utf-8")
        for head in _HEAD.finditer(text):
            if head[1] == command and NARROW in head[2]:
                following = _HEAD.search(text, head.end())
                return text[head.end() : following.start() if following else None]
    message = f"{command}: no screen of it is recorded"
    raise LookupError(message)


def excerpt(screen: str, excerpts: list[str]) -> str:
    """Return excerpts of a recorded screen, with a line of dots for omitted lines; without excerpts the whole screen.

    Raises:
        LookupError: An excerpt does not occur after the previous one.
    """
    lines = screen.rstrip("\n").splitlines()
    kept: list[str] = [] if excerpts else lines
    end = 0
    for piece in excerpts:
        first, _, last = piece.partition(" … ")
        begin = _line(lines, first, end)
        if kept and begin > end:
            kept.append("...")
        end = _line(lines, last, begin) + 1 if last else begin + 1
        kept += lines[begin:end]
    return "\n".join(kept) + "\n"


def _line(lines: list[str], words: str, start: int) -> int:
    for index in range(start, len(lines)):
        if words in lines[index]:
            return index
    message = f"no line with {words!r} in the rest of the screen"
    raise LookupError(message)


def outputs(document: str) -> Iterator[str]:
    """Yield the output blocks of a document that refer to a screen."""
    yield from (match[3] for match in _BLOCK.finditer(document))


def update_excerpts(document: str) -> str:
    """Return a document with its excerpts updated from the screens."""

    def block(match: re.Match[str]) -> str:
        pieces = [piece for piece in match[2].split(" | ") if piece]
        return match[0].removesuffix(f"{match[3]}```") + excerpt(recorded(match[1]), pieces) + "```"

    return _BLOCK.sub(block, document)
