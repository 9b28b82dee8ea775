"""Prints the plan and the results of a teardown."""

from collections import Counter
from collections.abc import Iterable

from voice_ops.output import create_stack_table, create_table, format_markup, out
from voice_ops.teardown.azure import AzureTeardown
from voice_ops.teardown.plan import RetainedResource, TeardownPlan
from voice_ops.teardown.remaining_resources import RemainingResource


def print_teardown_plan(plan: TeardownPlan) -> None:
    """Print the resources to delete, and the resources to retain with their cost."""
    out.print(create_stack_table("deleted", {stack: types for stack, types in plan.deleted.items() if types}))
    if not plan.kept:
        out.print("  kept: nothing")
        return
    table = create_table("kept by the deletion policies", ["stack", "kept"], ["USD per month"])
    groups: dict[tuple[str, str, str], list[RetainedResource]] = {}
    for resource in plan.kept:
        groups.setdefault((resource.stack, resource.kind, resource.why), []).append(resource)
    for (stack, kind, why), group in groups.items():
        description = f"{len(group)}×{kind.replace('AWS::', '')}" if stack else f"{kind} {group[0].name} {why}"
        table.add_row(stack, description, _format_cost(group))
    table.add_section()
    table.add_row("total of the known prices", "", f"{plan.usd_per_month:,.2f}")
    out.print(table)


def _format_cost(group: list[RetainedResource]) -> str:
    if group[0].usd is None:
        return "no price known"
    known_prices = [each.usd_per_month for each in group if each.usd_per_month is not None]
    return f"{sum(known_prices):,.2f}" if len(known_prices) == len(group) else f"{group[0].usd:g} per GB"


def print_remaining_resources(expected: list[RemainingResource], unexpected: list[RemainingResource]) -> None:
    """Print the number of expected resources by kind, and each unexpected resource."""
    out.print(f"remaining as planned: {_count_by_kind(expected)}", soft_wrap=True)
    out.print(f"remaining unexpectedly: {_count_by_kind(unexpected)}", soft_wrap=True)
    for resource in unexpected:
        out.print(
            format_markup("  [red]✗[/] {} {} [dim]({})[/]", resource.kind, resource.id, resource.region), soft_wrap=True
        )


def print_azure_commands(order: AzureTeardown) -> None:
    """Print the commands, and the resources that they delete and retain."""
    out.print("Azure: run these in this order, `pulumi state unprotect` first where something is protected")
    for command in order.commands:
        out.print(f"  {command}", soft_wrap=True)
    out.print(f"  that deletes {len(order.deleted)} resources in this order:")
    for number, label in enumerate(order.deleted, start=1):
        out.print(f"  {number:4} {label}", soft_wrap=True)
    for resource in order.kept:
        out.print(format_markup("  [yellow]![/] kept: {}, {}", resource.resource, resource.why), soft_wrap=True)


def _count_by_kind(resources: Iterable[RemainingResource]) -> str:
    counts = Counter(each.kind for each in resources)
    return ", ".join(f"{count}×{kind}" for kind, count in counts.most_common()) or "nothing"
