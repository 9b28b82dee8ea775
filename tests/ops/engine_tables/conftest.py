"""Small wheels for tests of the table generator."""

import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.engine_tables.source import SourceTree
from tools.engine_tables.values import SourceReader

Wheel = Callable[[dict[str, str]], SourceReader]


@pytest.fixture
def wheel(tmp_path: Path) -> Wheel:
    """Return a function that puts files into a wheel and returns its reader."""

    def write(files: dict[str, str]) -> SourceReader:
        path = tmp_path / "thing-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, textwrap.dedent(text))
        return SourceReader(SourceTree.from_wheel(path))

    return write
