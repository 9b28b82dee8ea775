"""Azure's type definitions are read from a clone of Microsoft's repository, as deep as the given values."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tools.azure_types.__main__ import NameTree, TypeDefinitionReader

REQUIRED, READ_ONLY, WRITABLE = 1, 2, 0
FILE = "generated/things/microsoft.things/2026-01-01/types.json"
KIND = "Microsoft.Things/boxes@2026-01-01"


def field(type_: int, flags: int = WRITABLE) -> dict[str, Any]:
    return {"type": {"$ref": f"#/{type_}"}, "flags": flags}


# In the format of https://github.com/Azure/bicep-types-az: references are indexes of the list.
TYPES: list[dict[str, Any]] = [
    {"$type": "ResourceType", "name": KIND, "body": {"$ref": "#/1"}},
    {"$type": "ObjectType", "name": KIND, "properties": {
        "name": field(2, REQUIRED | READ_ONLY), "etag": field(2, READ_ONLY),
        "properties": field(3, REQUIRED), "tags": field(8),
    }},
    {"$type": "StringType", "minLength": 3, "maxLength": 24, "pattern": "^[a-z]+$"},
    {"$type": "ObjectType", "name": "BoxProperties", "properties": {
        "size": field(4), "count": field(6), "parts": field(7), "shape": field(9), "untold": field(3),
    }},
    {"$type": "UnionType", "elements": [{"$ref": "#/5"}, {"$ref": "#/10"}]},
    {"$type": "StringLiteralType", "value": "large"},
    {"$type": "IntegerType", "minValue": 1, "maxValue": 9},
    {"$type": "ArrayType", "itemType": {"$ref": "#/6"}, "maxLength": 4},
    {"$type": "ObjectType", "name": "Tags", "properties": {}, "additionalProperties": {"$ref": "#/2"}},
    {"$type": "DiscriminatedObjectType", "discriminator": "kind", "baseProperties": {"count": field(6)},
     "elements": {"round": {"$ref": "#/11"}}},
    {"$type": "StringLiteralType", "value": "small"},
    {"$type": "ObjectType", "name": "Round", "properties": {"radius": field(6, REQUIRED)}},
]  # fmt: skip


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / FILE).parent.mkdir(parents=True)
    (tmp_path / FILE).write_text(json.dumps(TYPES), encoding="utf-8")
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for arguments in (["init", "--quiet"], ["add", "."], [*who, "commit", "--quiet", "--message", "types"]):
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True)  # noqa: S603, S607  fixed command line
    return tmp_path


def test_a_type_is_read_as_deep_as_the_given_values(clone: Path) -> None:
    definitions = TypeDefinitionReader(clone)
    assert len(definitions.commit) == 40
    given: NameTree = {"size": {}, "parts": {"*": {}}, "shape": {"radius": {}}, "tags": {}}
    found = definitions.find_resource_definition(KIND.lower(), given)
    assert found["type"] == KIND
    top = found["body"]["object"]
    assert top["name"] == [REQUIRED, {"string": {"min": 3, "max": 24, "pattern": "^[a-z]+$"}}]  # a name is set
    assert top["etag"] == [READ_ONLY, "any"]
    assert top["tags"][1]["map"] == {"string": {"min": 3, "max": 24, "pattern": "^[a-z]+$"}}
    # The SDK omits `properties`, so values beside it belong in it.
    flags, below = top["properties"]
    assert flags == REQUIRED
    assert below["object"]["size"] == [WRITABLE, {"enum": ["large", "small"]}]
    assert below["object"]["parts"] == [WRITABLE, {"list": {"max": 4, "of": {"int": {"min": 1, "max": 9}}}}]
    assert below["object"]["shape"][1]["choice"]["of"]["round"]["object"].keys() == {"count", "radius"}
    assert below["object"]["untold"] == [WRITABLE, "any"]


@pytest.mark.parametrize("name", ["Microsoft.Things/boxes@2025-01-01", "Microsoft.Things/lids@2026-01-01"])
def test_a_type_that_does_not_exist_is_reported(clone: Path, name: str) -> None:
    with pytest.raises(KeyError):
        TypeDefinitionReader(clone).find_resource_definition(name, {})
