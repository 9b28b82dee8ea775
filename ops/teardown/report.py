"""A teardown as tables and as JSON."""

from collections import Counter
from collections.abc import Iterable

from rich.markup import escape

from ops.output import empty_table, out, stack_table
from ops.teardown.azure import AzureOrder
from ops.teardown.plan import Kept, Plan
from ops.teardown.remains import Left


def print_plan(plan: Plan) -> None:
    """Print what goes, and what stays with its cost."""
    out.print(stack_table("deleted", {stack: types for stack, types in plan.deleted.items() if types}))
    if not plan.kept:
        out.print("  kept: nothing")
        return
    table = empty_table("kept by the deletion policies", ["stack", "kept"], ["USD per month"])
    groups: dict[tuple[str, str, str], list[Kept]] = {}
    for kept in plan.kept:
        groups.setdefault((kept.stack, kept.kind, kept.why), []).append(kept)
    for (stack, kind, why), group in groups.items():
        what = f"{len(group)}×{kind.replace('AWS::', '')}" if stack else f"{kind} {group[0].name} {why}"
        table.add_row(escape(stack), escape(what), _cost(group))
    table.add_section()
    table.add_row("together, as far as is known", "", f"{plan.usd_per_month:,.2f}")
    out.print(table)


def _cost(group: list[Kept]) -> str:
    if group[0].usd is None:
        return "no price known"
    known = [each.usd_per_month for each in group if each.usd_per_month is not None]
    return f"{sum(known):,.2f}" if len(known) == len(group) else f"{group[0].usd:g} per GB"


def print_left(expected: list[Left], unexpected: list[Left]) -> None:
    """Print what is left: what was announced by kind, the rest one by one."""
    out.print(f"left as announced: {_counted(expected)}", soft_wrap=True)
    out.print(f"left behind: {_counted(unexpected)}", soft_wrap=True)
    for left in unexpected:
        out.print(f"  [red]✗[/] {escape(left.kind)} {escape(left.id)} [dim]({left.region})[/]", soft_wrap=True)


def print_azure(order: AzureOrder) -> None:
    """Print the commands, and what they delete and leave."""
    out.print("Azure: run these in this order, `pulumi state unprotect` first where something is protected")
    for command in order.commands:
        out.print(f"  {escape(command)}", soft_wrap=True)
    out.print(f"  that deletes {len(order.deleted)} resources in this order:")
    for number, label in enumerate(order.deleted, start=1):
        out.print(f"  {number:4} {escape(label)}", soft_wrap=True)
    for kept in order.kept:
        out.print(f"  [yellow]![/] kept: {escape(kept.resource)}, {escape(kept.why)}", soft_wrap=True)


def _counted(left: Iterable[Left]) -> str:
    counts = Counter(each.kind for each in left)
    return ", ".join(f"{count}×{escape(kind)}" for kind, count in counts.most_common()) or "nothing"
