"""Finds stacks and regions in a recorded release that were removed from the file.

A deploy retains them, so an operator must delete them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from voice_blueprint.aws import names
from voice_blueprint.file.model.deployment import Deployment
from voice_ops.aws.launches import collect_launch_template_properties, find_changed_launch_templates
from voice_sandbox.changes import Outage

Templates = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class RemovalStep:
    """Instructions for a stack or region that was removed from the file.

    Attributes:
        name: Name of the stack or region, by which an operator accepts the removal.
        instructions: Actions of the operator, in order.
    """

    name: str
    kind: str
    instructions: str

    def to_outage(self) -> Outage:
        """Return the removal as an outage, with the instructions as remedy."""
        return Outage(self.name, f"{self.kind} {self.name}", (), self.instructions, is_removed=True)


def find_removal_steps(
    deployment: Deployment, old: Templates, new: Templates, accepted: Sequence[str]
) -> Iterator[RemovalStep]:
    """Yield a step for each stack and region in a recorded release that the file no longer defines."""
    regions: dict[str, list[str]] = {}
    for stack in old:
        prefix, region = _split_stack_name(deployment, stack)
        if stack in new:
            continue
        if region and region not in deployment.file_regions:
            regions.setdefault(region, []).append(stack)
        elif stack not in accepted:
            added = [each for each in new if each not in old and each.startswith(f"{prefix}asr-")]
            yield _create_stack_step(deployment, stack, stack.removeprefix(prefix), added)
    for region, stacks in regions.items():
        if region not in accepted:
            yield _create_region_step(deployment, region, len(stacks))


def describe_replaced_hosts(old: Templates, new: Templates) -> Iterator[str]:
    """Yield a line for each group whose hosts a deploy replaces, with the changed launch template properties."""
    for stack in new:
        before, after = (
            collect_launch_template_properties(old.get(stack, {})),
            collect_launch_template_properties(new[stack]),
        )
        for group, properties in find_changed_launch_templates(old.get(stack, {}), new[stack]):
            types = [json.loads(each[group].get("InstanceType", '""')) for each in (before, after)]
            change_text = f"{types[0]} to {types[1]}" if types[0] != types[1] else ", ".join(properties)
            yield f"hosts of {group} are replaced, {change_text}: `voice rollout` shows the order and deploys"


def _create_stack_step(deployment: Deployment, stack: str, tier: str, added: Sequence[str]) -> RemovalStep:
    file = deployment.source.file
    prune = f"`voice prune {file}`"
    if tier == "agents":
        instructions = (
            "its tasks and their callers remain. Before the deploy: have clients open sessions instead of "
            f"conversations, then {prune}, which gives conversations {deployment.aws.edge.session_max_s} s to end, "
            "deploys the alarms, and deletes the stack"
        )
    elif tier.startswith("asr-"):
        first = "".join(f"`cdk deploy {each} --exclusively -c deployment={file}`, then " for each in added)
        instructions = (
            f"its hosts would continue to serve without alarms. Before the deploy: {first}{prune}, which drains its "
            "hosts, deletes the stack, and deploys the alarms last"
        )
    else:
        instructions = f"a deploy keeps it: {prune} deletes it"
    return RemovalStep(stack, "stack", instructions)


def _create_region_step(deployment: Deployment, region: str, stacks: int) -> RemovalStep:
    section, file = deployment.aws, deployment.source.file
    shared_name = ""
    if section.edge.domain and len(deployment.file_regions) == 1:
        shared_name = f" and api.any.{section.edge.domain.name}, which is for several regions and goes with the deploy"
    instructions = (
        f"its {stacks} stacks and their hosts remain. Before the deploy: move callers that use its own "
        f"names{shared_name}; "
        f"then `cdk deploy --all -c deployment={file}`, then `voice prune {file}`, which drains it and deletes "
        "its stacks"
    )
    return RemovalStep(region, "region", instructions)


def _split_stack_name(deployment: Deployment, stack: str) -> tuple[str, str]:
    """Return the prefix of a stack name, and the stack's region if that is not the first region."""
    match = re.match(rf"{re.escape(deployment.name_in_file)}-([a-z]{{2}}(?:-[a-z]+)+-\d)-", stack)
    return (match[0], match[1]) if match else (names.build_stack_name(deployment, ""), "")
