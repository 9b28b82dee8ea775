"""Definitions in the installed Pulumi SDKs: resource types, their inputs and outputs; and Azure's own definitions.

The SDKs' sources are parsed, not imported: azure-native's modules take up to 1.3 s each to import, and the engine does
not run in the program's process. All classes are generated with the same format.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

DEFINITIONS_FILE = Path(__file__).with_name("definitions.json")
SDK_MODULE_BY_PACKAGE: Mapping[str, str] = {"azure-native": "pulumi_azure_native", "kubernetes": "pulumi_kubernetes"}
"""Python module in the SDK by package name in a type token."""

_GETTER_PATTERN = re.compile(r'@pulumi\.getter(?:\(name="(\w+)"\))?\n    def (\w+)\(self\) -> ([^\n]*):\n')
_PARAMETER_PATTERN = re.compile(r"^                 (\w+): (.*?)(,|\):)$", re.MULTILINE)
_IMMUTABLE_WORDING_PATTERN = re.compile(r"cannot be (changed|updated)|not allowed to changed? once set")
"""Wording in Azure's definitions; a switch that cannot be disabled again ("reverted") is a different case."""
_API_VERSION_PATTERN = re.compile(r"Uses Azure REST API version ([\w-]+)\.")
_ARGS_REFERENCE_PATTERN = re.compile(r"'([\w.]+Args)'")
_NEXT_STATEMENT_PATTERN = re.compile(r"^\S", re.MULTILINE)
_MODULE_ENTRY_PATTERN = re.compile(r'"fqn": "([\w.]+)"|"([\w-]+:[\w./-]*:\w+)": "(\w+)"')


@cache
def load_definitions() -> Mapping[str, Mapping[str, Any]]:
    """Return Azure's definition of each deployed type, with its name, its API version and its body."""
    table: dict[str, Mapping[str, Any]] = json.loads(DEFINITIONS_FILE.read_text(encoding="utf-8"))["resources"]
    return table


@dataclass(frozen=True)
class Field:
    """An input or output.

    Attributes:
        name: Name on the wire.
        annotation: Python type in the SDK.
        is_required: Whether the input is required, or the output is always present.
        args_class: Class of the object; `None` for plain values and for unions of classes.
        is_immutable: Whether its definition marks it as immutable after creation.
    """

    name: str
    annotation: str
    is_required: bool
    args_class: str | None = None
    is_immutable: bool = False

    @property
    def is_list(self) -> bool:
        return "Sequence[" in self.annotation.split("Mapping[", maxsplit=1)[0]

    @property
    def is_map(self) -> bool:
        """Whether the value is a map with arbitrary keys."""
        return "Mapping[" in self.annotation.split("Sequence[", maxsplit=1)[0]


@dataclass(frozen=True)
class Shape:
    """The fields of a resource type or of a nested object, by their name on the wire."""

    module: str
    inputs: Mapping[str, Field]
    outputs: Mapping[str, Field]


@cache
def load_type_tokens(package: str) -> Mapping[str, tuple[str, str]]:
    """Return the module and the class for each type token from a package in `SDK_MODULE_BY_PACKAGE`."""
    classes: dict[str, tuple[str, str]] = {}
    module = ""
    for match in _MODULE_ENTRY_PATTERN.finditer(_read_module_source(SDK_MODULE_BY_PACKAGE[package])):
        if match[1]:
            module = match[1]
        else:
            classes[match[2]] = (module, match[3])
    return classes


@cache
def load_resource_shape(token: str) -> Shape | None:
    """Return the shape of a resource type, or `None` if the SDKs do not contain the type."""
    package = token.partition(":")[0]
    if package == "pulumi" and token.startswith("pulumi:providers:"):
        sdk = SDK_MODULE_BY_PACKAGE.get(token.rpartition(":")[2])
        return _parse_shape(f"{sdk}.provider", "Provider") if sdk else None
    if package not in SDK_MODULE_BY_PACKAGE or token not in load_type_tokens(package):
        return None
    module, name = load_type_tokens(package)[token]
    file = f"{module}.{name}" if package == "kubernetes" else f"{module}.{to_module_file_name(name)}"
    return _parse_shape(file, name)


@cache
def find_api_version(token: str) -> str:
    """Return the API version of the service that azure-native uses for a type."""
    module, name = load_type_tokens(token.partition(":")[0])[token]
    match = _API_VERSION_PATTERN.search(_read_module_source(f"{module}.{to_module_file_name(name)}"))
    return match[1] if match else ""


@cache
def load_args_shape(module: str, reference: str) -> Shape | None:
    """Return the shape of a nested object.

    Args:
        module: Module of the referring resource or object.
        reference: Reference in the SDK: `KubeletConfigArgs`, or `_meta.v1.ObjectMetaArgs`.
    """
    *path, name = reference.split(".")
    if path:
        folder = ".".join([module.partition(".")[0], path[0].removeprefix("_"), *path[1:]])
    else:
        folder = module.rpartition(".")[0]
    text = _extract_class_source(_read_module_source(f"{folder}._inputs"), name)
    return Shape(f"{folder}._inputs", _parse_inputs(text), {}) if text else None


def _parse_shape(file: str, name: str) -> Shape | None:
    source = _read_module_source(file)
    own_class = _extract_class_source(source, name)
    if not own_class:
        return None
    arguments = _extract_class_source(source, f"{name}InitArgs") or _extract_class_source(source, f"{name}Args")
    return Shape(file, _parse_inputs(arguments), _parse_outputs(own_class))


def _parse_inputs(text: str) -> dict[str, Field]:
    signature, _, body = text.partition('        """')
    wire, immutable = {}, set()
    for match in _GETTER_PATTERN.finditer(body):
        wire[match[2]] = match[1] or match[2]
        text = body[match.end() : body.find("return pulumi.get", match.end())]
        if _IMMUTABLE_WORDING_PATTERN.search(text):
            immutable.add(match[2])
    fields = {}
    for match in _PARAMETER_PATTERN.finditer(signature):
        annotation, _, default = match[2].partition(" = ")
        references = set(_ARGS_REFERENCE_PATTERN.findall(annotation))
        name = wire.get(match[1], match[1])
        args = references.pop() if len(references) == 1 else None
        fields[name] = Field(name, annotation, not default, args, match[1] in immutable)
    return fields


def _parse_outputs(text: str) -> dict[str, Field]:
    return {
        (name := match[1] or match[2]): Field(name, match[3], "Optional[" not in match[3])
        for match in _GETTER_PATTERN.finditer(text)
    }


def _extract_class_source(source: str, name: str) -> str:
    """Return the source of a class, or an empty string if the module does not contain the class."""
    # A plain string search, since a regular expression takes a hundred times as long for megabytes of source code.
    start = max(source.find(f"\nclass {name}{after}") for after in "(:")
    if start < 0:
        return ""
    body = source.index("\n", start + 1) + 1
    end = _NEXT_STATEMENT_PATTERN.search(source, body)
    return source[body : end.start() if end else None]


@cache
def _read_module_source(module: str) -> str:
    package, *path = module.split(".")
    spec = importlib.util.find_spec(package)
    if not spec or not spec.origin:
        return ""
    base = Path(spec.origin).parent.joinpath(*path)
    file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def to_module_file_name(name: str) -> str:
    """Return the file name of a class. The SDK generator splits words, so that `IoTHub` is in `io_t_hub`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
