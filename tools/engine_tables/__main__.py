"""``python -m tools.engine_tables``: regenerate the tables from the published releases."""

from pathlib import Path
from typing import Annotated

import typer

import voice_blueprint.engines.published
from tools.engine_tables import wheels
from tools.engine_tables.names import MovedError
from tools.engine_tables.recipes import RECIPES
from tools.engine_tables.source import Tree
from tools.engine_tables.tables import build_table, render
from tools.engine_tables.wheels import UnavailableError
from voice_blueprint import catalog
from voice_blueprint.catalog import EngineVersion
from voice_blueprint.engines.published.release import EngineTable, Origin, parse_table
from voice_ops.exits import FAILED, REFUSED
from voice_ops.output import err, print_error, stop
from voice_ops.progress import Progress

TABLES = Path(voice_blueprint.engines.published.__file__).parent / "tables"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def refresh(
    names: Annotated[list[str] | None, typer.Argument(metavar="[ENGINE]...", help="Default: all of them.")] = None,
) -> None:
    """Read the options and features of the releases in the catalogue of engines: flags, connectors, kernels and more.

    Wheels are downloaded once (700 MB in total) and never installed or imported; `git diff` shows the changes of a
    release. Exit codes: 0 for success, 1 if a release cannot be downloaded or parsed, 2 for an unknown engine.

    Example: python -m tools.engine_tables vllm
    """
    desired = names or list(RECIPES)
    for name in desired:
        if name not in RECIPES:
            raise stop(f"{name} has no table; available tables: {', '.join(RECIPES)}", REFUSED)
    done = [_refresh_table(catalog.engines()[name]) for name in desired]
    if not all(done):
        raise typer.Exit(FAILED)


def _refresh_table(engine: EngineVersion) -> bool:
    """Write the table of an engine. Return True on success."""
    file = TABLES / f"{engine.name}.json"
    try:
        with Progress(err).phase(f"{engine.name} {engine.version}"):
            text = render(_table_from_wheel(engine, file))
    except (UnavailableError, MovedError) as error:
        print_error(f"{engine.name}: {error}")
        return False
    else:
        TABLES.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return True


def _table_from_wheel(engine: EngineVersion, committed: Path) -> EngineTable:
    package = engine.package or engine.name
    before = parse_table(committed.read_text(encoding="utf-8")).origin if committed.exists() else None
    known_sha256 = before.sha256 if before and before.version == engine.version else None
    file = wheels.fetch_wheel(package, engine.version, known_sha256)
    origin = Origin(distribution=package, version=engine.version, file=file.name, sha256=wheels.hash_file(file))
    return build_table(Tree.from_wheel(file), RECIPES[engine.name], origin)


if __name__ == "__main__":
    app()
