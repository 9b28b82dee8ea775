"""Renders and prints a preview of Pulumi projects."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from voice_ops.output import format_markup, format_type_counts
from voice_sandbox.azure.diff import Step
from voice_sandbox.azure.graph import Graph, Resource, format_resource_label, shorten_type
from voice_sandbox.azure.policy import PolicyViolation
from voice_sandbox.azure.refusals import Rejection
from voice_sandbox.azure.values import to_display_value
from voice_sandbox.changes import OpType

_MARK_BY_OPERATION = {
    OpType.CREATE: "[green]+[/]",
    OpType.UPDATE: "[yellow]~[/]",
    OpType.REPLACE: "[magenta]±[/]",
    OpType.DELETE: "[red]-[/]",
    OpType.SAME: "[dim]=[/]",
}
_MAX_VALUE_WIDTH = 60


def create_resource_tree(graph: Graph, steps: Sequence[Step], *, dependencies: bool = False) -> Tree:
    """Return the resources in a stack as a tree of parents and children, with the change to each resource.

    Args:
        graph: Resources of the planned stack.
        steps: Change of each resource.
        dependencies: Whether to show the dependencies of each resource.
    """
    by_urn = {step.urn: step for step in steps}
    root = Tree(format_markup("[bold]{}[/] ({})", graph.project, graph.stack))
    branches: dict[str | None, Tree] = {resource.urn: root for resource in graph.resources if resource.parent is None}
    for resource in _sort_resources(graph):
        step = by_urn[resource.urn]
        branch = branches[resource.parent].add(_format_step(step))
        branches[resource.urn] = branch
        for change in step.changes:
            suffix = " [magenta]replaces[/]" if change.requires_replacement else ""
            branch.add(
                format_markup(
                    f"[dim]{{}}: {{}} → {{}}[/]{suffix}",
                    change.path,
                    _shorten_value(change.old),
                    _shorten_value(change.new),
                )
            )
        if step.replace_reason:
            branch.add(format_markup("[dim]{}[/]", step.replace_reason))
        if dependencies:
            for urn in resource.dependencies:
                branch.add(format_markup("[dim]after {}[/]", format_resource_label(graph, urn)))
    for step in steps:
        if step.op is OpType.DELETE:
            root.add(_format_step(step))
    return root


def _sort_resources(graph: Graph) -> list[Resource]:
    """Return the resources below the stack, ordered by depth, with components first, and by type and name.

    Pulumi's own order differs between runs, since a resource is registered as soon as its inputs are known.
    """
    depths: dict[str, int] = {}
    for resource in graph.resources:
        depths[resource.urn] = depths[resource.parent] + 1 if resource.parent else 0

    def key(resource: Resource) -> tuple[int, bool, str, str]:
        return depths[resource.urn], resource.custom, shorten_type(resource.type), resource.name

    return sorted((resource for resource in graph.resources if resource.parent), key=key)


def _format_step(step: Step) -> Text:
    resource = step.resource
    notes = [note for note, applies in (("protected", resource.protect), ("read", resource.external)) if applies]
    template = f"{_MARK_BY_OPERATION[step.op]} {{}} [bold]{{}}[/]" + (f" [dim]({', '.join(notes)})[/]" if notes else "")
    return format_markup(template, shorten_type(resource.type), resource.name)


def _shorten_value(value: object) -> str:
    text = "nothing" if value is None else str(to_display_value(value))
    return text if len(text) <= _MAX_VALUE_WIDTH else f"{text[:_MAX_VALUE_WIDTH]}…"


def format_resource_counts(graph: Graph) -> str:
    """Return the number of resources, in total and by type, as text."""
    counts: Counter[str] = Counter(dict(sorted(graph.count_by_type().items())))
    return f"{counts.total()} resources: {format_type_counts(counts)}"


def print_violations(console: Console, violations: Sequence[PolicyViolation]) -> None:
    """Print the violations of a policy pack. Violations of mandatory policies come first."""
    for violation in sorted(violations, key=lambda violation: not violation.mandatory):
        mark = "[red]✗ refused[/]" if violation.mandatory else "[yellow]! advice[/]"
        resource_name = violation.resource or "the stack"
        console.print(format_markup(f"{mark} [bold]{{}}[/] {{}}", violation.policy, resource_name), soft_wrap=True)
        for line in violation.message.splitlines():
            console.print(f"  {line}", soft_wrap=True)


def print_rejections(console: Console, refusals: Sequence[Rejection]) -> None:
    """Print the requests that Azure's services would reject, with the response and a remedy."""
    for answer in refusals:
        mark = format_markup("[red]✗ refused by Azure[/] [bold]{}[/] {}", answer.code, answer.resource)
        console.print(mark, soft_wrap=True)
        for line in (answer.urn, answer.message, f"{answer.remedy} ({answer.source})"):
            console.print(f"  {line}", soft_wrap=True)
