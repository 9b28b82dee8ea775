"""Reading a deployment file: YAML to typed objects, every mistake with its line."""

import difflib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from yaml.composer import Composer
from yaml.reader import Reader

from blueprint import catalog
from blueprint.file.errors import DeploymentFileError, Problem
from blueprint.file.model.aws import Aws
from blueprint.file.model.azure import Azure, ChatService, JumpHost
from blueprint.file.model.deployment import Deployment
from blueprint.file.source import Location, SourceMap


def load(path: Path | str) -> Deployment:
    """Read one deployment file.

    Args:
        path: A YAML file.

    Raises:
        DeploymentFileError: The file is missing, is no YAML mapping, or does not fit the model; the error
            holds every problem, each with its line.
    """
    file = Path(path)
    document, source = _Reader(file).read()
    try:
        # JSON mode: strict about scalars, yet a YAML list may become a tuple and a string an enum.
        deployment = Deployment.model_validate_json(json.dumps(document))
    except ValidationError as error:
        places = [_describe(detail, source) for detail in _mistakes(error)]
        raise DeploymentFileError(_in_file_order(source, places)) from None
    unknown = list(_unknown_names(deployment))
    if unknown:
        raise DeploymentFileError(_in_file_order(source, unknown))
    return deployment.read_from(source)


def _in_file_order(source: SourceMap, places: list[tuple[Location, str]]) -> list[Problem]:
    problems = [Problem(source.file, source.line(place), message) for place, message in places]
    return sorted(problems, key=lambda problem: problem.line or 0)


_DEEPEST = 50
"""Levels of nesting; the model has fewer than ten."""


class _Loader(Composer, yaml.CSafeLoader):
    """Refuses aliases, which hide where a value stands, and nesting that would exhaust Python's stack.

    Text is parsed by libyaml, five times faster than by Python, and nodes are composed here.
    """

    _depth = 0

    def __init__(self, text: str) -> None:
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise self._refusal("aliases (*name) are not supported; write the value out")
        if self._depth >= _DEEPEST:
            raise self._refusal(f"nested more than {_DEEPEST} levels deep")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def _refusal(self, why: str) -> yaml.MarkedYAMLError:
        event: Any = self.peek_event()  # of libyaml, or of Python's parser, in the type stubs
        return yaml.MarkedYAMLError(None, None, why, event.start_mark)


_SCALARS = {
    "tag:yaml.org,2002:null",
    "tag:yaml.org,2002:bool",
    "tag:yaml.org,2002:int",
    "tag:yaml.org,2002:float",
    "tag:yaml.org,2002:str",
}
_TOO_LARGE = 2**53
"""From here on a float no longer holds every whole number."""
_TRICK_NUMBER = re.compile(r":|^[-+]?0[0-9_]")
"""Numbers that YAML 1.1 reads in base 60 (``15:00`` is 900) or base 8 (``010`` is 8)."""


