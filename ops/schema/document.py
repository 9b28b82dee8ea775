"""The JSON schema of deployment files, in which every setting says what it is."""

from collections.abc import Iterator
from typing import Any

from blueprint.file.model.deployment import Deployment

Schema = dict[str, Any]
"""A JSON schema, or a part of one."""

_REF = "#/$defs/"


def schema() -> Schema:
    """Return the JSON schema of deployment files.

    A setting's description is the docstring below it in the model, or else that of the one type it holds. The word that
    chooses a kind (``kind: iam``) is described by the type that it chooses.
    """
    whole = Deployment.model_json_schema()
    whole["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    for part in (whole, *whole["$defs"].values()):
        part.pop("title", None)
        for setting in part.get("properties", {}).values():
            setting.pop("title", None)
            if "description" not in setting:
                describing = [part] if "const" in setting else [whole["$defs"][name] for name in types_in(setting)]
                if len(describing) == 1:
                    setting["description"] = describing[0]["description"]
    return whole


def types_in(setting: Schema) -> list[str]:
    """Return the names of the types that a setting may hold, itself or as items."""
    return list(dict.fromkeys(_types_in(setting)))


def _types_in(setting: Schema) -> Iterator[str]:
    if "$ref" in setting:
        yield setting["$ref"].removeprefix(_REF)
    for choice in (*setting.get("anyOf", ()), *setting.get("oneOf", ())):
        yield from _types_in(choice)
    if "items" in setting:
        yield from _types_in(setting["items"])
