"""Reading a deployment file: YAML to typed objects, every mistake with its line."""

import difflib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from blueprint import catalog
from blueprint.errors import DeploymentFileError, Problem
from blueprint.model.deployment import Deployment
from blueprint.source import Location, SourceMap


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
        problems = [Problem(file, source.line(detail["loc"]), _describe(detail)) for detail in error.errors()]
        raise DeploymentFileError(problems) from None
    unknown = [Problem(file, source.line(place), message) for place, message in _unknown_names(deployment)]
    if unknown:
        raise DeploymentFileError(unknown)
    return deployment.read_from(source)


class _Loader(yaml.SafeLoader):
    """Refuses aliases: they hide where a value stands, and a small file of them can grow without bound."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(
                None, None, "aliases (*name) are not supported; write the value out", mark
            )
        return super().compose_node(parent, index)


_SCALARS = {
    "tag:yaml.org,2002:null",
    "tag:yaml.org,2002:bool",
    "tag:yaml.org,2002:int",
    "tag:yaml.org,2002:float",
    "tag:yaml.org,2002:str",
}


class _Reader:
    """Turns one YAML file into plain values and the line of each."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lines: dict[Location, int] = {}

    def read(self) -> tuple[object, SourceMap]:
        loader = _Loader(self._text())
        try:
            node = loader.get_single_node()
            if not isinstance(node, yaml.MappingNode):
                raise self._error(None, "is empty or no mapping; a deployment file starts with `name:`")
            document = self._value(loader, node, ())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise self._error(mark, f"is not valid YAML: {error.problem or error.context}") from None
        except yaml.YAMLError as error:
            raise self._error(None, f"is not valid YAML: {error}") from None
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
            raise self._error(None, f"is not UTF-8 text (byte {error.start})") from None
        except OSError as error:
            raise self._error(None, f"cannot be read: {error.strerror}") from None

    def _value(self, loader: _Loader, node: yaml.Node, location: Location) -> object:
        self._lines.setdefault(location, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(loader, node, location)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(loader, item, (*location, index)) for index, item in enumerate(node.value)]
        if node.tag not in _SCALARS:
            kind = node.tag.removeprefix("tag:yaml.org,2002:")
            raise self._error(node.start_mark, f"`{node.value}` reads as a YAML {kind}; put it in quotes")
        return loader.construct_object(node)

    def _mapping(self, loader: _Loader, node: yaml.MappingNode, location: Location) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if not isinstance(key, str):
                raise self._error(key_node.start_mark, "a key must be a plain word")
            if key in mapping:
                raise self._error(key_node.start_mark, f"`{key}` stands twice in the same place")
            self._lines[(*location, key)] = key_node.start_mark.line + 1
            mapping[key] = self._value(loader, value_node, (*location, key))
        return mapping

    def _error(self, mark: yaml.Mark | None, message: str) -> DeploymentFileError:
        return DeploymentFileError([Problem(self._file, mark.line + 1 if mark else None, message)])


def _describe(detail: ErrorDetails) -> str:
    """Say what pydantic found in an operator's words."""
    location = detail["loc"]
    path = ".".join(map(str, location))
    match detail["type"]:
        case "extra_forbidden":
            near = suggestion(str(location[-1]), _fields_at(location[:-1]))
            return f"`{path}` is no setting{near}"
        case "missing":
            return f"`{path}` is missing"
        case "value_error":
            return f"`{path}`: {detail['ctx']['error']}" if path else str(detail["ctx"]["error"])
        case "json_invalid":
            return "holds a number that is not finite"
        case _:
            value = json.dumps(detail["input"])
            shown = value if len(value) <= 60 else f"{value[:57]}..."  # noqa: PLR2004  a line's worth
            return f"`{path}` is {shown}: {detail['msg'].removeprefix('Input ').lower()}"


def _fields_at(location: Location) -> list[str]:
    """Return the settings that the model has at a place in the file."""
    models: list[type[BaseModel]] = [Deployment]
    for part in location:
        fields = [m.model_fields[part].annotation for m in models if part in m.model_fields]
        # Indices and union tags name no field: they stay with the models at hand.
        models = [model for field in fields for model in _models_in(field)] or models
    return [name for model in models for name in model.model_fields]


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean `x`?" for a misspelt word, or nothing where none is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


def _unknown_names(deployment: Deployment) -> Iterator[tuple[Location, str]]:
    """Find names that no catalogue has; whether a known thing fits is for the checks."""
    aws = deployment.aws
    types: list[tuple[Location, str]] = [(("aws", "vad", "instance_type"), aws.vad.instance_type)]
    types += [(("aws", "asr", i, "instance_type"), fleet.instance_type) for i, fleet in enumerate(aws.asr)]
    names: list[tuple[Location, str, str, Iterable[str]]] = [
        (location, name, "EC2 instance type", catalog.instance_types()) for location, name in types
    ]
    names.append((("aws", "region"), aws.region, "AWS region", catalog.regions()))
    names.append(
        (
            ("aws", "state", "node_type"),
            aws.state.node_type,
            "ElastiCache node type",
            catalog.cache_node_types(),
        )
    )
    for location, name, kind, known in names:
        if name not in known:
            yield location, f"`{name}` is no {kind} in the catalogue{suggestion(name, known)}"
