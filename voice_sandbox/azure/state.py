"""The last preview of a deployment, stored on disk for comparison with the next one, without secrets."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voice_sandbox.azure.graph import Graph, Resource
from voice_sandbox.azure.values import UNKNOWN, Secret, SecretDigest, Unknown, map_leaves

_FORMAT_VERSION = 1
_MARKER_KEY = "voice:mark"


def get_state_file(root: Path, deployment: str, project: str) -> Path:
    """Return the file of the last preview of a deployment's project."""
    return root / ".voice" / "azure" / deployment / f"{project}.json"


def save_graph(file: Path, graph: Graph) -> None:
    """Write a graph atomically."""
    salt = secrets.token_hex(16)
    document = {
        "version": _FORMAT_VERSION,
        "project": graph.project,
        "stack": graph.stack,
        "resources": [_encode_value(vars(resource), salt) for resource in graph.resources],
        "outputs": _encode_value(graph.outputs, salt),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    draft.replace(file)


def load_graph(file: Path) -> Graph | None:
    """Load the last preview. Return `None` if there is no preview that this version can read."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        if document["version"] != _FORMAT_VERSION:
            return None
        resources = tuple(_decode_resource(item) for item in document["resources"])
        return Graph(document["project"], document["stack"], resources, _decode_value(document["outputs"]))
    except (FileNotFoundError, json.JSONDecodeError, KeyError, TypeError):
        return None


def _decode_resource(item: Mapping[str, Any]) -> Resource:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else _decode_value(value) for name, value in item.items()
    }
    values["property_dependencies"] = {name: tuple(urns) for name, urns in item["property_dependencies"].items()}
    return Resource(**values)


def _encode_value(value: Any, salt: str) -> Any:
    def pack_leaf(leaf: Any) -> Any:
        if isinstance(leaf, Secret):
            digest = leaf.value if isinstance(leaf.value, SecretDigest) else SecretDigest.from_value(leaf.value, salt)
            return {_MARKER_KEY: "secret", "salt": digest.salt, "sha256": digest.sha256}
        return {_MARKER_KEY: "unknown"} if isinstance(leaf, Unknown) else leaf

    return map_leaves(value, pack_leaf)


def _decode_value(value: Any) -> Any:
    match value:
        case {"voice:mark": "unknown"}:
            return UNKNOWN
        case {"voice:mark": "secret", "salt": salt, "sha256": sha256}:
            return Secret(SecretDigest(str(salt), str(sha256)))
        case dict():
            return {key: _decode_value(item) for key, item in value.items()}
        case list():
            return [_decode_value(item) for item in value]
        case _:
            return value
