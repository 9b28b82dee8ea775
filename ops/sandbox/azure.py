"""The Azure half of `voice sandbox`: the Pulumi programs, rehearsed on the local engine."""

from collections import Counter

from rich.markup import escape

from blueprint.file.model.deployment import Deployment
from ops.output import out, stack_table
from ops.plan.sizing import sizing_tables
from ops.preview.tree import print_violations
from ops.progress import Progress
from sandbox.azure.order import Teardown
from sandbox.azure.rehearsal import Rehearsal


def rehearse_azure(deployment: Deployment, progress: Progress) -> bool:
    """Preview, check, create and tear down the Azure side of a deployment; return whether all is well.

    Raises:
        EngineError: A program fails, or the engine refuses something; the text is the answer.
    """
    with progress.phase("start the Pulumi programs' engine and policy pack"):
        rehearsal = Rehearsal.of(deployment)
    with rehearsal:
        passed = rehearse(rehearsal, progress)
    for table in sizing_tables(deployment):
        out.print(table)
    return passed


def rehearse(rehearsal: Rehearsal, progress: Progress) -> bool:
    """Rehearse projects; return whether no policy refuses them.

    Raises:
        EngineError: A program fails, or the engine refuses something; the text is the answer.
    """
    with progress.phase("pulumi preview and simulated up"):
        done = rehearsal.run()
    counts = {each.project.name: Counter(each.up.graph.counts()) for each in done}
    out.print(stack_table("created by the Pulumi programs", counts))
    with progress.phase("policy pack over every resource"):
        violations = rehearsal.violations()
        policies = rehearsal.policies()
    refusing = sum(violation.mandatory for violation in violations)
    out.print(f"  {len(policies)} policies: {refusing} refuse, {len(violations) - refusing} advise")
    print_violations(out, violations)
    with progress.phase("teardown order"):
        plan = rehearsal.teardown()
    _print_teardown(plan)
    return not refusing


def _print_teardown(plan: Teardown) -> None:
    out.print(f"  teardown: {len(plan.deleted)} deleted, none while something needs it; {len(plan.kept)} kept")
    for resource, reason in plan.kept:
        out.print(f"  [dim]kept: {escape(resource.label)}, {escape(reason)}[/]", soft_wrap=True)
    for resource in plan.forgotten:
        out.print(f"  [dim]left in the cloud: {escape(resource.label)}[/]", soft_wrap=True)