class _Reader:
    """Turns one YAML file into plain values and the line of each."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lines: dict[Location, int] = {}

    def read(self) -> tuple[object, SourceMap]:
        text = self._text()
        if control := Reader.NON_PRINTABLE.search(text):
            line = text.count("\n", 0, control.start()) + 1
            raise self._error(line, f"holds a character that YAML does not allow (#x{ord(control[0]):04x})")
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if not isinstance(node, yaml.MappingNode):
                top = node.start_mark.line + 1 if node else None
                raise self._error(top, "is empty or no mapping; a deployment file starts with `name:`")
            document = self._value(loader, node, ())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            what = ", ".join(filter(None, (error.context, error.problem)))
            if mark and what.endswith("found character that cannot start any token"):
                what += f": {text.splitlines()[mark.line][mark.column]!r}"
            raise self._error(mark.line + 1 if mark else None, f"is not valid YAML: {what}") from None
        finally:
            loader.dispose()
        return document, SourceMap(self._file, self._lines)

    def _text(self) -> str:
        try:
            return self._file.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise self._error(None, "does not exist; the shipped files are in deployments/") from None
        except IsADirectoryError:
            raise self._error(None, "is a directory; name one YAML file in it") from None
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise self._error(line, f"is not UTF-8 text (byte {error.start})") from None
        except OSError as error:
            raise self._error(None, f"cannot be read: {error.strerror}") from None

    def _value(self, loader: _Loader, node: yaml.Node, location: Location) -> object:
        self._lines.setdefault(location, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(loader, node, location)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(loader, item, (*location, index)) for index, item in enumerate(node.value)]
        return self._scalar(loader, node)

    def _scalar(self, loader: _Loader, node: yaml.Node) -> object:
        line = node.start_mark.line + 1
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        if node.tag not in _SCALARS:
            raise self._error(line, f"`{node.value}` reads as a YAML {kind}; put it in quotes")
        try:
            value: object = loader.construct_object(node)
        except (LookupError, ValueError, OverflowError):
            raise self._error(line, f"`{_shortened(node.value)}` is no YAML {kind}") from None
        if kind in {"int", "float"} and _TRICK_NUMBER.search(node.value):
            raise self._error(line, f"`{node.value}` reads as the number {value}; write that, or put it in quotes")
        if isinstance(value, int | float) and not abs(value) < _TOO_LARGE:
            shown = _shortened(node.value)
            raise self._error(line, f"`{shown}` is out of range; numbers here are finite and below 2^53")
        return value

    def _mapping(self, loader: _Loader, node: yaml.MappingNode, location: Location) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for key_node, value_node in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if not isinstance(key, str) or not key or not key.isprintable():
                raise self._error(line, "a key must be a plain word")
            if key in mapping:
                raise self._error(line, f"`{key}` stands twice in the same place")
            self._lines[(*location, key)] = line
            mapping[key] = self._value(loader, value_node, (*location, key))
        return mapping

    def _error(self, line: int | None, message: str) -> DeploymentFileError:
        return DeploymentFileError([Problem(self._file, line, message)])


RENAMED = {
    "breaching_datapoints": ("datapoints_to_alarm",),
    "evaluated_datapoints": ("evaluation_periods",),
    "change": ("adjustment",),
    "beyond": ("lower_bound", "upper_bound"),
}
"""Settings that had another name in an earlier release, with the names of today."""

_SUBJECT = re.compile(r"^(Input|String|Tuple) ")
"""How pydantic's messages start; ours start with the setting."""


def _mistakes(error: ValidationError) -> list[ErrorDetails]:
    """Return what pydantic found, each mistake once: a misspelt required key is unknown, not missing too."""
    details = error.errors()
    meant = {
        (*detail["loc"][:-1], name)
        for detail in details
        if detail["type"] == "extra_forbidden"
        for name in _meant(str(detail["loc"][-1]), _fields_at(detail["loc"][:-1]))
    }
    inside = {detail["loc"][:length] for detail in details for length in range(len(detail["loc"]))}
    return [
        detail
        for detail in details
        if not (detail["type"] == "missing" and detail["loc"] in meant)
        # A list is not too short when its items are wrong: pydantic counts the good ones only.
        and not (detail["type"] == "too_short" and detail["loc"] in inside)
    ]


def _meant(word: str, fields: list[str]) -> list[str]:
    """Return what a setting that does not exist is called: under today's names, or the nearest one."""
    renamed = [name for name in RENAMED.get(word, ()) if name in fields]
    near = _nearest(word, fields)
    return renamed or ([near] if near else [])


def _describe(detail: ErrorDetails, source: SourceMap) -> tuple[Location, str]:
    """Say what pydantic found in an operator's words, and where in the file."""
    location = _spelt_out(detail["loc"], source)
    match detail["type"]:
        case "missing":
            location = (*location, detail["loc"][-1])
        case "union_tag_invalid" | "union_tag_not_found":
            location = (*location, detail["ctx"]["discriminator"].strip("'"))
    path = ".".join(map(str, location))
    match detail["type"]:
        case "extra_forbidden":
            fields = _fields_at(detail["loc"][:-1])
            word = str(location[-1])
            today = " or ".join(f"`{name}`" for name in _meant(word, fields) if word in RENAMED)
            hint = f"; it is called {today} now" if today else suggestion(word, fields)
            message = f"`{path}` is no setting{hint}"
        case "missing" | "union_tag_not_found":
            message = f"`{path}` is missing"
        case "union_tag_invalid":
            message = f"`{path}` is {json.dumps(detail['ctx']['tag'])}: should be {detail['ctx']['expected_tags']}"
        case "value_error":
            message = f"`{path}`: {detail['ctx']['error']}" if path else str(detail["ctx"]["error"])
        case kind:
            value = detail["input"]
            number_for_text = kind == "string_type" and isinstance(value, int | float)
            shown = _shortened(json.dumps(value, ensure_ascii=False))
            message = f"`{path}` is {shown}: {_SUBJECT.sub('', detail['msg']).lower()}"
            if number_for_text:
                message += "; put it in quotes"
    return location, message


