"""Rehearses an Azure section's Pulumi programs on the local engine, for `voice sandbox`."""

from collections import Counter

from voice_blueprint.file.model.deployment import Deployment
from voice_ops.output import create_stack_table, format_markup, out
from voice_ops.plan.sizing import create_sizing_tables
from voice_ops.preview.tree import print_rejections, print_violations
from voice_ops.progress import Progress
from voice_sandbox.azure.order import DeletionPlan
from voice_sandbox.azure.refusals import REJECTION_RULES, find_rejections
from voice_sandbox.rehearsals.azure import Rehearsal


def rehearse_azure(deployment: Deployment, progress: Progress) -> bool:
    """Rehearse the Azure section of a deployment, from preview to teardown. Return True if every step succeeded.

    Raises:
        EngineError: A program fails, or the engine rejects a resource.
    """
    with progress.phase("start the Pulumi programs' engine and policy pack"):
        rehearsal = Rehearsal.from_deployment(deployment)
    with rehearsal:
        passed = rehearse_projects(rehearsal, progress)
    for table in create_sizing_tables(deployment):
        out.print(table)
    return passed


def rehearse_projects(rehearsal: Rehearsal, progress: Progress) -> bool:
    """Rehearse the projects of a deployment. Return True if no policy and no Azure service rejects them.

    Raises:
        EngineError: A program fails, or the engine rejects a resource.
    """
    with progress.phase("pulumi preview and simulated up"):
        rehearsed = rehearsal.run()
    counts = {each.project.name: Counter(each.up.graph.count_by_type()) for each in rehearsed}
    out.print(create_stack_table("created by the Pulumi programs", counts))
    with progress.phase("policy pack over every resource"):
        violations = rehearsal.find_violations()
        policies = rehearsal.list_policy_names()
    refusing = sum(violation.mandatory for violation in violations)
    out.print(f"  {len(policies)} policies: {refusing} refuse, {len(violations) - refusing} advise")
    print_violations(out, violations)
    with progress.phase("what Azure's services refuse"):
        refusals = find_rejections(each.up.graph for each in rehearsed)
    out.print(f"  {len(REJECTION_RULES)} known refusals: {len(refusals)} request(s) refused")
    print_rejections(out, refusals)
    with progress.phase("teardown order"):
        plan = rehearsal.plan_teardown()
    _print_teardown(plan)
    return not refusing and not refusals


def _print_teardown(plan: DeletionPlan) -> None:
    out.print(f"  teardown: {len(plan.deleted)} deleted, none while something needs it; {len(plan.retained)} kept")
    for resource, reason in sorted(plan.retained, key=lambda each: (each[1], each[0].label)):
        out.print(format_markup("  [dim]kept: {}, {}[/]", resource.label, reason), soft_wrap=True)
    for resource in sorted(plan.removed_from_state, key=lambda each: each.label):
        out.print(format_markup("  [dim]remaining in the cloud: {}[/]", resource.label), soft_wrap=True)
