"""What the installed Pulumi SDKs know: resource types, their inputs and outputs; and Azure's own table of types.

Their sources are read, not imported: azure-native's modules cost up to 1.3 s each to import, and the engine runs in
another process than the program. The generator of these files writes one shape for every class.
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

DEFINITIONS = Path(__file__).with_name("definitions.json")
SDKS: Mapping[str, str] = {"azure-native": "pulumi_azure_native", "kubernetes": "pulumi_kubernetes"}
"""Package name in a type token -> Python module of its SDK."""

_GETTER = re.compile(r'@pulumi\.getter(?:\(name="(\w+)"\))?\n    def (\w+)\(self\) -> ([^\n]*):\n')
_PARAMETER = re.compile(r"^                 (\w+): (.*?)(,|\):)$", re.MULTILINE)
_IMMUTABLE = re.compile(r"cannot be (changed|updated)|not allowed to changed? once set")
"""How Azure's definitions say it; a switch that cannot be turned back ("reverted") is another thing."""
_API_VERSION = re.compile(r"Uses Azure REST API version ([\w-]+)\.")
_ARGS = re.compile(r"'([\w.]+Args)'")
_NEXT = re.compile(r"^\S", re.MULTILINE)
_ENTRY = re.compile(r'"fqn": "([\w.]+)"|"([\w-]+:[\w./-]*:\w+)": "(\w+)"')


@cache
def definitions() -> Mapping[str, Mapping[str, Any]]:
    """Return Azure's definition of each type that is deployed: its name with the API's version, and its body."""
    table: dict[str, Mapping[str, Any]] = json.loads(DEFINITIONS.read_text(encoding="utf-8"))["resources"]
    return table


@dataclass(frozen=True)
class Field:
    """One input or output.

    Attributes:
        name: Its name on the wire.
        annotation: Its Python type as the SDK writes it.
        required: Whether it has to be given (an input), or is always there (an output).
        args: The class of the object that it takes; `None` for plain values and for choices between classes.
        immutable: Whether its definition says that it cannot change once the resource is made.
    """

    name: str
    annotation: str
    required: bool
    args: str | None = None
    immutable: bool = False

    @property
    def is_list(self) -> bool:
        return "Sequence[" in self.annotation.split("Mapping[", maxsplit=1)[0]

    @property
    def is_map(self) -> bool:
        """Whether it is a map from names of the program's choice."""
        return "Mapping[" in self.annotation.split("Sequence[", maxsplit=1)[0]


@dataclass(frozen=True)
class Shape:
    """A resource type or a nested object: its fields by their name on the wire."""

    module: str
    inputs: Mapping[str, Field]
    outputs: Mapping[str, Field]


@cache
def tokens(package: str) -> Mapping[str, tuple[str, str]]:
    """Return module and class by type token, for a package of `SDKS`."""
    found: dict[str, tuple[str, str]] = {}
    module = ""
    for match in _ENTRY.finditer(_source(SDKS[package])):
        if match[1]:
            module = match[1]
        else:
            found[match[2]] = (module, match[3])
    return found


@cache
def resource_shape(token: str) -> Shape | None:
    """Return the shape of a resource type; `None` where the SDKs do not know it."""
    package = token.partition(":")[0]
    if package == "pulumi" and token.startswith("pulumi:providers:"):
        sdk = SDKS.get(token.rpartition(":")[2])
        return _shape(f"{sdk}.provider", "Provider") if sdk else None
    if package not in SDKS or token not in tokens(package):
        return None
    module, name = tokens(package)[token]
    file = f"{module}.{name}" if package == "kubernetes" else f"{module}.{file_of(name)}"
    return _shape(file, name)


@cache
def api_version(token: str) -> str:
    """Return the version of the service's API that azure-native speaks for a type."""
    module, name = tokens(token.partition(":")[0])[token]
    found = _API_VERSION.search(_source(f"{module}.{file_of(name)}"))
    return found[1] if found else ""


@cache
def args_shape(module: str, reference: str) -> Shape | None:
    """Return the shape of a nested object.

    Args:
        module: Module of the resource or object that refers to it.
        reference: The reference as the SDK writes it: `KubeletConfigArgs`, or `_meta.v1.ObjectMetaArgs`.
    """
    *path, name = reference.split(".")
    if path:
        folder = ".".join([module.partition(".")[0], path[0].removeprefix("_"), *path[1:]])
    else:
        folder = module.rpartition(".")[0]
    text = _class(_source(f"{folder}._inputs"), name)
    return Shape(f"{folder}._inputs", _inputs(text), {}) if text else None


def _shape(file: str, name: str) -> Shape | None:
    source = _source(file)
    own = _class(source, name)
    if not own:
        return None
    arguments = _class(source, f"{name}InitArgs") or _class(source, f"{name}Args")
    return Shape(file, _inputs(arguments), _outputs(own))


def _inputs(text: str) -> dict[str, Field]:
    signature, _, body = text.partition('        """')
    wire, immutable = {}, set()
    for match in _GETTER.finditer(body):
        wire[match[2]] = match[1] or match[2]
        text = body[match.end() : body.find("return pulumi.get", match.end())]
        if _IMMUTABLE.search(text):
            immutable.add(match[2])
    fields = {}
    for match in _PARAMETER.finditer(signature):
        annotation, _, default = match[2].partition(" = ")
        references = set(_ARGS.findall(annotation))
        name = wire.get(match[1], match[1])
        args = references.pop() if len(references) == 1 else None
        fields[name] = Field(name, annotation, not default, args, match[1] in immutable)
    return fields


def _outputs(text: str) -> dict[str, Field]:
    return {
        (name := match[1] or match[2]): Field(name, match[3], "Optional[" not in match[3])
        for match in _GETTER.finditer(text)
    }


def _class(source: str, name: str) -> str:
    """Return the text of one class; empty where there is none."""
    # Found as plain text: the sources are megabytes, through which a pattern takes a hundred times as long.
    start = max(source.find(f"\nclass {name}{after}") for after in "(:")
    if start < 0:
        return ""
    body = source.index("\n", start + 1) + 1
    end = _NEXT.search(source, body)
    return source[body : end.start() if end else None]


@cache
def _source(module: str) -> str:
    package, *path = module.split(".")
    spec = importlib.util.find_spec(package)
    if not spec or not spec.origin:
        return ""
    base = Path(spec.origin).parent.joinpath(*path)
    file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def file_of(name: str) -> str:
    """Return the file name of a class: `IoTHub` is `io_t_hub`, as the SDK generator splits words."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
