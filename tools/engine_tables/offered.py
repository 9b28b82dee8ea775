"""Reads features, other than flags, of a release: connectors, metrics, endpoints and environment variables."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from tools.engine_tables.names import MissingDefinitionError, Scope
from tools.engine_tables.source import Module
from tools.engine_tables.values import SourceReader, find_called_name
from voice_blueprint.engines.published.release import Endpoint, PublishedMetric

_HTTP_METHOD_BY_DECORATOR = {
    "get": "GET",
    "post": "POST",
    "put": "PUT",
    "delete": "DELETE",
    "patch": "PATCH",
    "websocket": "WEBSOCKET",
}
_METRIC_KINDS = ("counter", "gauge", "histogram", "summary", "info")
_UNIT_NAME_BY_OTEL_UNIT = {
    "1": "", "s": "seconds", "ms": "milliseconds", "us": "microseconds", "By": "bytes", "MiBy": "mebibytes",
    "GiBy": "gibibytes", "%": "percent",
}  # fmt: skip
"""Unit names in OpenTelemetry's Prometheus exporter. Other units are unchanged."""
_METRIC_CONSTRUCTOR_PATTERN = re.compile(r"(counter|gauge|histogram|summary)\w*\(", re.IGNORECASE)
_ENVIRONMENT_ACCESS_PATTERN = re.compile(r"\bgetenv\(|\benviron\b")
_RATE_UNIT_NAME_BY_OTEL_UNIT = {"s": "second", "m": "minute", "h": "hour", "d": "day"}


def find_registered_names(reader: SourceReader, function: str, owner: str = "") -> list[str]:
    """Return the names that are registered by calls such as ``Owner.function("name", ...)``."""
    results: set[str] = set()
    for module in reader.tree.iter_modules(containing=f"{function}("):
        for call in _find_calls(module):
            callee = ast.unparse(call.func)
            if callee == (f"{owner}.{function}" if owner else function) and call.args:
                name = reader.evaluate_or_default(call.args[0], reader.create_scope(module), None)
                results |= {name} if isinstance(name, str) else set()
    return sorted(results)


def find_dotted_names(reader: SourceReader, start: str) -> list[str]:
    """Return the string literals in the source that are dotted names with a prefix."""
    pattern = re.compile(rf"{re.escape(start)}[a-z0-9_.]*[a-z0-9]")
    return sorted(
        {
            node.value
            for module in reader.tree.iter_modules(containing=start)
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and pattern.fullmatch(node.value)
        }
    )


def find_metrics(reader: SourceReader, prefixes: Sequence[str]) -> tuple[PublishedMetric, ...]:
    """Return the metrics whose names start with one of the prefixes, with their names in Prometheus."""
    results: set[tuple[str, str]] = set()
    for module in reader.tree.iter_modules(pattern=_METRIC_CONSTRUCTOR_PATTERN):
        scope = reader.create_scope(module)
        for node in ast.walk(module.tree):
            results |= set(_find_node_metrics(reader, node, scope, prefixes))
    typed_names = {name.partition("|")[0] for name, kind in results if kind != "unknown"}
    rows = {
        _format_prometheus_name(name, kind): kind
        for name, kind in sorted(results)
        if kind != "unknown" or (name not in typed_names and ":" in name and not name.endswith("_"))
    }
    return tuple(PublishedMetric.model_validate({"name": name, "kind": kind}) for name, kind in sorted(rows.items()))


