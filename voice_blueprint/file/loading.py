"""Loading of a deployment file from YAML into typed objects, with the line of every error."""

import json
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from yaml.composer import Composer
from yaml.reader import Reader

from voice_blueprint.file.errors import DeploymentFileError, FileProblem
from voice_blueprint.file.messages import MAX_REPORTED_ERRORS, deduplicate_errors, describe_error, shorten_value
from voice_blueprint.file.model.azure import Azure, ChatService
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.known import CatalogName
from voice_blueprint.file.source import Location, SourceMap
from voice_blueprint.file.suggestion import format_suggestion_or_choices


def load(path: Path | str) -> Deployment:
    """Load a deployment file.

    Args:
        path: A YAML file.

    Raises:
        DeploymentFileError: The file is missing, is not a YAML mapping, or does not match the model. The error contains
            every problem with its line.
    """
    file = Path(path)
    document, source = _DeploymentFileReader(file).read()
    try:
        # JSON mode is strict about scalars, but accepts a YAML list for a tuple and a string for an enum.
        deployment = Deployment.model_validate_json(json.dumps(document))
    except ValidationError as error:
        located_errors = [describe_error(detail, source) for detail in deduplicate_errors(error)]
        problems = _create_sorted_problems(source, located_errors)
        if len(error.errors()) > MAX_REPORTED_ERRORS:
            omitted = len(error.errors()) - MAX_REPORTED_ERRORS
            problems.append(FileProblem(file, None, f"and {omitted:,} more problems; is it a deployment file?"))
        raise DeploymentFileError(problems) from None
    unknown = list(_find_unknown_names(deployment))
    unknown += _find_unknown_pools(deployment.azure_section) if deployment.azure_section else ()
    if unknown:
        raise DeploymentFileError(_create_sorted_problems(source, unknown))
    return deployment.select_cell().attach_source(source)


def _create_sorted_problems(source: SourceMap, located_errors: list[tuple[Location, str]]) -> list[FileProblem]:
    problems = [FileProblem(source.file, source.find_line(location), message) for location, message in located_errors]
    return sorted(problems, key=lambda problem: problem.line or 0)


MAX_FILE_BYTES = 10**6
"""Maximum size of a file. The largest shipped file is 10 kB; a file with every setting at its maximum length is smaller
than a tenth of this limit."""

_MAX_NESTING_DEPTH = 50
"""Maximum nesting; the model has fewer than ten levels."""


class _StrictYamlLoader(Composer, yaml.CSafeLoader):
    """YAML loader that rejects aliases, which hide locations, and nesting that would exhaust Python's stack.

    libyaml parses the text, five times faster than Python; nodes are composed here.
    """

    _depth = 0

    def __init__(self, text: str) -> None:
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise self._create_loading_error("aliases (*name) are not supported; write the value out")
        if self._depth >= _MAX_NESTING_DEPTH:
            raise self._create_loading_error(f"nested more than {_MAX_NESTING_DEPTH} levels deep")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def _create_loading_error(self, reason: str) -> yaml.MarkedYAMLError:
        # the type stubs do not distinguish libyaml's events from those of Python's parser
        event: Any = self.peek_event()
        return yaml.MarkedYAMLError(None, None, reason, event.start_mark)


_SCALAR_TAGS = {
    "tag:yaml.org,2002:null",
    "tag:yaml.org,2002:bool",
    "tag:yaml.org,2002:int",
    "tag:yaml.org,2002:float",
    "tag:yaml.org,2002:str",
}
_MAX_SAFE_INTEGER = 2**53
"""Above this, floats cannot represent every integer."""
_AMBIGUOUS_NUMBER_PATTERN = re.compile(r":|^[-+]?0[0-9_]")
"""Numbers that YAML 1.1 parses in base 60 (``15:00`` is 900) or base 8 (``010`` is 8)."""


_HINT_BY_YAML_ERROR = {
    "mapping values are not allowed": "write a space after the colon of a key, and quote a value that contains a colon",
    "could not find expected ':'": "write a space after the colon of a key",
    "did not find expected key": "a setting is indented as those around it are",
    "found another document": "remove the `---` between them",
    "did not find expected <document start>": "a deployment file is YAML and starts with `name:`",
    "found undefined alias": "write the value out",
}
"""Remedies by libyaml's error message."""
_CONFLICT_MARKER_PATTERN = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)


