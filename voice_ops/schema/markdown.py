"""Renders the JSON schema of deployment files as Markdown pages."""

import json
import re
from collections.abc import Iterator, Mapping

from voice_ops.schema.document import Schema, types_in

ENTRY = "deployment-file"
"""Name of the page with the top-level settings and a list of all sections."""

_PAGES = {
    ENTRY: ("The deployment file", ()),
    f"{ENTRY}/aws": ("AWS: network, state, operation", ("aws",)),
    f"{ENTRY}/aws-fleets": ("AWS: fleets", ("aws.vad", "aws.asr")),
    f"{ENTRY}/aws-callers": ("AWS: callers and agents", ("aws.edge", "aws.agents")),
    f"{ENTRY}/azure": ("Azure: cluster and operation", ("azure",)),
    f"{ENTRY}/azure-services": ("Azure: inference services", ("azure.services", "azure.router")),
    f"{ENTRY}/azure-callers": ("Azure: callers and agents", ("azure.cpu_pool", "azure.callers", "azure.agents")),
}
"""Title and path prefixes of each page. A section is on the page with the longest prefix of the section's path."""

_HEAD = """\
# The deployment file

All settings of the files under `deployments/`. `make generate` writes these pages, and the schema for editors
`deployments/schema.json`, from `voice_blueprint/file/model`.

A required setting may be missing only with its whole section. `[]` after the name of a section marks a list, and
a word after a colon is one of several kinds.

Editors complete settings and describe them where the first line of a file is
`# yaml-language-server: $schema=schema.json`. `voice plan FILE` shows what is wrong with a file, and in which line.
"""

_MAX_LISTED = 16
"""Maximum number of values that are listed in a table. For longer lists, editors offer completion."""

_WORDS = {"string": "text", "boolean": "`true` or `false`", "integer": "whole number", "number": "number"}
"""Readable names of the types of plain values."""


def render(schema: Schema) -> dict[str, str]:
    """Return the text of each page, by path below ``docs`` without suffix. Sections have the order of the model."""
    sections = dict(_sections(schema, "", schema, set()))
    titles = {id(part): title for title, part in sections.items()}
    pages: dict[str, list[str]] = {page: [] for page in _PAGES}
    for title, part in sections.items():
        pages[_page(title)] += _section(schema, title, part, titles)
    texts = {}
    for page, (heading, _) in _PAGES.items():
        head = f"{_HEAD}\n{_contents(sections)}" if page == ENTRY else f"# {heading}\n\n{_back_link(page)}"
        texts[page] = "\n".join([head, "", *pages[page]])
    return texts


def _page(title: str) -> str:
    """Return the name of the page that contains a section."""
    parts = {prefix: page for page, (_, prefixes) in _PAGES.items() for prefix in prefixes}
    matches = [prefix for prefix in parts if re.match(rf"{re.escape(prefix)}(?![a-z_])", title)]
    return parts[max(matches, key=len)] if matches else ENTRY


def _contents(sections: Mapping[str, Schema]) -> str:
    """Return a table of all pages and their sections, with an anchor for each section."""
    lines = ["| Page | Sections |", "|---|---|"]
    for page, (heading, _) in _PAGES.items():
        links = []
        for title in sections:
            if _page(title) == page:
                anchor = "" if page == ENTRY else f'<a id="{_heading_anchor(title)}"></a>'
                links.append(f"{anchor}[{title}]({_link(ENTRY, title)})")
        name = "this page" if page == ENTRY else f"[{heading}]({page}.md)"
        lines.append(f"| {name} | {', '.join(links)} |")
    return "\n".join(lines)


def _back_link(page: str) -> str:
    others = [each for each in _PAGES if each not in {page, ENTRY}]
    links = ", ".join(f"[{_PAGES[each][0]}]({each.partition('/')[2]}.md)" for each in others)
    return f"Settings of [the deployment file](../{ENTRY}.md). Other pages: {links}."


def _link(page: str, title: str) -> str:
    """Return the relative URL of a section for a link on a page."""
    target = _page(title)
    if target == page:
        return f"#{_heading_anchor(title)}"
    if target == ENTRY:
        return f"../{ENTRY}.md#{_heading_anchor(title)}"
    return f"{target if page == ENTRY else target.partition('/')[2]}.md#{_heading_anchor(title)}"


def _section(schema: Schema, title: str, part: Schema, titles: Mapping[int, str]) -> list[str]:
    def type_link(kind: str, parent_title: str, name: str) -> str:
        other = titles[id(schema["$defs"][kind])]
        words = "" if other.startswith(f"{parent_title}.{name}".removeprefix(".")) else "as "
        return f"{words}[{other}]({_link(_page(title), other)})"

    lines = [f"## {title}", "", _line(part["description"]), ""]
    lines += ["| Setting | Type | Default | Description |", "|---|---|---|---|"]
    for name, setting in part["properties"].items():
        links = [
            type_link(kind, "" if part is schema else title, name)
            for kind in types_in(setting)
            if _is_section(schema, kind)
        ]
        kind = ", or ".join(links) if links else _type(schema, setting)
        kind = f"list: {kind}" if links and "items" in setting else kind
        default = "required" if name in part.get("required", ()) else _default(setting)
        lines.append(f"| `{name}` | {kind} | {default} | {_line(setting['description'])} |")
    return [*lines, ""]


def _sections(schema: Schema, path: str, part: Schema, visited: set[str]) -> Iterator[tuple[str, Schema]]:
    """Yield the title and schema of a section and its subsections. Each type is only yielded at its first location."""
    yield path or "The whole file", part
    for name, setting in part["properties"].items():
        kinds = [kind for kind in types_in(setting) if _is_section(schema, kind)]
        child_path = f"{path}.{name}".removeprefix(".") + ("[]" if "items" in setting else "")
        for kind in kinds:
            if kind not in visited:
                visited.add(kind)
                section = schema["$defs"][kind]
                yield from _sections(
                    schema, child_path + (f": {_selector_value(section)}" if len(kinds) > 1 else ""), section, visited
                )


def _is_section(schema: Schema, kind: str) -> bool:
    return "properties" in schema["$defs"][kind]


def _selector_value(section: Schema) -> str:
    """Return the value that selects one of several variants of a section."""
    return next(str(setting["const"]) for setting in section["properties"].values() if "const" in setting)


def _type(schema: Schema, setting: Schema) -> str:
    """Describe the type and bounds of a setting that is not a section, in Markdown."""
    match setting:
        case {"$ref": _}:
            return _type(schema, schema["$defs"][types_in(setting)[0]])
        case {"anyOf": choices}:
            return " or ".join(_type(schema, choice) for choice in choices if choice["type"] != "null")
        case {"type": "string", "enum": values} if len(values) > _MAX_LISTED:
            return f"one of {len(values)} names, such as `{values[0]}`"
        case {"enum": values} | {"const": values}:
            return ", ".join(f"`{value}`" for value in ([values] if isinstance(values, str) else values))
        case {"type": "array", "items": items}:
            return f"list of {_type(schema, items)}"
        case {"type": "object", "propertyNames": names, "additionalProperties": values}:
            return f"{_type(schema, values)} for each of {_type(schema, names)}"
        case {"patternErrorMessage": form, "examples": [example]}:
            rule = form.removeprefix("should be ").removesuffix(f", such as {example}")
            return f"text: {_cell(rule)}, such as `{example}`"
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
    """Convert a docstring to one line of Markdown for a table."""
    return _cell(" ".join(text.split()).replace("``", "`"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _heading_anchor(title: str) -> str:
    """Return the anchor that GitHub generates for a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
