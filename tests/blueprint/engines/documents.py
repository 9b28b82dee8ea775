"""Validation of JSON and YAML documents against the configuration classes of a release."""

from collections.abc import Iterator, Mapping

from tests.blueprint.engines.values import value_problems
from voice_blueprint.engines.published.release import EngineTable, Setting, load_published_table
from voice_blueprint.file.suggestion import format_suggestion

_TRANSFER_FLAGS = {"KVTransferConfig": "kv", "ECTransferConfig": "ec"}
"""Classes that contain a connector and a role, in fields that start with the kind of the connector."""
_STAGE = "StageDeployConfig"
_STAGE_SECTIONS = {"engine_args", "runtime"}
"""Keys of a stage that vLLM-Omni's loader unpacks before it creates the class."""


def document_problems(table: EngineTable, config: str, document: Mapping[str, object], where: str) -> Iterator[str]:
    """Yield the problems of a document.

    Args:
        config: The class; one that the table lacks accepts anything.
        where: Name of the document in messages.
    """
    if config not in table.configs:
        return
    settings = {setting.name: setting for setting in table.configs[config]}
    for key, value in document.items():
        if key in settings:
            yield from _field_problems(table, settings[key], value, f"{where}.{key}")
        elif not (config == _STAGE and _is_engine_setting(table, key)):
            yield f"{where}: `{key}` is no field of {config} in {table.release}{format_suggestion(key, settings)}"
    if config in _TRANSFER_FLAGS:
        yield from _transfer_problems(table, config, document, where)
    if config == "DeployConfig":
        yield from _stage_connector_problems(table, document, where)


def _field_problems(table: EngineTable, setting: Setting, value: object, where: str) -> Iterator[str]:
    problems = list(value_problems(setting, value))
    yield from (f"{where}: {problem} ({table.release})" for problem in problems)
    if setting.config and not problems:
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, Mapping):
                yield from document_problems(table, setting.config, inner, where)


def _transfer_problems(table: EngineTable, config: str, document: Mapping[str, object], where: str) -> Iterator[str]:
    kind = _TRANSFER_FLAGS[config]
    name, extra = document.get(f"{kind}_connector"), document.get(f"{kind}_connector_extra_config")
    if name is None:
        return
    known = table.connectors.get(kind, ())
    if name not in known and not document.get(f"{kind}_connector_module_path"):
        near = format_suggestion(str(name), known) or f"; there are {', '.join(known)}"
        yield f"{where}: {table.release} has no {kind} connector `{name}`{near}"
    if document.get(f"{kind}_role") is None:
        yield f"{where}: `{kind}_connector` needs a `{kind}_role` ({table.release})"
    if isinstance(extra, Mapping):
        yield from _setting_problems(table, extra, where)
    if name == "MultiConnector":
        yield from _multi_problems(table, config, extra, where)


def _multi_problems(table: EngineTable, config: str, extra: object, where: str) -> Iterator[str]:
    inner = extra.get("connectors") if isinstance(extra, Mapping) else None
    if not isinstance(inner, list) or not inner:
        yield f"{where}: MultiConnector needs a list `kv_connector_extra_config.connectors` ({table.release})"
        return
    for number, each in enumerate(inner):
        if isinstance(each, Mapping):
            yield from document_problems(table, config, each, f"{where}.connectors[{number}]")
        else:
            yield f"{where}.connectors[{number}] is no object ({table.release})"


def _setting_problems(table: EngineTable, extra: Mapping[str, object], where: str) -> Iterator[str]:
    """Yield misspelled settings of LMCache's connector; the other connectors' settings have no common prefix."""
    known = {*table.connector_settings, *load_published_table("lmcache").connector_settings}
    for key in extra:
        if key.startswith("lmcache.mp.") and key not in known:
            release = load_published_table("lmcache").release
            yield f"{where}: {release} has no setting `{key}`{format_suggestion(key, known)}"


def _is_engine_setting(table: EngineTable, key: str) -> bool:
    """Return whether a stage's key is one of the sections, or a flag of the engine that runs the stage."""
    flag = f"--{key.replace('_', '-')}"
    return key in _STAGE_SECTIONS or any(command.find_flag(flag) for command in table.commands.values())


def _stage_connector_problems(table: EngineTable, document: Mapping[str, object], where: str) -> Iterator[str]:
    defined = document.get("connectors")
    connectors = defined if isinstance(defined, Mapping) else {}
    for name, each in connectors.items():
        kind = each.get("name") if isinstance(each, Mapping) else None
        known = table.connectors.get("stage", ())
        if kind not in known:
            suggestion = format_suggestion(str(kind), known)
            yield f"{where}.connectors.{name}: {table.release} has no connector `{kind}`{suggestion}"
    stages = document.get("stages")
    for number, stage in enumerate(stages if isinstance(stages, list) else []):
        used = [stage.get(side) for side in ("input_connectors", "output_connectors")]
        for name in (name for side in used if isinstance(side, Mapping) for name in side.values()):
            if name not in connectors:
                suggestion = format_suggestion(str(name), connectors)
                yield f"{where}.stages[{number}]: there is no connector `{name}`{suggestion}"
