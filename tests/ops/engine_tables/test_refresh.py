"""`python -m tools.engine_tables`: tables from wheels, stable text, errors with remedies."""

import json
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tools.engine_tables import __main__ as command
from tools.engine_tables import wheels
from tools.engine_tables.recipes import Recipe
from tools.engine_tables.source import SourceTree
from tools.engine_tables.tables import build_table, render_table
from tools.engine_tables.wheels import DownloadError
from voice_blueprint import catalog
from voice_blueprint.catalog import EngineVersion
from voice_blueprint.engines.published.release import PublishedFile, parse_engine_table

SOURCE = """
from dataclasses import dataclass, field

@dataclass
class Leaf:
    depth: int = 1

@dataclass
class Root:
    leaves: list[Leaf] = field(default_factory=list)
    hidden: "Internal | None" = None

@dataclass
class Internal:
    x: int = 0

def add(parser):
    parser.add_argument("--b", type=int)
    parser.add_argument("--a")
"""
RECIPE = Recipe(commands={"": "tool.add"}, configs=("tool.Root",), not_configs=frozenset({"Internal"}), extends="other")
ORIGIN = PublishedFile(distribution="tool", version="1.0", file="tool.whl", sha256="0" * 64)


def test_table_has_one_line_per_flag_and_can_be_read() -> None:
    made = build_table(SourceTree.from_texts({"tool.py": SOURCE}), RECIPE, ORIGIN)
    text = render_table(made)
    assert '    {"name": "--a"},\n    {"name": "--b", "type": "int"}\n' in text
    assert parse_engine_table(text) == made
    assert json.loads(text)["configs"] == {
        "Leaf": [{"name": "depth", "type": "int", "default": 1}],
        "Root": [
            {"name": "leaves", "type": "json", "config": "Leaf", "nargs": "*", "default": []},
            {"name": "hidden", "type": "json", "config": "Internal", "nullable": True},
        ],
    }


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder of tables for an engine ``tool`` in the catalogue, whose wheel is in a cache."""
    tables = tmp_path / "tables"
    engine = EngineVersion(name="tool", version="1.0", package="tool", source="here")
    monkeypatch.setattr(command, "TABLES_FOLDER", tables)
    monkeypatch.setattr(command, "RECIPES", {"tool": RECIPE})
    monkeypatch.setattr(catalog, "engines", lambda: {"tool": engine})
    monkeypatch.setattr(wheels, "_find_pip", lambda: str(tmp_path / "no-pip"))
    monkeypatch.setattr(wheels, "CACHE_FOLDER", tmp_path)
    with zipfile.ZipFile(tmp_path / "tool-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("tool.py", SOURCE)
    return tables


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command.app, list(arguments))
    return result.exit_code, result.output


def test_writing_the_table_is_reproducible(tool: Path) -> None:
    assert run()[0] == 0
    written = (tool / "tool.json").read_text()
    assert '{"name": "--b", "type": "int"}' in written
    assert run("tool")[0] == 0
    assert (tool / "tool.json").read_text() == written


def test_unknown_engine_is_refused(tool: Path) -> None:
    code, output = run("toll")
    assert code == 2
    assert "toll has no table; available tables: tool" in output
    assert not tool.exists()


def test_a_wheel_with_another_hash_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tool-1.0-py3-none-any.whl").write_bytes(b"changed")
    pip = tmp_path / "pip"
    pip.write_text("#!/bin/sh\necho 'ERROR: THESE PACKAGES DO NOT MATCH THE HASHES' >&2\nexit 1\n")
    pip.chmod(0o755)
    monkeypatch.setattr(wheels, "_find_pip", lambda: str(pip))
    monkeypatch.setattr(wheels, "CACHE_FOLDER", tmp_path)
    with pytest.raises(DownloadError, match=r"pip cannot download tool 1\.0: .*DO NOT MATCH"):
        wheels.fetch_wheel("tool", "1.0", "0" * 64)


def test_a_downloaded_wheel_is_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = tmp_path / "pip"
    pip.write_text(
        "#!/bin/sh\n"
        'while [ "$1" != --dest ]; do shift; done\n'
        'grep -q "^tool==1.0$" "$4" && echo wheel > "$2/tool-1.0-py3-none-any.whl"\n'
    )
    pip.chmod(0o755)
    monkeypatch.setattr(wheels, "_find_pip", lambda: str(pip))
    cache = tmp_path / "cache"
    monkeypatch.setattr(wheels, "CACHE_FOLDER", cache)
    file = wheels.fetch_wheel("tool", "1.0")
    assert file == cache / "tool-1.0-py3-none-any.whl"
    assert list(cache.iterdir()) == [file]
