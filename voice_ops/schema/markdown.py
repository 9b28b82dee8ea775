"""Renders the JSON schema for deployment files as Markdown pages."""

import json
import re
from collections.abc import Iterator, Mapping

from voice_ops.schema.document import Schema, list_type_names

ENTRY_PAGE = "deployment-file"
"""Name of the page with the top-level settings and a list of all sections."""

_SECTIONS_BY_PAGE = {
    ENTRY_PAGE: ("The deployment file", ()),
    f"{ENTRY_PAGE}/aws": ("AWS: network, state, operation", ("aws",)),
    f"{ENTRY_PAGE}/aws-fleets": ("AWS: fleets", ("aws.vad", "aws.asr")),
    f"{ENTRY_PAGE}/aws-callers": ("AWS: callers and agents", ("aws.edge", "aws.agents")),
    f"{ENTRY_PAGE}/azure": ("Azure: cluster and operation", ("azure",)),
    f"{ENTRY_PAGE}/azure-services": ("Azure: inference services", ("azure.services", "azure.router")),
    f"{ENTRY_PAGE}/azure-callers": ("Azure: callers and agents", ("azure.cpu_pool", "azure.callers", "azure.agents")),
}
"""Title and path prefixes of each page. A section is on the page with the longest prefix of the section's path."""

_PAGE_HEADER = """\
# The deployment file

All settings of the files under `deployments/`. `make generate` writes these pages, and the schema for editors
`deployments/schema.json`, from `voice_blueprint/file/model`.

A required setting may be missing only with its whole section. `[]` after the name of a section marks a list, and
a word after a colon is one of several kinds.

Editors complete settings and describe them where the first line of a file is
`# yaml-language-server: $schema=schema.json`. `voice plan FILE` shows what is wrong with a file, and in which line.
"""

_MAX_LISTED_VALUES = 16
"""Maximum number of values that are listed in a table. For longer lists, editors offer completion."""

_LABEL_BY_TYPE = {"string": "text", "boolean": "`true` or `false`", "integer": "whole number", "number": "number"}
"""Readable names for the types of plain values."""


def render_schema_pages(schema: Schema) -> dict[str, str]:
    """Return the text of each page, by path below ``docs`` without suffix. Sections follow the order in the model."""
    sections = dict(_iter_sections(schema, "", schema, set()))
    titles = {id(part): title for title, part in sections.items()}
    pages: dict[str, list[str]] = {page: [] for page in _SECTIONS_BY_PAGE}
    for title, part in sections.items():
        pages[_find_section_page(title)] += _render_section(schema, title, part, titles)
    texts = {}
    for page, (heading, _) in _SECTIONS_BY_PAGE.items():
        head = (
            f"{_PAGE_HEADER}\n{_render_contents_table(sections)}"
            if page == ENTRY_PAGE
            else f"# {heading}\n\n{_render_back_link(page)}"
        )
        texts[page] = "\n".join([head, "", *pages[page]])
    return texts


def _find_section_page(title: str) -> str:
    """Return the name of the page that contains a section."""
    parts = {prefix: page for page, (_, prefixes) in _SECTIONS_BY_PAGE.items() for prefix in prefixes}
    matches = [prefix for prefix in parts if re.match(rf"{re.escape(prefix)}(?![a-z_])", title)]
    return parts[max(matches, key=len)] if matches else ENTRY_PAGE


def _render_contents_table(sections: Mapping[str, Schema]) -> str:
    """Return a table of all pages and their sections, with an anchor for each section."""
    lines = ["| Page | Sections |", "|---|---|"]
    for page, (heading, _) in _SECTIONS_BY_PAGE.items():
        links = []
        for title in sections:
            if _find_section_page(title) == page:
                anchor = "" if page == ENTRY_PAGE else f'<a id="{_format_heading_anchor(title)}"></a>'
                links.append(f"{anchor}[{title}]({_build_section_url(ENTRY_PAGE, title)})")
        name = "this page" if page == ENTRY_PAGE else f"[{heading}]({page}.md)"
        lines.append(f"| {name} | {', '.join(links)} |")
    return "\n".join(lines)


def _render_back_link(page: str) -> str:
    others = [each for each in _SECTIONS_BY_PAGE if each not in {page, ENTRY_PAGE}]
    links = ", ".join(f"[{_SECTIONS_BY_PAGE[each][0]}]({each.partition('/')[2]}.md)" for each in others)
    return f"Settings of [the deployment file](../{ENTRY_PAGE}.md). Other pages: {links}."


