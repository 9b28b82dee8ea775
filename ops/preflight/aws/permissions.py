"""The least permissions that a deploy needs, from the resource types of its templates."""

import functools
import json
from collections.abc import Iterable, Iterator
from importlib import resources

POLICY_CHARACTERS = 6144
"""Most that a managed policy may hold, white space not counted.
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html"""

TEMPLATE_ACTIONS = ("ssm:GetParameters",)
"""CloudFormation resolves the templates' SSM parameters: machine images, the bootstrap's version."""

PREFIXES = {"certificatemanager": "acm", "applicationautoscaling": "application-autoscaling"}
PREFIXES |= {"elasticloadbalancingv2": "elasticloadbalancing"}
"""IAM's prefixes of services that CloudFormation calls by another name."""

BOOTSTRAP_ROLES = ("deploy", "file-publishing", "lookup")
"""Roles of the CDK's bootstrap that whoever runs `cdk deploy` takes on."""

QUALIFIER = "hnb659fds"
"""The CDK's default qualifier, which the templates' bootstrap parameter names too."""


class UnknownResourceTypeError(Exception):
    """A template has a resource type that the table does not know."""


@functools.cache
def _table() -> dict[str, list[str]]:
    table: dict[str, list[str]] = json.loads(resources.files(__package__).joinpath("permissions.json").read_bytes())
    return table


def actions_of(types: Iterable[str]) -> list[str]:
    """Return what CloudFormation's role must be allowed for these resource types.

    The schemas name what a type may call in any account. Calls to services from which the deployment has no resource
    belong to features that it does not use, and are left out.

    Raises:
        UnknownResourceTypeError: The table has no row for a type.
    """
    kinds = set(types)
    unknown = sorted(kinds - _table().keys())
    if unknown:
        raise UnknownResourceTypeError(
            f"no permissions are known for {', '.join(unknown)}; run python -m ops.preflight.aws.permission_table"
        )
    services = {_prefix(kind) for kind in kinds}
    used = {action for kind in kinds for action in _table()[kind] if action.partition(":")[0] in services}
    return sorted(used | set(TEMPLATE_ACTIONS))


def simulable(actions: Iterable[str]) -> list[str]:
    """Return the actions without wildcards, which IAM's simulator does not take."""
    return [action for action in actions if not action.endswith("*")]


def policies(actions: Iterable[str]) -> Iterator[dict[str, object]]:
    """Yield policy documents that together allow the actions, each small enough for a managed policy."""
    batch: list[str] = []
    for action in actions:
        if len(json.dumps(_policy([*batch, action]), separators=(",", ":"))) > POLICY_CHARACTERS:
            yield _policy(batch)
            batch = []
        batch.append(action)
    yield _policy(batch)


def deployer_policy(account: str, region: str, partition: str = "aws") -> dict[str, object]:
    """Return what whoever runs `cdk deploy` needs: to take on the bootstrap's roles."""
    return _policy(["sts:AssumeRole"], [role_arn(name, account, region, partition) for name in BOOTSTRAP_ROLES])


def role_arn(name: str, account: str, region: str, partition: str = "aws") -> str:
    """Return the ARN of a role of the CDK's bootstrap, such as ``deploy`` or ``cfn-exec``."""
    return f"arn:{partition}:iam::{account}:role/cdk-{QUALIFIER}-{name}-role-{account}-{region}"


def _policy(actions: list[str], where: list[str] | str = "*") -> dict[str, object]:
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": actions, "Resource": where}]}


def _prefix(kind: str) -> str:
    service = kind.split("::")[1].lower()
    return PREFIXES.get(service, service)
