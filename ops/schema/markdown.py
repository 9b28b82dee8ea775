"""The JSON schema of deployment files as a page for people."""

import json
import re
from collections.abc import Iterator

from ops.schema.document import Schema, types_in

_HEAD = """\
# The deployment file

Every setting of a file under `deployments/`. `make schema` writes this page and the schema for editors,
`deployments/schema.json`, from the model in `blueprint/file/model`.

A required setting may be missing only together with its whole section. `[]` behind a section's name says that it is a
list, and a word behind a colon that it is one of several kinds.

Editors complete settings and show what they mean where a file's first line is
`# yaml-language-server: $schema=schema.json`. `voice plan FILE` says what is wrong with a file, and in which line.
"""

_WORDS = {"string": "text", "boolean": "`true` or `false`", "integer": "whole number", "number": "number"}
"""What people call a plain type."""


def render(schema: Schema) -> str:
    """Return the page: a section for each part of the file, in the order of the model."""
    sections = dict(_sections(schema, "", schema, set()))
    titles = {id(part): title for title, part in sections.items()}

    def linked(part: Schema, above: str, name: str) -> str:
        title = titles[id(part)]
        words = "" if title.startswith(f"{above}.{name}".removeprefix(".")) else "as "
        return f"{words}[{title}](#{_anchor(title)})"

    lines = [_HEAD]
    for title, part in sections.items():
        lines += [f"## {title}", "", _line(part["description"]), ""]
        lines += ["| Setting | Type | Default | What it is |", "|---|---|---|---|"]
        for name, setting in part["properties"].items():
            links = [
                linked(schema["$defs"][kind], "" if part is schema else title, name)
                for kind in types_in(setting)
                if _is_section(schema, kind)
            ]
            kind = ", or ".join(links) if links else _type(schema, setting)
            kind = f"list: {kind}" if links and "items" in setting else kind
            default = "required" if name in part.get("required", ()) else _default(setting)
            lines.append(f"| `{name}` | {kind} | {default} | {_line(setting['description'])} |")
        lines.append("")
    return "\n".join(lines)


def _sections(schema: Schema, path: str, part: Schema, seen: set[str]) -> Iterator[tuple[str, Schema]]:
    """Yield title and schema of a part of the file and of all below it, each type once: at its first place."""
    yield path or "The whole file", part
    for name, setting in part["properties"].items():
        kinds = [kind for kind in types_in(setting) if _is_section(schema, kind)]
        below = f"{path}.{name}".removeprefix(".") + ("[]" if "items" in setting else "")
        for kind in kinds:
            if kind not in seen:
                seen.add(kind)
                section = schema["$defs"][kind]
                yield from _sections(schema, below + (f": {_chosen(section)}" if len(kinds) > 1 else ""), section, seen)


def _is_section(schema: Schema, kind: str) -> bool:
    return "properties" in schema["$defs"][kind]


def _chosen(section: Schema) -> str:
    """Return the word that chooses a section among several."""
    return next(str(setting["const"]) for setting in section["properties"].values() if "const" in setting)


def _type(schema: Schema, setting: Schema) -> str:
    """Return the type and bounds of a value that is no section, as people write them."""
    match setting:
        case {"$ref": _}:
            return _type(schema, schema["$defs"][types_in(setting)[0]])
        case {"anyOf": choices}:
            return " or ".join(_type(schema, choice) for choice in choices if choice["type"] != "null")
        case {"enum": values} | {"const": values}:
            return ", ".join(f"`{value}`" for value in ([values] if isinstance(values, str) else values))
        case {"type": "array", "items": items}:
            return f"list of {_type(schema, items)}"
        case {"type": "object", "propertyNames": names, "additionalProperties": values}:
            return f"{_type(schema, values)} for each of {_type(schema, names)}"
        case {"pattern": pattern}:
            return f"text like `{_cell(pattern)}`"
    return f"{_WORDS[setting['type']]}{_bounds(setting)}"


def _bounds(setting: Schema) -> str:
    match setting:
        case {"minimum": low, "maximum": high}:
            return f" from {low} to {high}"
        case {"minimum": low}:
            return f" from {low}"
        case {"exclusiveMinimum": low}:
            return f" above {low}"
    return ""


def _default(setting: Schema) -> str:
    value = setting.get("default")
    if isinstance(value, dict) and len(value) > 1:
        return "the section's own"
    if not value and value not in (0, False):
        return "none"
    return f"`{_cell(json.dumps(value).strip('{}').replace(chr(34), ''))}`"


def _line(text: str) -> str:
    """Return a docstring as one line of Markdown."""
    return _cell(" ".join(text.split()).replace("``", "`"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _anchor(title: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
