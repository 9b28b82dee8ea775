"""``python -m ops.engine_tables``: read the published releases again, into the tables."""

import difflib
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
from ops.engine_tables.repositories import FILES, RepositoryFile
from ops.engine_tables.source import Tree
from ops.engine_tables.tables import render, table
from ops.engine_tables.wheels import UnavailableError
from ops.exits import FAILED, REFUSED
from ops.output import err
from ops.progress import Progress

TABLES = Path(blueprint.engines.published.__file__).parent / "tables"
CHECK_HELP = "Change nothing; show how the tables differ from the releases, and exit with 1 if they do."
FILE_HELP = "Text of the router's parser.py, for a machine that cannot reach GitHub."

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def refresh(
    names: Annotated[list[str] | None, typer.Argument(metavar="[ENGINE]...", help="Default: all of them.")] = None,
    check: Annotated[bool, typer.Option("--check", help=CHECK_HELP)] = False,
    router_file: Annotated[Path | None, typer.Option("--router-file", metavar="PATH", help=FILE_HELP)] = None,
    cache: Annotated[Path, typer.Option("--cache", metavar="FOLDER", help="Where wheels are kept.")] = wheels.CACHE,
) -> None:
    """Read flags, settings, connectors, metrics and endpoints from the releases that the catalogue of engines names.

    Wheels are downloaded once (700 MB in all) and never installed or imported. Exit codes: 0 all is well; 1 the
    tables differ (with --check), or a release cannot be had or read; 2 there is no such engine.

    Example: python -m ops.engine_tables --check vllm
    """
    wanted = names or list(RECIPES)
    for name in wanted:
        if name not in RECIPES:
            err.print(f"[red]✗[/] {escape(name)} has no table; there are: {', '.join(RECIPES)}", soft_wrap=True)
            raise typer.Exit(REFUSED)
    progress, results = Progress(err), []
    for name in wanted:
        engine = catalog.engines()[name]
        try:
            with progress.phase(f"{name} {engine.version}"):
                text = render(
                    _from_file(engine, FILES[name], router_file) if name in FILES else _from_wheel(engine, cache)
                )
            results.append(_compare(name, text) if check else _write(name, text))
        except UnavailableError as error:
            results.append(_unavailable(name, error))
        except MovedError as error:
            err.print(f"[red]✗[/] {name}: {escape(str(error))}", soft_wrap=True)
            results.append(False)
    if not all(results):
        raise typer.Exit(FAILED)


def _from_wheel(engine: EngineVersion, cache: Path) -> EngineTable:
    package = engine.package or engine.name
    file = wheels.wheel(package, engine.version, _known_sha256(engine), cache)
    origin = Origin(distribution=package, version=engine.version, file=file.name, sha256=wheels.sha256(file))
    return table(Tree.of_wheel(file), RECIPES[engine.name], origin)


def _known_sha256(engine: EngineVersion) -> str | None:
    """Return the hash of a release's wheel as the committed table has it; None for another release."""
    file = TABLES / f"{engine.name}.json"
    if not file.exists():
        return None
    origin = read(file.read_text(encoding="utf-8")).origin
    return origin.sha256 if origin.version == engine.version else None


def _from_file(engine: EngineVersion, file: RepositoryFile, given: Path | None) -> EngineTable:
    text = given.read_text(encoding="utf-8") if given else file.fetch()
    origin = file.origin(engine.name, engine.version, text)
    return table(Tree.of_texts({file.module_path: text}), RECIPES[engine.name], origin)


def _compare(name: str, text: str) -> bool:
    file = TABLES / f"{name}.json"
    committed = file.read_text(encoding="utf-8") if file.exists() else ""
    for line in difflib.unified_diff(
        committed.splitlines(), text.splitlines(), f"committed {file.name}", f"published {name}", lineterm="", n=0
    ):
        typer.echo(line)
    return committed == text


def _write(name: str, text: str) -> bool:
    TABLES.mkdir(exist_ok=True)
    (TABLES / f"{name}.json").write_text(text, encoding="utf-8")
    return True


def _unavailable(name: str, error: UnavailableError) -> bool:
    """Say why a release cannot be had; a table that cannot be read again from a repository stays as it is."""
    kept = name in FILES and (TABLES / f"{name}.json").exists()
    mark, then = ("[yellow]![/]", "; its table stays as it is") if kept else ("[red]✗[/]", "")
    err.print(f"{mark} {name}: {escape(str(error))}{then}", soft_wrap=True)
    return kept


if __name__ == "__main__":
    app()