def _find_node_metrics(
    reader: SourceReader, node: ast.AST, scope: Scope, prefixes: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield the name and kind of each metric. A unit that OpenTelemetry adds is appended to the name after ``|``."""
    match node:
        case ast.Tuple(elts=[ast.Constant(value=str(text)), *_]) | ast.Assign(value=ast.Constant(value=str(text))):
            if _is_metric(text, prefixes):
                yield text, "unknown"  # separate from the call that creates the metric
        case ast.Call() if kind := _find_metric_kind(node):
            unit = next(
                (reader.evaluate_or_default(each.value, scope, "") for each in node.keywords if each.arg == "unit"), ""
            )
            named = [each.value for each in node.keywords if each.arg in {"name", "gauge_name"}]
            texts = [reader.evaluate_or_default(argument, scope, None) for argument in [*node.args[:2], *named]]
            names = [text for text in texts if isinstance(text, str) and _is_metric(text, prefixes)]
            if names:  # the last one, since OpenTelemetry's meter may precede the metric
                yield f"{names[-1]}|{unit}" if unit else names[-1], kind
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                yield from _find_mapping_metrics(reader, key, value, scope, prefixes)
        case ast.Assign(targets=[ast.Subscript(slice=key)], value=value):
            yield from _find_mapping_metrics(reader, key, value, scope, prefixes)


def _find_mapping_metrics(
    reader: SourceReader, key: ast.expr | None, value: ast.expr, scope: Scope, prefixes: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield the metric that an entry of a mapping defines. The key is the name, and the value's class is the kind."""
    if key is not None and isinstance(value, ast.Call) and (kind := _find_metric_kind(value)):
        name = reader.evaluate_or_default(key, scope, None)
        if isinstance(name, str) and _is_metric(name, prefixes):
            yield name, kind


def _find_metric_kind(call: ast.Call) -> str | None:
    return next((kind for kind in _METRIC_KINDS if kind in find_called_name(call).lower()), None)


def _is_metric(text: str, prefixes: Sequence[str]) -> bool:
    return any(text.startswith(prefix) and re.fullmatch(r"[a-z0-9_.]+", text[len(prefix) :]) for prefix in prefixes)


def _format_prometheus_name(name: str, kind: str) -> str:
    """Return the name of a metric in Prometheus, with the unit that OpenTelemetry adds, and ``_total`` for counters."""
    bare, _, unit = name.partition("|")
    base = re.sub(r"[^a-zA-Z0-9_:]", "_", bare)
    if kind == "counter":
        base = base.removesuffix("_total")
    suffix = _format_prometheus_unit(unit)
    if suffix and not base.endswith(f"_{suffix}"):
        base = f"{base}_{suffix}"
    return f"{base}_total" if kind == "counter" else base


def _format_prometheus_unit(unit: str) -> str:
    unit = re.sub(r"\{.*?\}", "", unit)
    top, slash, bottom = unit.partition("/")
    if slash:
        return f"{_UNIT_NAME_BY_OTEL_UNIT.get(top, top)}_per_{_RATE_UNIT_NAME_BY_OTEL_UNIT.get(bottom, bottom)}"
    return _UNIT_NAME_BY_OTEL_UNIT.get(unit, unit)


def find_endpoints(reader: SourceReader, folders: Sequence[str]) -> tuple[Endpoint, ...]:
    """Return the endpoints that the modules in some folders define."""
    results: set[tuple[str, str]] = set()
    for folder in folders:
        for module in reader.tree.iter_modules(folder):
            for call in _find_calls(module):
                results |= set(_find_call_endpoints(reader, call, reader.create_scope(module)))
    rows = sorted(results, key=lambda row: (row[1], row[0]))
    return tuple(Endpoint.model_validate({"method": method, "path": path}) for method, path in rows)


def _find_call_endpoints(reader: SourceReader, call: ast.Call, scope: Scope) -> Iterator[tuple[str, str]]:
    path = reader.evaluate_or_default(call.args[0], scope, None) if call.args else None
    if not isinstance(path, str) or not path.startswith("/"):
        return
    on = ast.unparse(call.func).rpartition(".")[0]
    if find_called_name(call) in _HTTP_METHOD_BY_DECORATOR and ("router" in on or "app" in on):
        yield _HTTP_METHOD_BY_DECORATOR[find_called_name(call)], _find_router_prefix(reader, call, scope) + path
    elif find_called_name(call) in {"add_api_route", "api_route"}:
        entries = next(
            (reader.evaluate_or_default(each.value, scope, []) for each in call.keywords if each.arg == "methods"), []
        )
        for method in entries if isinstance(entries, list) else []:
            if str(method).lower() in _HTTP_METHOD_BY_DECORATOR:
                yield str(method), path
    elif find_called_name(call) == "Mount":
        yield "GET", path


def _find_router_prefix(reader: SourceReader, call: ast.Call, scope: Scope) -> str:
    if not isinstance(call.func, ast.Attribute):
        return ""
    router = reader.resolve(call.func.value, scope)
    keywords = router.node.keywords if router and isinstance(router.node, ast.Call) else []
    return str(
        next((reader.evaluate_or_default(each.value, scope, "") for each in keywords if each.arg == "prefix"), "")
    )


def find_read_variables(reader: SourceReader, prefix: str) -> dict[str, object]:
    """Return the environment variables with a prefix that the source reads. Their defaults are unknown."""
    results: dict[str, object] = {}
    for module in reader.tree.iter_modules(pattern=_ENVIRONMENT_ACCESS_PATTERN, containing=prefix):
        for call in _find_calls(module):
            if find_called_name(call) in {"getenv", "get"} and "os." in ast.unparse(call.func) and call.args:
                name = reader.evaluate_or_default(call.args[0], reader.create_scope(module), None)
                if isinstance(name, str) and name.startswith(prefix):
                    results[name] = None
    return results


def find_declared_variables(reader: SourceReader, table: str) -> dict[str, object]:
    """Return the variables that a module declares as ``NAME: type = default`` or in ``environment_variables``."""
    results: dict[str, object] = {}
    module = reader.tree.module(table)
    if module is None:
        raise MissingDefinitionError(table)
    for name, meaning in module.symbols.items():
        if name.isupper() and isinstance(meaning, ast.AnnAssign) and not name.startswith("_"):
            results[name] = (
                reader.evaluate_or_default(meaning.value, reader.create_scope(module), None) if meaning.value else None
            )
    declared = module.symbols.get("environment_variables")
    keys = declared.value.keys if isinstance(declared, ast.AnnAssign) and isinstance(declared.value, ast.Dict) else []
    return results | {str(key.value): results.get(str(key.value)) for key in keys if isinstance(key, ast.Constant)}


def find_listed_variables(reader: SourceReader, dotted: str) -> dict[str, object]:
    """Return the environment variables that a module lists by name."""
    result = reader.require_definition(dotted)
    entries = reader.evaluate_or_default(result.node, result.scope, None)
    if not isinstance(entries, list):
        raise MissingDefinitionError(dotted)
    return {str(name): None for name in entries}


def find_settings_variables(reader: SourceReader, prefix: str, mapping: str) -> dict[str, object]:
    """Return an environment variable and its default for each setting in a mapping of definitions."""
    result = reader.require_definition(mapping)
    node = result.node.value if isinstance(result.node, ast.AnnAssign) else result.node
    values: dict[str, object] = {}
    for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
        items = zip(value.keys, value.values, strict=True) if isinstance(value, ast.Dict) else ()
        default = next((each for name, each in items if getattr(name, "value", None) == "default"), None)
        if isinstance(key, ast.Constant):
            name = f"{prefix}{str(key.value).upper()}"
            values[name] = reader.evaluate_or_default(default, result.scope, None) if default else None
    return values


def _find_calls(module: Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(module.tree) if isinstance(node, ast.Call))


VARIABLE_FINDER_BY_KIND: Mapping[str, Callable[..., dict[str, object]]] = {
    "read": find_read_variables,
    "declared": find_declared_variables,
    "listed": find_listed_variables,
    "of_settings": find_settings_variables,
}
"""Functions that return environment variables, by their name in recipes."""
