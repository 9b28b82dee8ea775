"""Templates: parsing, validation, and the dependency order of resources."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

import yaml

from voice_sandbox.aws.shapes import Json

PSEUDO_PARAMETERS = frozenset(
    {
        "AWS::AccountId",
        "AWS::NoValue",
        "AWS::NotificationARNs",
        "AWS::Partition",
        "AWS::Region",
        "AWS::StackId",
        "AWS::StackName",
        "AWS::URLSuffix",
    }
)
SUBSTITUTION_PATTERN = re.compile(r"\$\{(!?)([^}]+)\}")


class TemplateError(ValueError):
    """The template itself is invalid; CloudFormation rejects it before any change."""


class _Loader(yaml.CSafeLoader):
    """Parses CloudFormation's short tags, and keeps dates such as a policy's `2012-10-17` as text."""


def _construct_short_tag(loader: _Loader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    if isinstance(node, yaml.MappingNode):
        value: Any = loader.construct_mapping(node, deep=True)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = node.value
    name = suffix if suffix in {"Ref", "Condition"} else f"Fn::{suffix}"
    return {name: value.split(".", 1) if suffix == "GetAtt" and isinstance(value, str) else value}


_Loader.add_multi_constructor("!", _construct_short_tag)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def parse_template(body: str) -> dict[str, Any]:
    """Parse a JSON or YAML template.

    Raises:
        TemplateError: The template is neither JSON nor YAML, or uses a transform.
    """
    try:
        template = json.loads(body) if body.lstrip().startswith("{") else yaml.load(body, Loader=_Loader)  # noqa: S506
    except (ValueError, yaml.YAMLError) as error:
        raise TemplateError(f"Template format error: {error}") from error
    if not isinstance(template, dict) or not template.get("Resources"):
        raise TemplateError("Template format error: At least one Resources member must be defined.")
    if "Transform" in template:
        raise TemplateError(f"Template format error: the sandbox does not support transforms ({template['Transform']})")
    return template


def validate_template(template: Mapping[str, Any], known_types: Container[str]) -> None:
    """Reject a template with an unsupported resource type, or with missing or circular dependencies.

    Raises:
        TemplateError: The template is rejected; the message contains the type and the logical id of each such resource.
    """
    resources = template["Resources"]
    unknown = [f"{body['Type']} ({name})" for name, body in resources.items() if body["Type"] not in known_types]
    if unknown:
        raise TemplateError(
            f"Template format error: Unrecognized resource types: [{', '.join(unknown)}]. "
            "To support a type, add a row to voice_sandbox/aws/adapters/table.yaml"
        )
    known = {*resources, *template.get("Parameters", {}), *PSEUDO_PARAMETERS}
    for section in ("Resources", "Outputs"):
        bodies = template.get(section) or {}
        named = set(iter_references(bodies)).union(*(_list_explicit_dependencies(body) for body in bodies.values()))
        if missing := sorted(named - known):
            raise TemplateError(
                f"Template format error: Unresolved resource dependencies [{', '.join(missing)}] "
                f"in the {section} block of the template"
            )
    sort_by_dependency(find_dependencies(resources))


def find_dependencies(resources: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the resources to which each resource refers by Ref, GetAtt, Sub or DependsOn."""
    dependencies_by_name = {}
    for name, body in resources.items():
        names = {*iter_references(body.get("Properties", {})), *_list_explicit_dependencies(body)}
        dependencies_by_name[name] = (names & resources.keys()) - {name}
    return dependencies_by_name


def _list_explicit_dependencies(body: Mapping[str, Any]) -> list[str]:
    explicit: str | list[str] = body.get("DependsOn", [])
    return [explicit] if isinstance(explicit, str) else explicit


def iter_references(node: Json) -> Iterator[str]:
    """Yield all names to which a part of a template refers."""
    if isinstance(node, list):
        for item in node:
            yield from iter_references(item)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key == "Ref":
                yield value
            elif key == "Fn::GetAtt":
                yield value.split(".")[0] if isinstance(value, str) else value[0]
            elif key == "Fn::Sub":
                text, variables = (value, {}) if isinstance(value, str) else value
                names = [name for literal, name in SUBSTITUTION_PATTERN.findall(text) if not literal]
                yield from (name.split(".")[0] for name in names if name not in variables)
                yield from iter_references(list(variables.values()))
            else:
                yield from iter_references(value)


def sort_by_dependency(needs: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the names in dependency order. Independent names keep the given order.

    Raises:
        TemplateError: There is a circular dependency.
    """
    done: dict[str, None] = {}
    path: list[str] = []

    def visit(name: str) -> None:
        if name in done:
            return
        if name in path:
            circle = ", ".join(path[path.index(name) :])
            raise TemplateError(f"Circular dependency between resources: [{circle}]")
        path.append(name)
        for needed in sorted(needs[name]):
            if needed in needs:
                visit(needed)
        path.pop()
        done[name] = None

    for name in needs:
        visit(name)
    return list(done)
