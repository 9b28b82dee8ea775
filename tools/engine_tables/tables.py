"""Generates the table for a distribution from its source, and renders the table as text."""

import json

from pydantic import JsonValue

from tools.engine_tables import offered
from tools.engine_tables.classes import build_field_setting, iter_reachable_classes
from tools.engine_tables.flags import FlagReader
from tools.engine_tables.kernels import read_kernels
from tools.engine_tables.names import Definition
from tools.engine_tables.recipes import Recipe
from tools.engine_tables.source import SourceTree
from tools.engine_tables.values import SourceReader
from voice_blueprint.engines.published.release import Command, EngineTable, PublishedFile, Setting


def build_table(tree: SourceTree, recipe: Recipe, origin: PublishedFile) -> EngineTable:
    """Return the table of a distribution that a recipe describes.

    Raises:
        MissingDefinitionError: A definition is not at the location that the recipe specifies.
    """
    plain = SourceReader(tree)
    reader = SourceReader(
        tree, {name: offered.find_registered_names(plain, by) for name, by in recipe.registries.items()}
    )
    commands = {
        name: FlagReader(reader, flexible=recipe.flexible).read(function) for name, function in recipe.commands.items()
    }
    return EngineTable(
        origin=origin,
        extends=recipe.extends,
        commands=commands,
        configs=_collect_config_settings(reader, recipe, commands),
        connectors={
            kind: tuple(offered.find_registered_names(reader, function, owner))
            for kind, (owner, function) in recipe.connectors.items()
        },
        connector_settings=tuple(
            offered.find_dotted_names(reader, recipe.connector_settings) if recipe.connector_settings else []
        ),
        metrics=offered.find_metrics(reader, recipe.metrics) if recipe.metrics else (),
        endpoints=offered.find_endpoints(reader, recipe.endpoints),
        kernels=read_kernels(reader, recipe.kernels) if recipe.kernels else (),
        environment=_collect_environment_variables(reader, recipe),
    )


def _collect_config_settings(
    reader: SourceReader, recipe: Recipe, commands: dict[str, Command]
) -> dict[str, tuple[Setting, ...]]:
    roots = {name.rpartition(".")[2]: reader.require_definition(name) for name in recipe.configs}
    for flag in (flag for command in commands.values() for flag in command.flags):
        if flag.config and (cls := _find_class(reader, recipe.config_folder, flag.config)):
            roots[flag.config] = cls
    return {
        name: tuple(build_field_setting(reader, each) for each in fields.values())
        for name, fields in sorted(iter_reachable_classes(reader, roots, recipe.not_configs))
    }


def _find_class(reader: SourceReader, folder: str, name: str) -> Definition | None:
    modules = reader.tree.iter_modules(folder, f"class {name}")
    return next((result for module in modules if (result := reader.find_definition(f"{module.name}.{name}"))), None)


def _collect_environment_variables(reader: SourceReader, recipe: Recipe) -> dict[str, JsonValue]:
    results: dict[str, object] = {}
    for function_name, arguments in recipe.environment.items():
        results |= offered.VARIABLE_FINDER_BY_KIND[function_name](reader, **arguments)
    return dict(sorted(results.items()))  # type: ignore[arg-type]


def render_table(engine_table: EngineTable) -> str:
    """Render a table as JSON, with one line for each flag, field, metric, endpoint and variable."""
    document = engine_table.model_dump(mode="json", exclude_defaults=True)
    entries = (
        f" {_dump_json(key)}: {_render_json(value, ' ', depth=2 if key == 'commands' else 1)}"
        for key, value in document.items()
    )
    return "{\n" + ",\n".join(entries) + "\n}\n"


def _render_json(value: object, indent: str, depth: int) -> str:
    """Render JSON in which containers are expanded up to a depth. Deeper containers stay on one line."""
    if depth < 0 or not isinstance(value, dict | list) or not value:
        return _dump_json(value)
    inner = f"{indent} "
    if isinstance(value, dict):
        rows = [f"{inner}{_dump_json(name)}: {_render_json(each, inner, depth - 1)}" for name, each in value.items()]
    else:
        rows = [f"{inner}{_dump_json(row)}" for row in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n" + ",\n".join(rows) + f"\n{indent}{closing}"


def _dump_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
