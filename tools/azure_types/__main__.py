"""``python -m tools.azure_types``: generate a table of Azure's definitions for the types in the shipped files."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

import voice_blueprint
from voice_blueprint.shipped import ROOT
from voice_ops.exits import FAILED
from voice_ops.output import create_exit, out
from voice_sandbox.azure import arm
from voice_sandbox.azure.definitions import READ_ONLY, DefinitionNode
from voice_sandbox.azure.graph import shorten_type
from voice_sandbox.azure.schema import DEFINITIONS_FILE, find_api_version
from voice_sandbox.azure.values import reveal_secrets
from voice_sandbox.rehearsals.azure import Rehearsal

REPOSITORY_URL = "https://github.com/Azure/bicep-types-az"
CLONE_HELP = f"A clone of {REPOSITORY_URL}; `git clone --filter=blob:none --no-checkout` is enough."
NameTree = dict[str, Any]
"""Property names that resources use, each with its children. The key ``*`` contains the names of list items and map
values."""


class TypeDefinitionReader:
    """Azure's type definitions at the newest commit of a clone."""

    def __init__(self, clone: Path) -> None:
        self._clone = clone
        self.commit = self._run_git("rev-parse", "HEAD").strip()
        self._files = self._run_git("ls-tree", "-r", "--name-only", "HEAD", "generated").splitlines()
        self._types = cache(lambda file: json.loads(self._run_git("show", f"HEAD:{file}")))

    def find_resource_definition(self, name: str, names: NameTree) -> dict[str, Any]:
        """Return the definition of a resource type, limited to the properties in ``names``.

        Raises:
            KeyError: The API version has no such type.
        """
        namespace, version = name.partition("/")[0].lower(), name.rpartition("@")[2]
        for file in self._files:
            if file.endswith(f"/{namespace}/{version}/types.json"):
                types = self._types(file)
                for each in types:
                    if each["$type"] == "ResourceType" and each["name"].lower() == name.lower():
                        return {"type": each["name"], "body": self._convert_type(types, each["body"], names)}
        raise KeyError(name)

    def _convert_type(self, types: list[Any], reference: Mapping[str, str], names: NameTree | None) -> DefinitionNode:
        result = types[int(reference["$ref"].partition("#/")[2])]
        match result["$type"]:
            case "BooleanType":
                node: DefinitionNode = "bool"
            case "IntegerType":
                node = {"int": _select_limits(result, "minValue", "maxValue")}
            case "StringType":
                pattern = {"pattern": result["pattern"]} if result.get("pattern") else {}
                node = {"string": {**_select_limits(result, "minLength", "maxLength"), **pattern}}
            case "StringLiteralType":
                node = {"enum": [result["value"]]}
            case "UnionType":
                node = self._convert_union(types, result)
            case "ArrayType":
                of = self._convert_type(types, result["itemType"], names and names.get("*"))
                node = {"list": {**_select_limits(result, "minLength", "maxLength"), "of": of}}
            case "ObjectType" if names is not None:
                node = self._convert_object(types, result, names)
            case "DiscriminatedObjectType" if names is not None:
                node = self._convert_choice(types, result, names)
            case _:
                node = "any"
        return node

    def _convert_union(self, types: list[Any], type_: Mapping[str, Any]) -> DefinitionNode:
        of = [types[int(each["$ref"].partition("#/")[2])] for each in type_["elements"]]
        values = [each["value"] for each in of if each["$type"] == "StringLiteralType"]
        # Microsoft.Compute no longer updates its list of VM sizes (the newest are from 2018), so sizes are validated by
        # the catalogue.
        return {"enum": values} if values and "Standard_A0" not in values else "any"

    def _convert_object(self, types: list[Any], type_: Mapping[str, Any], names: NameTree) -> DefinitionNode:
        if type_.get("additionalProperties") and not type_["properties"]:
            return {"map": self._convert_type(types, type_["additionalProperties"], names.get("*", {}))}
        return {"object": dict(self._convert_properties(types, type_["properties"], names))}

    def _convert_properties(
        self, types: list[Any], properties: Mapping[str, Any], names: NameTree
    ) -> Iterator[tuple[str, Any]]:
        for name, each in properties.items():
            read_only = each["flags"] & READ_ONLY and name != "name"
            # The SDK omits `properties`, so the children of `properties` belong to the parent.
            children = {**names, **names.get(name, {})} if name == "properties" else names.get(name)
            flags = each["flags"] & ~READ_ONLY if name == "name" else each["flags"]
            yield name, [flags, "any" if read_only else self._convert_type(types, each["type"], children)]

    def _convert_choice(self, types: list[Any], type_: Mapping[str, Any], names: NameTree) -> DefinitionNode:
        base = dict(self._convert_properties(types, type_["baseProperties"], names))
        of = {name: self._convert_type(types, each, names) for name, each in type_["elements"].items()}
        merged = {name: {"object": {**base, **node["object"]}} for name, node in of.items()}
        return {"choice": {"by": type_["discriminator"], "of": merged}}

    def _run_git(self, *arguments: str) -> str:
        return subprocess.run(  # noqa: S603  a fixed command
            ["git", "-C", str(self._clone), *arguments],  # noqa: S607
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip


def _select_limits(type_: Mapping[str, Any], min_key: str, max_key: str) -> dict[str, int]:
    return {name: type_[key] for name, key in (("min", min_key), ("max", max_key)) if type_.get(key) is not None}


def _add_names(value: Any, into: NameTree) -> NameTree:  # noqa: ANN401  any value of an input
    """Add the names in a mapping or list to a tree, including nested names."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            _add_names(item, into.setdefault(name, {}))
            _add_names(item, into.setdefault("*", {}))
    elif isinstance(value, list):
        for item in value:
            _add_names(item, into.setdefault("*", {}))
    return into


def collect_names_by_type() -> dict[str, NameTree]:
    """Return the property names that the programs of all shipped files set, by resource type."""
    results: dict[str, NameTree] = {}
    for file in sorted((ROOT / "deployments").glob("*.yaml")):
        deployment = voice_blueprint.load(file)
        if deployment.azure_section is None:
            continue
        with Rehearsal.from_deployment(deployment) as rehearsal:
            graphs = [done.up.graph for done in rehearsal.run()]
        for resource in (each for graph in graphs for each in graph.iter_managed_resources()):
            if resource.type.startswith("azure-native:"):
                _add_names(reveal_secrets(resource.inputs), results.setdefault(shorten_type(resource.type), {}))
    return results


def refresh(clone: Annotated[Path, typer.Argument(metavar="CLONE", help=CLONE_HELP)]) -> None:
    """Update the stored definitions of every type in the shipped files, for the API versions of the SDK.

    Example: python -m tools.azure_types ../bicep-types-az
    """
    definitions = TypeDefinitionReader(clone)
    resources = {}
    for kind, names in sorted(collect_names_by_type().items()):
        name = f"{arm.to_arm_type(kind)}@{find_api_version(f'azure-native:{kind}')}"
        try:
            definition = definitions.find_resource_definition(name, names)
        except KeyError:
            raise create_exit(f"{kind}: {REPOSITORY_URL} has no {name} at {definitions.commit}", FAILED) from None
        resources[kind] = definition
    rows = ",\n".join(f"  {json.dumps(kind)}: {json.dumps(definition)}" for kind, definition in resources.items())
    origin = json.dumps({"repository": REPOSITORY_URL, "commit": definitions.commit})
    DEFINITIONS_FILE.write_text(f'{{\n "origin": {origin},\n "resources": {{\n{rows}\n }}\n}}\n', encoding="utf-8")
    out.print(f"{len(resources)} types from {definitions.commit}")


if __name__ == "__main__":
    typer.run(refresh)