def _spelt_out(location: Location, source: SourceMap) -> Location:
    """Return the part of a location that the file has, without the union tags that pydantic adds."""
    place: Location = ()
    for part in location:
        if (*place, part) in source.lines:
            place = (*place, part)
    return place


def _shortened(value: str) -> str:
    return value if len(value) <= 60 else f"{value[:57]}..."  # noqa: PLR2004  a line's worth


def _fields_at(location: Location) -> list[str]:
    """Return the settings that the model has at a place in the file."""
    models: list[type[BaseModel]] = [Deployment]
    for part in location:
        fields = [_settings(m)[str(part)] for m in models if part in _settings(m)]
        if fields:
            models = [model for field in fields for model in _models_in(field)]
        else:
            # A list's index names no field; a union's tag leaves the member that has it.
            models = [model for model in models if _is_tagged(model, part)] or models
    return [name for model in models for name in _settings(model)]


def _settings(model: type[BaseModel]) -> dict[str, object]:
    """Return the types of a model's fields by their names in the file."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _is_tagged(model: type[BaseModel], tag: str | int) -> bool:
    return any(tag in get_args(field.annotation) for field in model.model_fields.values())


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean `x`?" for a misspelt word, or nothing where none is near."""
    near = _nearest(word, known)
    return f"; did you mean `{near}`?" if near else ""


def _nearest(word: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def _unknown_names(deployment: Deployment) -> Iterator[tuple[Location, str]]:
    """Find names that nothing has; whether a known thing fits is for the checks."""
    for location, name, kind, known in _names(deployment):
        if name not in known:
            yield location, f"`{name}` is no {kind}{suggestion(name, known)}"


_Named = tuple[Location, str, str, Iterable[str]]


def _names(deployment: Deployment) -> Iterator[_Named]:
    """Yield every name in the file that must exist elsewhere: where, name, kind, known names."""
    if deployment.aws_half:
        yield from _aws_names(deployment.aws_half)
        for index, other in enumerate(deployment.aws.other_regions):
            for at, name, kind, known in _aws_names(deployment.aws.in_other_region(index)):
                if other.says(at):
                    yield ("aws", "other_regions", index, *at[1:]), name, kind, known
    if deployment.azure_half:
        yield from _azure_names(deployment.azure_half)


def _aws_names(aws: Aws) -> Iterator[_Named]:
    kind, known = "EC2 instance type in blueprint/catalog/instance_types.yaml", catalog.instance_types()
    yield ("aws", "vad", "instance_type"), aws.vad.instance_type, kind, known
    for index, fleet in enumerate(aws.asr):
        yield ("aws", "asr", index, "instance_type"), fleet.instance_type, kind, known
        if fleet.vllm:
            yield ("aws", "asr", index, "vllm", "model"), fleet.vllm.model, _MODEL, catalog.models()
    yield ("aws", "region"), aws.region, "AWS region in blueprint/catalog/regions.yaml", catalog.regions()
    kind = "ElastiCache node type in blueprint/catalog/cache_node_types.yaml"
    yield ("aws", "state", "node_type"), aws.state.node_type, kind, catalog.cache_node_types()


_MODEL = "model in blueprint/catalog/models.yaml"


def _azure_names(azure: Azure) -> Iterator[_Named]:
    kind, known = "Azure VM size in blueprint/catalog/vm_sizes.yaml", catalog.vm_sizes()
    yield ("azure", "system_pool", "vm_size"), azure.system_pool.vm_size, kind, known
    if azure.cpu_pool:
        yield ("azure", "cpu_pool", "vm_size"), azure.cpu_pool.vm_size, kind, known
    for index, pool in enumerate(azure.pools):
        yield ("azure", "pools", index, "vm_size"), pool.vm_size, kind, known
    if isinstance(azure.access, JumpHost):
        yield ("azure", "access", "vm_size"), azure.access.vm_size, kind, known
    pools = [pool.name for pool in azure.pools]
    for index, service in enumerate(azure.services):
        place = ("azure", "services", index)
        yield (*place, "model"), service.model, _MODEL, catalog.models()
        if isinstance(service, ChatService):
            for number, pool_name in enumerate(service.pools):
                yield (*place, "pools", number), pool_name, "pool of this file", pools
            for number, bounds in enumerate(service.pool_replicas):
                yield (*place, "pool_replicas", number, "pool"), bounds.pool, "pool of this service", service.pools
        else:
            yield (*place, "pool"), service.pool, "pool of this file", pools
    for index, agreement in enumerate(azure.model_agreements):
        yield ("azure", "model_agreements", index, "model"), agreement.model, _MODEL, catalog.models()
