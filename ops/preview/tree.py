"""How a preview of Pulumi projects looks on a terminal."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from ops.output import describe_types
from sandbox.azure.diff import Step
from sandbox.azure.graph import Graph, label_of, short_type
from sandbox.azure.policy import PolicyViolation
from sandbox.azure.values import plain
from sandbox.changes import Op

_MARKS = {
    Op.CREATE: "[green]+[/]",
    Op.UPDATE: "[yellow]~[/]",
    Op.REPLACE: "[magenta]±[/]",
    Op.DELETE: "[red]-[/]",
    Op.SAME: "[dim]=[/]",
}
_VALUE_WIDTH = 60


def tree(graph: Graph, steps: Sequence[Step], *, dependencies: bool = False) -> Tree:
    """Return a stack's resources as a tree of parents and children, each with what happens to it.

    Args:
        graph: The planned stack.
        steps: What happens to each resource.
        dependencies: Whether to show what each resource waits for.
    """
    by_urn = {step.urn: step for step in steps}
    root = Tree(f"[bold]{escape(graph.project)}[/] ({escape(graph.stack)})")
    branches = {resource.urn: root for resource in graph.resources if resource.parent is None}
    for resource in graph.resources:
        if resource.parent is None:
            continue
        step = by_urn[resource.urn]
        branch = branches[resource.parent].add(_line(step))
        branches[resource.urn] = branch
        for change in step.changes:
            why = " [magenta]replaces[/]" if change.replaces else ""
            branch.add(f"[dim]{escape(change.path)}: {_short(change.old)} → {_short(change.new)}[/]{why}")
        if step.because:
            branch.add(f"[dim]{escape(step.because)}[/]")
        if dependencies:
            for urn in resource.dependencies:
                branch.add(f"[dim]after {escape(label_of(graph, urn))}[/]")
    for step in steps:
        if step.op is Op.DELETE:
            root.add(_line(step))
    return root


def _line(step: Step) -> str:
    resource = step.resource
    notes = [note for note, said in (("protected", resource.protect), ("read", resource.external)) if said]
    return f"{_MARKS[step.op]} {escape(short_type(resource.type))} [bold]{escape(resource.name)}[/]" + (
        f" [dim]({', '.join(notes)})[/]" if notes else ""
    )


def _short(value: object) -> str:
    text = "nothing" if value is None else str(plain(value))
    return escape(text if len(text) <= _VALUE_WIDTH else f"{text[:_VALUE_WIDTH]}…")


def describe_counts(graph: Graph) -> str:
    """Return a line with the number of resources and their types."""
    counts: Counter[str] = graph.counts()
    return f"{counts.total()} resources: {describe_types(counts)}"


def print_violations(console: Console, violations: Sequence[PolicyViolation]) -> None:
    """Print what a policy pack has to say, the mandatory first."""
    for violation in sorted(violations, key=lambda violation: not violation.mandatory):
        mark = "[red]✗ refused[/]" if violation.mandatory else "[yellow]! advice[/]"
        about = escape(violation.resource or "the stack")
        console.print(f"{mark} [bold]{escape(violation.policy)}[/] {about}", soft_wrap=True)
        for line in violation.message.splitlines():
            console.print(f"  {escape(line)}", soft_wrap=True)
