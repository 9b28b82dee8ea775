"""Rules that verify that the released engine accepts the output of the launchers."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.blueprint.engines.arguments import parse
from tests.blueprint.engines.documents import document_problems
from tests.blueprint.engines.values import text_problems
from voice_blueprint.engines.published.release import EngineTable, PublishedMetric, Setting
from voice_blueprint.file.suggestion import format_suggestion

_PREFIXES = ("VLLM_", "LMCACHE_")
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
_TYPED_FLAGS = {"--l2-adapter": "l2"}
"""Flags whose JSON value contains a connector in ``type``, with its kind."""


def check_argv(table: EngineTable, command: str, argv: Sequence[str]) -> Iterator[str]:
    """Yield the problems of a command line.

    Flags must be complete: prefixes that argparse would accept are refused, because the next release may have two flags
    with that prefix.

    Args:
        command: The sub-command; "" for a program without one.
        argv: Arguments after the program and the sub-command.
    """
    if command not in table.commands:
        yield f"{table.release} has no sub-command `{command}`{format_suggestion(command, table.commands)}"
        return
    parsed = parse(table.commands[command], argv, table.release)
    yield from parsed.problems
    seen: dict[str, str] = {}
    for name, flag, values in parsed.given:
        if flag.name in seen and not flag.repeats:
            yield f"`{name}` is given again after `{seen[flag.name]}`: the first is lost ({table.release})"
        seen.setdefault(flag.name, name)
        for value in values:
            yield from _value_problems(table, name, flag, value)
    for name, document in parsed.keys.items():
        if name in seen:
            yield f"`{name}` is given whole and by its keys: the whole is lost ({table.release})"
        yield from _document_problems(table, name, table.commands[command].find_flag(name), document)


def _value_problems(table: EngineTable, name: str, flag: Setting, value: str) -> Iterator[str]:
    problems = list(text_problems(flag, value))
    yield from (f"`{name}`: {problem} ({table.release})" for problem in problems)
    if flag.type == "json" and not problems and value.lstrip().startswith("{"):
        yield from _document_problems(table, name, flag, json.loads(value))


def _document_problems(
    table: EngineTable, name: str, flag: Setting | None, document: Mapping[str, object]
) -> Iterator[str]:
    if flag and flag.config:
        yield from document_problems(table, flag.config, document, name)
    if name in _TYPED_FLAGS:
        known = table.connectors.get(_TYPED_FLAGS[name], ())
        if document.get("type") not in known:
            near = format_suggestion(str(document.get("type")), known)
            yield f"`{name}`: {table.release} has no `type` {json.dumps(document.get('type'))}{near}"


def check_document(table: EngineTable, config: str, document: Mapping[str, object]) -> Iterator[str]:
    """Yield the problems of a document, such as vLLM-Omni's deployment YAML (``DeployConfig``).

    Args:
        config: A configuration class of the release.

    Raises:
        KeyError: The release has no such class.
    """
    if config not in table.configs:
        raise KeyError(f"{table.release} has no configuration class {config}{format_suggestion(config, table.configs)}")
    return document_problems(table, config, document, config)


def check_environment(table: EngineTable, names: Iterable[str]) -> Iterator[str]:
    """Yield environment variables with an engine's prefix that the engine does not read.

    Only prefixes of variables in the table are checked.
    """
    prefixes = tuple(prefix for prefix in _PREFIXES if any(name.startswith(prefix) for name in table.environment))
    for name in names:
        if name.startswith(prefixes) and name not in table.environment:
            yield f"{table.release} reads no variable {name}{format_suggestion(name, table.environment)}"


def check_metric(table: EngineTable, name: str) -> Iterator[str]:
    """Yield the problems of a metric name in a Prometheus query."""
    spellings = {spelling for metric in table.metrics for spelling in _spellings(metric)}
    if name in spellings:
        return
    kind = next((metric.kind for metric in table.metrics if metric.name == name), None)
    if kind is not None:
        yield f"{table.release} exposes the {kind} {name} only as {', '.join(name + part for part in _SUFFIXES[kind])}"
        return
    yield f"{table.release} exposes no metric {name}{format_suggestion(name, sorted(spellings))}"


def _spellings(metric: PublishedMetric) -> Iterator[str]:
    if metric.kind in _SUFFIXES:
        yield from (metric.name + part for part in _SUFFIXES[metric.kind])
        return
    yield metric.name
    if metric.kind == "unknown":
        yield f"{metric.name}_total"


def check_endpoint(table: EngineTable, method: str, path: str) -> Iterator[str]:
    """Yield the problems of an endpoint.

    Args:
        method: HTTP method, or ``WEBSOCKET``.
        path: With values or braces in place of parameters.
    """
    there = [each for each in table.endpoints if _matches(each.path, path)]
    if not there:
        near = format_suggestion(path, sorted({each.path for each in table.endpoints}))
        yield f"{table.release} has no endpoint {path}{near}"
    elif method not in {each.method for each in there}:
        yield f"{table.release} has {path} for {', '.join(sorted({each.method for each in there}))}, not {method}"


def _matches(template: str, path: str) -> bool:
    parts = re.split(r"\{\w+\}", template)
    return template == path or re.fullmatch("[^/]+".join(map(re.escape, parts)), path) is not None
