"""``python -m tools.engine_tables``: regenerate the tables from the published releases."""

from pathlib import Path
from typing import Annotated

import typer

import voice_blueprint.engines.published
from tools.engine_tables import wheels
from tools.engine_tables.names import MissingDefinitionError
from tools.engine_tables.recipes import RECIPES
from tools.engine_tables.source import SourceTree
from tools.engine_tables.tables import build_table, render_table
from tools.engine_tables.wheels import DownloadError
from voice_blueprint import catalog
from voice_blueprint.catalog import EngineVersion
from voice_blueprint.engines.published.release import EngineTable, PublishedFile, parse_engine_table
from voice_ops.exits import FAILED, INVALID_INPUT
from voice_ops.output import create_exit, err, print_error
from voice_ops.progress import Progress

TABLES_FOLDER = Path(voice_blueprint.engines.published.__file__).parent / "tables"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def refresh(
    names: Annotated[list[str] | None, typer.Argument(metavar="[ENGINE]...", help="Default: all of them.")] = None,
) -> None:
    """Read the options and features of the releases in the catalogue of engines: flags, connectors, kernels and more.

    Wheels are downloaded once (700 MB in total) and never installed or imported; `git diff` shows the changes in a
    release. Exit codes: 0 for success, 1 if a release cannot be downloaded or parsed, 2 for an unknown engine.

    Example: python -m tools.engine_tables vllm
    """
    desired = names or list(RECIPES)
    for name in desired:
        if name not in RECIPES:
            raise create_exit(f"{name} has no table; available tables: {', '.join(RECIPES)}", INVALID_INPUT)
    done = [_refresh_table(catalog.engines()[name]) for name in desired]
    if not all(done):
        raise typer.Exit(FAILED)


def _refresh_table(engine: EngineVersion) -> bool:
    """Write the table for an engine. Return True on success."""
    file = TABLES_FOLDER / f"{engine.name}.json"
    try:
        with Progress(err).phase(f"{engine.name} {engine.version}"):
            text = render_table(_build_table_from_wheel(engine, file))
    except (DownloadError, MissingDefinitionError) as error:
        print_error(f"{engine.name}: {error}")
        return False
    else:
        TABLES_FOLDER.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return True


def _build_table_from_wheel(engine: EngineVersion, committed: Path) -> EngineTable:
    package = engine.package or engine.name
    before = parse_engine_table(committed.read_text(encoding="utf-8")).origin if committed.exists() else None
    known_sha256 = before.sha256 if before and before.version == engine.version else None
    file = wheels.fetch_wheel(package, engine.version, known_sha256)
    origin = PublishedFile(distribution=package, version=engine.version, file=file.name, sha256=wheels.hash_file(file))
    return build_table(SourceTree.from_wheel(file), RECIPES[engine.name], origin)


if __name__ == "__main__":
    app()
