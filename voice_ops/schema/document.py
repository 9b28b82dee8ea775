"""Generates the JSON schema for deployment files, with a description of each setting."""

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from voice_blueprint.file.model.deployment import Deployment

Schema = dict[str, Any]
"""A JSON schema, or a part of one."""

_REF_PREFIX = "#/$defs/"


class _DocstringSchemaGenerator(GenerateJsonSchema):
    """Schema generator that uses the docstring below each setting as its description.

    pydantic's option ``use_attribute_docstrings`` would read the docstrings at the start of each command.
    """

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        result = super().model_schema(schema)
        for base in reversed(schema["cls"].__mro__):
            for name, text in _iter_setting_docstrings(base):
                if setting := result.get("properties", {}).get(name):
                    setting["description"] = text
        return result


def _iter_setting_docstrings(model: type) -> Iterator[tuple[str, str]]:
    if "__annotations__" not in vars(model):
        return
    for setting, below in pairwise(_parse_class_bodies(model.__module__)[model.__name__]):
        match setting, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, inspect.cleandoc(text)


@cache
def _parse_class_bodies(module: str) -> dict[str, list[ast.stmt]]:
    """Return the statements of each class in a module.

    The module is parsed once, since parsing each class separately takes ten times as long.
    """
    parsed = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node.body for node in parsed.body if isinstance(node, ast.ClassDef)}


def build_schema() -> Schema:
    """Return the JSON schema for deployment files.

    The description of a setting is the docstring below the setting in the model, or otherwise the docstring of its
    type. The docstring of a variant describes the value that selects the variant (``kind: iam``).
    """
    schema = Deployment.model_json_schema(schema_generator=_DocstringSchemaGenerator)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    for part in (schema, *schema["$defs"].values()):
        part.pop("title", None)
        for setting in part.get("properties", {}).values():
            setting.pop("title", None)
            if "description" not in setting:
                definitions = (
                    [part] if "const" in setting else [schema["$defs"][name] for name in list_type_names(setting)]
                )
                if len(definitions) == 1:
                    setting["description"] = definitions[0]["description"]
    return schema


def list_type_names(setting: Schema) -> list[str]:
    """Return the names of the types that a setting or its items may have."""
    return list(dict.fromkeys(_iter_setting_types(setting)))


def _iter_setting_types(setting: Schema) -> Iterator[str]:
    if "$ref" in setting:
        yield setting["$ref"].removeprefix(_REF_PREFIX)
    for choice in (*setting.get("anyOf", ()), *setting.get("oneOf", ())):
        yield from _iter_setting_types(choice)
    if "items" in setting:
        yield from _iter_setting_types(setting["items"])