def _build_section_url(page: str, title: str) -> str:
    """Return the relative URL of a section for a link on a page."""
    target = _find_section_page(title)
    if target == page:
        return f"#{_format_heading_anchor(title)}"
    if target == ENTRY_PAGE:
        return f"../{ENTRY_PAGE}.md#{_format_heading_anchor(title)}"
    return f"{target if page == ENTRY_PAGE else target.partition('/')[2]}.md#{_format_heading_anchor(title)}"


def _render_section(schema: Schema, title: str, part: Schema, titles: Mapping[int, str]) -> list[str]:
    def render_type_link(kind: str, parent_title: str, name: str) -> str:
        other = titles[id(schema["$defs"][kind])]
        words = "" if other.startswith(f"{parent_title}.{name}".removeprefix(".")) else "as "
        return f"{words}[{other}]({_build_section_url(_find_section_page(title), other)})"

    lines = [f"## {title}", "", _format_docstring_cell(part["description"]), ""]
    lines += ["| Setting | Type | Default | Description |", "|---|---|---|---|"]
    for name, setting in part["properties"].items():
        links = [
            render_type_link(kind, "" if part is schema else title, name)
            for kind in list_type_names(setting)
            if _is_section(schema, kind)
        ]
        kind = ", or ".join(links) if links else _describe_type(schema, setting)
        kind = f"list: {kind}" if links and "items" in setting else kind
        default = "required" if name in part.get("required", ()) else _describe_default(setting)
        lines.append(f"| `{name}` | {kind} | {default} | {_format_docstring_cell(setting['description'])} |")
    return [*lines, ""]


def _iter_sections(schema: Schema, path: str, part: Schema, visited: set[str]) -> Iterator[tuple[str, Schema]]:
    """Yield the title and schema of a section and its subsections. Each type is only yielded at its first location."""
    yield path or "The whole file", part
    for name, setting in part["properties"].items():
        kinds = [kind for kind in list_type_names(setting) if _is_section(schema, kind)]
        child_path = f"{path}.{name}".removeprefix(".") + ("[]" if "items" in setting else "")
        for kind in kinds:
            if kind not in visited:
                visited.add(kind)
                section = schema["$defs"][kind]
                yield from _iter_sections(
                    schema,
                    child_path + (f": {_find_selector_value(section)}" if len(kinds) > 1 else ""),
                    section,
                    visited,
                )


def _is_section(schema: Schema, kind: str) -> bool:
    return "properties" in schema["$defs"][kind]


def _find_selector_value(section: Schema) -> str:
    """Return the value that selects one of several variants of a section."""
    return next(str(setting["const"]) for setting in section["properties"].values() if "const" in setting)


def _describe_type(schema: Schema, setting: Schema) -> str:
    """Describe the type and bounds of a setting that is not a section, in Markdown."""
    match setting:
        case {"$ref": _}:
            return _describe_type(schema, schema["$defs"][list_type_names(setting)[0]])
        case {"anyOf": choices}:
            return " or ".join(_describe_type(schema, choice) for choice in choices if choice["type"] != "null")
        case {"type": "string", "enum": values} if len(values) > _MAX_LISTED_VALUES:
            return f"one of {len(values)} names, such as `{values[0]}`"
        case {"enum": values} | {"const": values}:
            return ", ".join(f"`{value}`" for value in ([values] if isinstance(values, str) else values))
        case {"type": "array", "items": items}:
            return f"list of {_describe_type(schema, items)}"
        case {"type": "object", "propertyNames": names, "additionalProperties": values}:
            return f"{_describe_type(schema, values)} for each of {_describe_type(schema, names)}"
        case {"patternErrorMessage": form, "examples": [example]}:
            rule = form.removeprefix("should be ").removesuffix(f", such as {example}")
            return f"text: {_escape_cell(rule)}, such as `{example}`"
    return f"{_LABEL_BY_TYPE[setting['type']]}{_describe_bounds(setting)}"


def _describe_bounds(setting: Schema) -> str:
    match setting:
        case {"minimum": low, "maximum": high}:
            return f" from {low} to {high}"
        case {"minimum": low}:
            return f" from {low}"
        case {"exclusiveMinimum": low}:
            return f" above {low}"
    return ""


def _describe_default(setting: Schema) -> str:
    value = setting.get("default")
    if isinstance(value, dict) and len(value) > 1:
        return "the section's own"
    if not value and value not in (0, False):
        return "none"
    return f"`{_escape_cell(json.dumps(value).strip('{}').replace(chr(34), ''))}`"


def _format_docstring_cell(text: str) -> str:
    """Convert a docstring to one line of Markdown for a table."""
    return _escape_cell(" ".join(text.split()).replace("``", "`"))


def _escape_cell(text: str) -> str:
    return text.replace("|", "\\|")


def _format_heading_anchor(title: str) -> str:
    """Return the anchor that GitHub generates for a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
