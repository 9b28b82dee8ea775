"""Compares the launch templates of Auto Scaling groups in CloudFormation templates."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

AUTO_SCALING_GROUP_TYPE = "AWS::AutoScaling::AutoScalingGroup"


def find_changed_launch_templates(
    live: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each existing group in a stack whose launch template changes, with the changed properties."""
    before, after = collect_launch_template_properties(live), collect_launch_template_properties(new)
    for group in after:
        if group in before and before[group] != after[group]:
            keys = sorted(before[group].keys() | after[group].keys())
            yield group, tuple(key for key in keys if before[group].get(key) != after[group].get(key))


def collect_launch_template_properties(template: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the launch template properties of each group in a CloudFormation template, as JSON strings."""
    resources = template.get("Resources", {})
    results = {}
    for resource in resources.values():
        if resource["Type"] == AUTO_SCALING_GROUP_TYPE:
            template_id = resource["Properties"]["LaunchTemplate"]["LaunchTemplateId"]["Ref"]
            data = resources[template_id]["Properties"]["LaunchTemplateData"]
            results[resource["Properties"]["AutoScalingGroupName"]] = {
                key: json.dumps(value, sort_keys=True) for key, value in data.items()
            }
    return results
