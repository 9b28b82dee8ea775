"""The account that is asked, and what the templates say about it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from blueprint.aws import names
from blueprint.file.model.deployment import Deployment

if TYPE_CHECKING:
    import boto3
    from types_boto3_acm import ACMClient
    from types_boto3_ec2 import EC2Client
    from types_boto3_elbv2 import ElasticLoadBalancingv2Client
    from types_boto3_iam import IAMClient
    from types_boto3_route53 import Route53Client
    from types_boto3_secretsmanager import SecretsManagerClient
    from types_boto3_service_quotas import ServiceQuotasClient
    from types_boto3_ssm import SSMClient
    from types_boto3_sts import STSClient

AREA = "AWS"


class Clients:
    """boto3's clients of one session, each made when it is first needed."""

    def __init__(self, session: boto3.Session) -> None:
        self._session = session

    @cached_property
    def acm(self) -> ACMClient:
        return self._session.client("acm")

    @cached_property
    def ec2(self) -> EC2Client:
        """Instances, their types, and networks."""
        return self._session.client("ec2")

    @cached_property
    def elbv2(self) -> ElasticLoadBalancingv2Client:
        """Load balancers."""
        return self._session.client("elbv2")

    @cached_property
    def iam(self) -> IAMClient:
        """Roles, and the policy simulator."""
        return self._session.client("iam")

    @cached_property
    def route53(self) -> Route53Client:
        """Hosted zones."""
        return self._session.client("route53")

    @cached_property
    def secretsmanager(self) -> SecretsManagerClient:
        return self._session.client("secretsmanager")

    @cached_property
    def service_quotas(self) -> ServiceQuotasClient:
        """Quotas and requests for increases."""
        return self._session.client("service-quotas")

    @cached_property
    def ssm(self) -> SSMClient:
        return self._session.client("ssm")

    @cached_property
    def sts(self) -> STSClient:
        """Who is asking."""
        return self._session.client("sts")


@dataclass(frozen=True)
class Account:
    """One deployment and clients of the account that it is meant for.

    Attributes:
        templates: CloudFormation templates by stack name.
        clients: In the deployment's region.
    """

    deployment: Deployment
    templates: dict[str, dict[str, Any]]
    clients: Clients

    @property
    def region(self) -> str:
        """The deployment's region."""
        return self.deployment.aws.region

    @cached_property
    def caller(self) -> dict[str, str]:
        """``Account`` and ``Arn`` of the credentials."""
        answer = self.clients.sts.get_caller_identity()
        return {"Account": answer["Account"], "Arn": answer["Arn"]}

    @property
    def groups(self) -> set[str]:
        """Names of the deployment's Auto Scaling groups."""
        fleets = {names.group(self.deployment, fleet.name) for fleet in self.deployment.aws.asr}
        return fleets | set(names.vad_groups(self.deployment))

    def resources(self) -> Counter[str]:
        """Count the templates' resources by type."""
        return Counter(r["Type"] for template in self.templates.values() for r in template["Resources"].values())

    def is_ours(self, tags: list[Any]) -> bool:
        """Whether a resource's tags say that one of the deployment's stacks made it."""
        return any(tag["Key"] == "aws:cloudformation:stack-name" and tag["Value"] in self.templates for tag in tags)
