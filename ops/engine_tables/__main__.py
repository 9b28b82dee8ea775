"""``python -m ops.engine_tables``: read the published releases again, into the tables."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

import blueprint.engines.published
from blueprint import catalog
from blueprint.catalog import EngineVersion
from blueprint.engines.published.release import EngineTable, Origin, read
from ops.engine_tables import wheels
from ops.engine_tables.names import MovedError
from ops.engine_tables.recipes import RECIPES
from ops.engine_tables.repositories import FILES
from ops.engine_tables.source import Tree
from ops.engine_tables.tables import render, table
from ops.engine_tables.wheels import UnavailableError
from ops.exits import FAILED, REFUSED
from ops.output import complain, err, stop
from ops.progress import Progress

TABLES = Path(blueprint.engines.published.__file__).parent / "tables"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def refresh(
    names: Annotated[list[str] | None, typer.Argument(metavar="[ENGINE]...", help="Default: all of them.")] = None,
) -> None:
    """Read what the releases that the catalogue of engines names accept and offer: flags, connectors, kernels and more.

    Wheels are downloaded once (700 MB in all) and never installed or imported; what a release changed, `git diff`
    shows. Exit codes: 0 all is well; 1 a release cannot be had or read; 2 there is no such engine.

    Example: python -m ops.engine_tables vllm
    """
    wanted = names or list(RECIPES)
    for name in wanted:
        if name not in RECIPES:
            raise stop(f"{name} has no table; there are: {', '.join(RECIPES)}", REFUSED)
    done = [_refreshed(catalog.engines()[name]) for name in wanted]
    if not all(done):
        raise typer.Exit(FAILED)


def _refreshed(engine: EngineVersion) -> bool:
    """Write the table of an engine, or say why that cannot be; a table from a repository may stay as it is."""
    file = TABLES / f"{engine.name}.json"
    try:
        with Progress(err).phase(f"{engine.name} {engine.version}"):
            text = render(_from_file(engine) if engine.name in FILES else _from_wheel(engine, file))
    except UnavailableError as error:
        if engine.name not in FILES or not file.exists():
            complain(f"{engine.name}: {error}")
            return False
        err.print(f"[yellow]![/] {engine.name}: {escape(str(error))}; its table stays as it is", soft_wrap=True)
    except MovedError as error:
        complain(f"{engine.name}: {error}")
        return False
    else:
        TABLES.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return True


def _from_wheel(engine: EngineVersion, committed: Path) -> EngineTable:
    package = engine.package or engine.name
    before = read(committed.read_text(encoding="utf-8")).origin if committed.exists() else None
    known_sha256 = before.sha256 if before and before.version == engine.version else None
    file = wheels.wheel(package, engine.version, known_sha256)
    origin = Origin(distribution=package, version=engine.version, file=file.name, sha256=wheels.sha256(file))
    return table(Tree.of_wheel(file), RECIPES[engine.name], origin)


def _from_file(engine: EngineVersion) -> EngineTable:
    file = FILES[engine.name]
    text = file.fetch()
    origin = file.origin(engine.name, engine.version, text)
    return table(Tree.of_texts({file.module_path: text}), RECIPES[engine.name], origin)


if __name__ == "__main__":
    app()
