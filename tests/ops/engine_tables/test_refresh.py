"""`python -m ops.engine_tables`: tables from wheels, stable text, errors that say what to do."""

import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from blueprint import catalog
from blueprint.catalog import EngineVersion
from blueprint.engines.published.release import Origin, read
from ops.engine_tables import __main__ as command
from ops.engine_tables import wheels
from ops.engine_tables.recipes import Recipe
from ops.engine_tables.repositories import RepositoryFile
from ops.engine_tables.source import Tree
from ops.engine_tables.tables import render, table
from ops.engine_tables.wheels import UnavailableError

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
ORIGIN = Origin(distribution="tool", version="1.0", file="tool.whl", sha256="0" * 64)
UNREACHABLE = RepositoryFile("owner/tool", "0" * 40, "tool.py", "tool.py")


def test_table_has_one_line_for_each_flag_and_reads_back() -> None:
    made = table(Tree.of_texts({"tool.py": SOURCE}), RECIPE, ORIGIN)
    text = render(made)
    assert '    {"name": "--a"},\n    {"name": "--b", "type": "int"}\n' in text
    assert read(text) == made
    assert json.loads(text)["configs"] == {
        "Leaf": [{"name": "depth", "type": "int", "default": 1}],
        "Root": [
            {"name": "leaves", "type": "json", "config": "Leaf", "nargs": "*", "default": []},
            {"name": "hidden", "type": "json", "config": "Internal", "nullable": True},
        ],
    }


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An engine ``tool`` in the catalogue, its wheel in a cache, and an empty folder of tables, which is returned."""
    tables = tmp_path / "tables"
    engine = EngineVersion(name="tool", version="1.0", package="tool", source="here")
    monkeypatch.setattr(command, "TABLES", tables)
    monkeypatch.setattr(command, "RECIPES", {"tool": RECIPE})
    monkeypatch.setattr(command, "FILES", {})
    monkeypatch.setattr(catalog, "engines", lambda: {"tool": engine})
    monkeypatch.setattr(wheels, "_pip", lambda: str(tmp_path / "no-pip"))
    monkeypatch.setattr(wheels, "CACHE", tmp_path)
    with zipfile.ZipFile(tmp_path / "tool-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("tool.py", SOURCE)
    return tables


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command.app, list(arguments))
    return result.exit_code, result.output


def test_the_table_is_written_and_the_same_again(tool: Path) -> None:
    assert run()[0] == 0
    written = (tool / "tool.json").read_text()
    assert '{"name": "--b", "type": "int"}' in written
    assert run("tool")[0] == 0
    assert (tool / "tool.json").read_text() == written


def test_unknown_engine_is_refused(tool: Path) -> None:
    code, output = run("toll")
    assert code == 2
    assert "toll has no table; there are: tool" in output
    assert not tool.exists()


def test_wheel_with_another_hash_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tool-1.0-py3-none-any.whl").write_bytes(b"changed")
    pip = tmp_path / "pip"
    pip.write_text("#!/bin/sh\necho 'ERROR: THESE PACKAGES DO NOT MATCH THE HASHES' >&2\nexit 1\n")
    pip.chmod(0o755)
    monkeypatch.setattr(wheels, "_pip", lambda: str(pip))
    monkeypatch.setattr(wheels, "CACHE", tmp_path)
    with pytest.raises(UnavailableError, match=r"pip cannot download tool 1\.0: .*DO NOT MATCH"):
        wheels.wheel("tool", "1.0", "0" * 64)


def test_downloaded_wheel_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = tmp_path / "pip"
    pip.write_text(
        "#!/bin/sh\n"
        'while [ "$1" != --dest ]; do shift; done\n'
        'grep -q "^tool==1.0$" "$4" && echo wheel > "$2/tool-1.0-py3-none-any.whl"\n'
    )
    pip.chmod(0o755)
    monkeypatch.setattr(wheels, "_pip", lambda: str(pip))
    cache = tmp_path / "cache"
    monkeypatch.setattr(wheels, "CACHE", cache)
    file = wheels.wheel("tool", "1.0")
    assert file == cache / "tool-1.0-py3-none-any.whl"
    assert list(cache.iterdir()) == [file]


@pytest.mark.parametrize(("committed", "code"), [(True, 0), (False, 1)])
def test_table_from_a_repository_stays_when_it_cannot_be_reached(
    tool: Path, monkeypatch: pytest.MonkeyPatch, *, committed: bool, code: int
) -> None:
    def unreachable(_: RepositoryFile) -> str:
        raise UnavailableError("no network")

    monkeypatch.setattr(command, "FILES", {"tool": UNREACHABLE})
    monkeypatch.setattr(RepositoryFile, "fetch", unreachable)
    if committed:
        tool.mkdir()
        (tool / "tool.json").write_text("as it was")
    result, output = run()
    assert result == code
    assert ("its table stays as it is" in output) is committed
    assert not committed or (tool / "tool.json").read_text() == "as it was"


def test_table_from_a_repository_says_where_it_belongs(tool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "FILES", {"tool": UNREACHABLE})
    monkeypatch.setattr(RepositoryFile, "fetch", lambda _: SOURCE)
    assert run()[0] == 0
    origin = read((tool / "tool.json").read_text()).origin
    assert (origin.repository, origin.commit, origin.file) == ("owner/tool", "0" * 40, "tool.py")
    assert origin.sha256 == hashlib.sha256(SOURCE.encode()).hexdigest()
