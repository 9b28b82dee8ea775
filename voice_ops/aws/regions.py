"""Finds regions that were removed from a deployment file but still contain stacks."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from botocore.exceptions import ClientError

from voice_blueprint.aws import names
from voice_ops.aws.account import Account, create_deployment_session
from voice_ops.aws.refusals import is_access_denied


def find_removed_region_accounts(first: Account) -> Iterator[Account]:
    """Yield the account of the deployment in each region that was removed from the file but still contains stacks.

    Stacks are identified by an output that contains the name of the file.

    A region without read access is omitted.

    Args:
        first: The deployment in any region of the file.
    """
    deployment = first.deployment
    output = f"OutputKey == '{names.DEPLOYMENT_NAME_OUTPUT}' && OutputValue == '{deployment.name_in_file}'"
    path = f"Stacks[?Outputs[?{output}]]"
    enabled: Any = first.session.client("ec2")
    for region in sorted(each["RegionName"] for each in enabled.describe_regions()["Regions"]):
        if region in deployment.file_regions:
            continue
        try:
            is_deployed = any(first.iter_paginated_items("cloudformation", "describe_stacks", path, region))
        except ClientError as error:
            if not is_access_denied(error):
                raise
            continue
        if is_deployed:
            section = deployment.aws.model_copy(update={"region": region})
            regional = deployment.model_copy(
                update={"name": f"{deployment.name_in_file}-{region}", "aws_section": section}
            )
            yield replace(first, deployment=regional, templates={}, session=create_deployment_session(regional))
