"""Minimal permissions for a deploy, derived from the resource types in the templates."""

import functools
import json
from collections.abc import Iterable, Iterator
from importlib import resources

MAX_POLICY_CHARACTERS = 6144
"""Maximum size of a managed policy without white space.
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html"""

TEMPLATE_ACTIONS = ("ssm:GetParameters",)
"""Actions that CloudFormation requires to resolve SSM parameters: machine images and the bootstrap version."""

IAM_PREFIX_BY_SERVICE = {"certificatemanager": "acm", "applicationautoscaling": "application-autoscaling"}
IAM_PREFIX_BY_SERVICE |= {"elasticloadbalancingv2": "elasticloadbalancing"}
"""IAM prefixes of services that have another name in CloudFormation."""

BOOTSTRAP_ROLES = ("deploy", "file-publishing", "lookup")
"""Roles in the CDK bootstrap that `cdk deploy` assumes."""

BOOTSTRAP_QUALIFIER = "hnb659fds"
"""The default CDK qualifier, which the bootstrap parameter in the templates also uses."""


class UnknownResourceTypeError(Exception):
    """A template contains a resource type that is not in the table."""


@functools.cache
def _load_permission_table() -> dict[str, list[str]]:
    table: dict[str, list[str]] = json.loads(resources.files(__package__).joinpath("permissions.json").read_bytes())
    return table


def list_required_actions(types: Iterable[str]) -> list[str]:
    """Return the permissions that CloudFormation's role requires for these resource types.

    The schemas contain all possible calls of a type. Calls to services without a resource in the deployment belong to
    unused features, and are omitted.

    Raises:
        UnknownResourceTypeError: The table has no row for a type.
    """
    kinds = set(types)
    unknown = sorted(kinds - _load_permission_table().keys())
    if unknown:
        raise UnknownResourceTypeError(
            f"the permissions for {', '.join(unknown)} are unknown; run python -m "
            "voice_ops.preflight.aws.permission_table"
        )
    services = {_get_iam_prefix(kind) for kind in kinds}
    used = {
        action for kind in kinds for action in _load_permission_table()[kind] if action.partition(":")[0] in services
    }
    return sorted(used | set(TEMPLATE_ACTIONS))


def exclude_wildcard_actions(actions: Iterable[str]) -> list[str]:
    """Return the actions without wildcards, which IAM's simulator does not accept."""
    return [action for action in actions if not action.endswith("*")]


def split_into_policies(actions: Iterable[str]) -> Iterator[dict[str, object]]:
    """Yield policy documents that together allow the actions, each within the size limit of a managed policy."""
    batch: list[str] = []
    for action in actions:
        if len(json.dumps(_build_policy_document([*batch, action]), separators=(",", ":"))) > MAX_POLICY_CHARACTERS:
            yield _build_policy_document(batch)
            batch = []
        batch.append(action)
    yield _build_policy_document(batch)


def build_deployer_policy(account: str, region: str, partition: str = "aws") -> dict[str, object]:
    """Return the policy for running `cdk deploy`, which assumes the bootstrap roles."""
    return _build_policy_document(
        ["sts:AssumeRole"], [build_bootstrap_role_arn(name, account, region, partition) for name in BOOTSTRAP_ROLES]
    )


def build_bootstrap_role_arn(name: str, account: str, region: str, partition: str = "aws") -> str:
    """Return the ARN of a role in the CDK bootstrap, such as ``deploy`` or ``cfn-exec``."""
    return f"arn:{partition}:iam::{account}:role/cdk-{BOOTSTRAP_QUALIFIER}-{name}-role-{account}-{region}"


def _build_policy_document(actions: list[str], resources: list[str] | str = "*") -> dict[str, object]:
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": actions, "Resource": resources}]}


def _get_iam_prefix(kind: str) -> str:
    service = kind.split("::")[1].lower()
    return IAM_PREFIX_BY_SERVICE.get(service, service)
