"""Changes one value in the text of a deployment file. Comments and layout are preserved."""

import json

import yaml

from voice_blueprint.file.source import Location


def set_mapping_value(text: str, location: Location, key: str, value: dict[str, object]) -> str:
    """Return the text of a deployment file, with ``key: value`` set in the mapping at a location."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    for part in location:
        node = _find_child_node(node, part)
    if not isinstance(node, yaml.MappingNode):
        raise TypeError(f"{'.'.join(map(str, location))} is not a mapping")
    entry = f"{key}: {json.dumps(value, ensure_ascii=False)}"
    for name, value_node in node.value:
        if name.value == key:
            return text[: name.start_mark.index] + entry + text[_find_end_index(value_node) :]
    # Insert after the first key, which is the name or type of a fleet, or before the only key.
    (first, _), *others = node.value
    at = (others[0][0] if others else first).start_mark.index
    separator = ", " if node.flow_style else "\n" + " " * first.start_mark.column
    return text[:at] + entry + separator + text[at:]


def _find_child_node(node: yaml.Node | None, part: str | int) -> yaml.Node:
    if isinstance(node, yaml.SequenceNode):
        parts: dict[str | int, yaml.Node] = dict(enumerate(node.value))
    elif isinstance(node, yaml.MappingNode):
        parts = {name.value: value for name, value in node.value}
    else:
        raise TypeError(f"a scalar has no {part}")
    return parts[part]


def _find_end_index(node: yaml.Node) -> int:
    """Return the end index of a value. PyYAML's end mark for a block collection includes trailing comments."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        last = node.value[-1]
        return _find_end_index(last[1] if isinstance(last, tuple) else last)
    return node.end_mark.index