class _DeploymentFileReader:
    """Converts a YAML file into plain values and the line of each value."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lines: dict[Location, int] = {}

    def read(self) -> tuple[object, SourceMap]:
        text = self._read_text()
        if control := Reader.NON_PRINTABLE.search(text):
            line = text.count("\n", 0, control.start()) + 1
            raise self._create_error(line, f"contains a character that YAML does not allow (#x{ord(control[0]):04x})")
        if conflict := _CONFLICT_MARKER_PATTERN.search(text):
            line = text.count("\n", 0, conflict.start()) + 1
            raise self._create_error(
                line, "has a merge conflict of git; resolve it, and remove the lines of <, = and >"
            )
        loader = _StrictYamlLoader(text)
        try:
            node = loader.get_single_node()
            if not isinstance(node, yaml.MappingNode):
                top = node.start_mark.line + 1 if node else None
                raise self._create_error(top, "is empty or no mapping; a deployment file starts with `name:`")
            document = self._convert_node(loader, node, ())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            problem_text = ", ".join(filter(None, (error.context, error.problem)))
            opening_mark = error.context_mark
            if "unexpected end of stream" in problem_text and opening_mark:
                # libyaml reports the end of the file; the actual location is the opening quote.
                mark, problem_text = opening_mark, "the quote that opens here is never closed; close it"
            elif (bracket := re.search(r"a flow (mapping|sequence)", problem_text)) and opening_mark:
                start, end = ("{", "}") if bracket[1] == "mapping" else ("[", "]")
                line = opening_mark.line + 1
                problem_text += f"; the `{start}` in line {line} opens it: close it with `{end}`, with `,` between"
            if mark and problem_text.endswith("found character that cannot start any token"):
                problem_text += (
                    f": {text.splitlines()[mark.line][mark.column]!r}; indent with spaces, and put text in quotes"
                )
            problem_text += next(
                (f"; {remedy}" for problem, remedy in _HINT_BY_YAML_ERROR.items() if problem in problem_text), ""
            )
            raise self._create_error(mark.line + 1 if mark else None, f"is not valid YAML: {problem_text}") from None
        finally:
            loader.dispose()
        return document, SourceMap(self._file, self._lines)

    def _read_text(self) -> str:
        try:
            file_stat = self._file.stat()
            if not stat.S_ISREG(file_stat.st_mode) and not stat.S_ISDIR(file_stat.st_mode):
                # Reading from a pipe without a writer would block.
                raise self._create_error(None, "is a pipe or a device; write the deployment to a file, and name that")
            if file_stat.st_size > MAX_FILE_BYTES:
                size = f"{file_stat.st_size / MAX_FILE_BYTES:,.1f}"
                raise self._create_error(
                    None, f"has {size} MB, and a deployment file at most 1 MB; is it the right file?"
                )
            return self._file.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise self._create_error(None, "does not exist; the shipped files are in deployments/") from None
        except IsADirectoryError:
            raise self._create_error(None, "is a directory; name one YAML file in it") from None
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise self._create_error(line, f"is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
        except OSError as error:
            raise self._create_error(None, f"cannot be read: {error.strerror}") from None

    def _convert_node(self, loader: _StrictYamlLoader, node: yaml.Node, location: Location) -> object:
        self._lines.setdefault(location, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._convert_mapping(loader, node, location)
        if isinstance(node, yaml.SequenceNode):
            return [self._convert_node(loader, item, (*location, index)) for index, item in enumerate(node.value)]
        return self._convert_scalar(loader, node)

    def _convert_scalar(self, loader: _StrictYamlLoader, node: yaml.Node) -> object:
        line = node.start_mark.line + 1
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        if node.tag not in _SCALAR_TAGS:
            raise self._create_error(line, f"`{node.value}` reads as a YAML {kind}; put it in quotes")
        try:
            value: object = loader.construct_object(node)
        except (LookupError, ValueError, OverflowError):
            raise self._create_error(line, f"`{shorten_value(node.value)}` is not a valid YAML {kind}") from None
        if kind in {"int", "float"} and _AMBIGUOUS_NUMBER_PATTERN.search(node.value):
            raise self._create_error(
                line, f"`{node.value}` reads as the number {value}; write that, or put it in quotes"
            )
        if isinstance(value, int | float) and not abs(value) < _MAX_SAFE_INTEGER:
            value_text = shorten_value(node.value)
            raise self._create_error(line, f"`{value_text}` is out of range; numbers must be finite and below 2^53")
        return value

    def _convert_mapping(
        self, loader: _StrictYamlLoader, node: yaml.MappingNode, location: Location
    ) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for key_node, value_node in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if key_node.tag == "tag:yaml.org,2002:merge":
                raise self._create_error(line, "merge keys (`<<`) are not supported; write the settings out")
            if not isinstance(key, str) or not key or not key.isprintable():
                advice = "put a value that begins with `{` or `[` in quotes"
                raise self._create_error(line, f"a key must be a plain word; {advice}")
            if key in mapping:
                first = self._lines[(*location, key)]
                raise self._create_error(
                    line, f"`{key}` is defined twice in the same mapping, first in line {first}; keep one"
                )
            self._lines[(*location, key)] = line
            mapping[key] = self._convert_node(loader, value_node, (*location, key))
        return mapping

    def _create_error(self, line: int | None, message: str) -> DeploymentFileError:
        return DeploymentFileError([FileProblem(self._file, line, message)])


def _find_unknown_names(value: object, location: Location = ()) -> Iterator[tuple[Location, str]]:
    """Yield names that are not in the catalogue. The checks decide whether a known entry is suitable."""
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            field_location, element = (*location, field.alias or name), getattr(value, name)
            for names in field.metadata:
                if isinstance(names, CatalogName) and names.kind and element not in names.names():
                    choices = format_suggestion_or_choices(element, names.names())
                    yield field_location, f"`{element}` is not a known {names.kind}{choices}"
            yield from _find_unknown_names(element, field_location)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _find_unknown_names(item, (*location, index))


def _find_unknown_pools(azure: Azure) -> Iterator[tuple[Location, str]]:
    """Yield pools that services refer to but the file does not define."""
    pools = [pool.name for pool in azure.pools]
    for index, service in enumerate(azure.services):
        location = ("azure", "services", index)
        named: list[tuple[Location, str, str, Iterable[str]]] = []
        if isinstance(service, ChatService):
            named += [((*location, "pools", at), name, "file", pools) for at, name in enumerate(service.pools)]
            named += [
                ((*location, "pool_replicas", at, "pool"), bounds.pool, "service", service.pools)
                for at, bounds in enumerate(service.pool_replicas)
            ]
        else:
            named.append(((*location, "pool"), service.pool, "file", pools))
        for at, name, section, names in named:
            if name not in names:
                yield at, f"`{name}` is not a pool of this {section}{format_suggestion_or_choices(name, names)}"
