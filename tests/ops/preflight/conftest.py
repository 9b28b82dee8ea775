"""AWS account in moto that can run the sandbox deployment; each test breaks one precondition."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ecr.models import Image as EcrImage
from moto.ecr.models import ecr_backends

import voice_blueprint
from tests.blueprint.documents import ABSENT, DEPLOYMENTS, Edits, load_text, location, parse_yaml, text
from tests.ops.preflight.moto_account import Quotas, install
from tests.synthesized import shipped
from voice_blueprint import Deployment, catalog
from voice_blueprint.aws import names
from voice_blueprint.images import load_image_specs
from voice_ops.preflight import aws
from voice_ops.preflight.aws.permissions import build_bootstrap_role_arn
from voice_ops.preflight.report import CheckResult, CheckStatus
from voice_sandbox.aws.local import add_hosted_zone

REGION = "us-east-1"
AMPLE_QUOTA = 100_000
EC2_QUOTAS = {
    "L-1216C47A": "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
    "L-1945791B": "Running On-Demand Inf instances",
    "L-2C3B7624": "Running On-Demand Trn instances",
    "L-417A185B": "Running On-Demand P instances",
    "L-0263D0A3": "EC2-VPC Elastic IPs",
    "L-34B43A08": "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
    "L-B5D1601B": "All Inf Spot Instance Requests",
    "L-7212CCBC": "All P Spot Instance Requests",
}


@dataclass
class AwsAccount:
    """A complete account, and its responses to a preflight."""

    quotas: Quotas
    session: boto3.Session

    def set_quota(self, code: str, value: float, service: str = "ec2") -> None:
        name, _ = self.quotas.values[service, code]
        self.quotas.values[service, code] = (name, value)

    def ask(self, deployment: Deployment) -> list[CheckResult]:
        return list(aws.run_preflight(deployment, templates_of_sandbox()))

    def answer(self, deployment: Deployment, about: str) -> CheckResult:
        """Return the only result row whose subject contains these words."""
        (row,) = [row for row in self.ask(deployment) if about in row.question]
        return row


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsAccount]:
    """Create a bootstrapped account with ample quotas, the file's zone and secret, and an administrator."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")  # 1,300, repeated for each test
    with mock_aws():
        quotas = install(monkeypatch)
        for code, name in EC2_QUOTAS.items():
            quotas.values["ec2", code] = (name, AMPLE_QUOTA)
        quotas.values["vpc", "L-F678F1CE"] = ("VPCs per Region", AMPLE_QUOTA)
        quotas.values["elasticloadbalancing", "L-69A177A2"] = ("Network Load Balancers per Region", AMPLE_QUOTA)
        quotas.values["fargate", "L-3032A538"] = ("Fargate On-Demand vCPU resource count", AMPLE_QUOTA)
        for limit in catalog.limits().values():
            if limit.service and limit.quota:
                quotas.values[limit.service, limit.quota] = (limit.name, AMPLE_QUOTA)
        _operator(monkeypatch)
        _bootstrap()
        boto3.client("secretsmanager").create_secret(Name="chat-key", SecretString="of the sandbox's agents")
        add_hosted_zone("Z0123456789EXAMPLE", "example.com")
        _push_all(voice_blueprint.load(DEPLOYMENTS / "sandbox.yaml"))
        yield AwsAccount(quotas, boto3.Session(region_name=REGION))


def push(name: str, image: str, digest: str, *platforms: str, signed: bool = False) -> None:
    """Put an image into the registry under a digest; moto would generate another one."""
    repository = ecr_backends[DEFAULT_ACCOUNT_ID][REGION].repositories[f"{name}/{image}"]
    listed = [
        {"platform": {"os": "linux", "architecture": each.removeprefix("linux/")}} for each in (*platforms, "unknown")
    ]
    listed[-1]["platform"]["os"] = "unknown"  # as buildx lists its attestations
    index = json.dumps({"schemaVersion": 2, "manifests": listed})
    made = [EcrImage(DEFAULT_ACCOUNT_ID, "1.0", index, repository.name, digest=digest)]
    if signed:
        tag = f"{digest.replace(':', '-')}.sig"
        made.append(
            EcrImage(DEFAULT_ACCOUNT_ID, tag, json.dumps({"layers": []}), repository.name, digest=f"{digest[:-1]}f")
        )
    repository.images = [each for each in repository.images if each.image_digest != digest] + made


def _push_all(deployment: Deployment) -> None:
    for image, digest in deployment.images.items():
        boto3.client("ecr").create_repository(repositoryName=f"{deployment.name}/{image}")
        push(deployment.name, image, digest, *load_image_specs()[image].platforms)


def _operator(monkeypatch: pytest.MonkeyPatch) -> None:
    iam = boto3.client("iam")
    iam.create_user(UserName="operator")
    allow("operator", {"Effect": "Allow", "Action": "*", "Resource": "*"})
    key = iam.create_access_key(UserName="operator")["AccessKey"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])


def allow(user: str, *statements: dict[str, Any]) -> None:
    """Replace a user's policy."""
    document = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
    boto3.client("iam").put_user_policy(UserName=user, PolicyName="all", PolicyDocument=document)


def execution_role(*statements: dict[str, Any]) -> None:
    """Replace the policy of CloudFormation's role."""
    name = build_bootstrap_role_arn("cfn-exec", DEFAULT_ACCOUNT_ID, REGION).rpartition("/")[2]
    document = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
    boto3.client("iam").put_role_policy(RoleName=name, PolicyName="all", PolicyDocument=document)


def _bootstrap() -> None:
    boto3.client("ssm").put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String")
    trust = json.dumps({"Version": "2012-10-17", "Statement": []})
    role = build_bootstrap_role_arn("cfn-exec", DEFAULT_ACCOUNT_ID, REGION).rpartition("/")[2]
    boto3.client("iam").create_role(RoleName=role, AssumeRolePolicyDocument=trust)
    execution_role({"Effect": "Allow", "Action": "*", "Resource": "*"})


def templates_of_sandbox() -> dict[str, dict[str, Any]]:
    """Return the templates of the sandbox by stack name; edits of single values do not change what is read."""
    deployment = voice_blueprint.load(DEPLOYMENTS / "sandbox.yaml")
    return {names.build_stack_name(deployment, tier): stack.template for tier, stack in shipped("sandbox").items()}


def load_edited(edits: Edits, folder: Path, base: str = "sandbox") -> Deployment:
    """Return a shipped deployment with some values replaced."""
    document = parse_yaml((DEPLOYMENTS / f"{base}.yaml").read_text(encoding="utf-8"))
    for place, value in edits.items():
        *parents, last = location(place)
        at = document
        for part in parents:
            at = at[part]
        if value is ABSENT:
            del at[last]
        else:
            at[last] = value
    return load_text(text(document), folder)


@pytest.fixture(scope="session")
def sandbox() -> Deployment:
    return voice_blueprint.load(DEPLOYMENTS / "sandbox.yaml")


def problem_rows(rows: list[CheckResult]) -> list[CheckResult]:
    """Return the rows with problems."""
    return [row for row in rows if row.status is not CheckStatus.PASSED]
