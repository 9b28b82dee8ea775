"""Preflight of an AWS account with the real boto3 and moto; each test breaks one precondition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.core import set_initial_no_auth_action_count
from moto.ec2.models.instance_types import InstanceTypeBackend

from tests.blueprint.documents import ABSENT, Edits
from tests.ops.preflight.aws_faults import fail
from tests.ops.preflight.conftest import (
    AMPLE_QUOTA,
    AwsAccount,
    allow,
    execution_role,
    load_edited,
    problem_rows,
    templates_of_sandbox,
)
from voice_blueprint import Deployment, checks
from voice_blueprint.aws.machine_images import PUBLIC_IMAGE_PARAMETERS
from voice_blueprint.checks.aws.capacity import check_vcpu_quotas_suffice
from voice_blueprint.hosts import format_artifacts_name
from voice_ops.aws.account import Account
from voice_ops.needs import calculate_required_vcpus
from voice_ops.preflight.aws.quotas import calculate_available_vcpus, find_quota_family
from voice_ops.preflight.report import CheckResult, CheckStatus

ALLOW_ALL: dict[str, Any] = {"Effect": "Allow", "Action": "*", "Resource": "*"}
STANDARD, INF = "L-1216C47A", "L-1945791B"


def test_a_complete_account_has_no_blocking_result(account: AwsAccount, sandbox: Deployment) -> None:
    rows = account.ask(sandbox)
    assert len(rows) > 25
    (warning,) = problem_rows(rows)
    # As in the real us-east-1, trn1.2xlarge is not sold in every zone.
    assert (warning.status, warning.question) == (CheckStatus.WARNING, "zones of trn1.2xlarge for trn1")
    assert warning.remedy == "set availability_zones of fleet trn1 to us-east-1c"


# --- quotas ---------------------------------------------------------------------------------------------------


def test_vcpu_needs_match_the_quota_check(sandbox: Deployment) -> None:
    said = [violation.message for violation in check_vcpu_quotas_suffice.check_deployment(sandbox)]
    assert calculate_required_vcpus(sandbox)["standard", False] == (144, 1440)
    # One to four hosts of 192 vCPUs in service, and one that boots for the warm pool.
    assert calculate_required_vcpus(sandbox)["inf", False] == (2 * 192, 5 * 192)
    assert sorted(
        f"{low} vCPU at the minimum, {high} at the maximum" for low, high in calculate_required_vcpus(sandbox).values()
    ) == (sorted(message.split(": ")[1] for message in said))


@pytest.mark.parametrize(
    ("limit", "status"),
    [
        (143, CheckStatus.BLOCKING),
        (144, CheckStatus.WARNING),
        (1439, CheckStatus.WARNING),
        (1440, CheckStatus.PASSED),
    ],
)
def test_a_quota_blocks_below_the_minimum_and_warns_below_the_maximum(
    account: AwsAccount, sandbox: Deployment, limit: int, status: CheckStatus
) -> None:
    account.set_quota(STANDARD, limit)
    row = account.answer(sandbox, STANDARD)
    assert row.status is status
    assert row.needed == "144 at the minimum, 1440 at the maximum"
    assert (row.increase is None) == (status is CheckStatus.PASSED)


def test_only_hosts_of_other_deployments_reduce_the_quota(account: AwsAccount, sandbox: Deployment) -> None:
    account.set_quota(INF, 1152)
    ec2 = account.session.client("ec2")
    launch: Any = {"ImageId": "ami-12c6146b", "InstanceType": "inf2.48xlarge", "MinCount": 1, "MaxCount": 1}
    own = ec2.run_instances(**launch)["Instances"][0]["InstanceId"]
    ec2.create_tags(Resources=[own], Tags=[{"Key": "aws:autoscaling:groupName", "Value": "sandbox-inf2"}])
    assert account.answer(sandbox, INF).result == "1152 vCPU, 0 in use elsewhere"
    ec2.run_instances(**launch)
    row = account.answer(sandbox, INF)
    assert (row.status, row.result) == (CheckStatus.PASSED, "1152 vCPU, 192 in use elsewhere")
    ec2.run_instances(**launch | {"InstanceType": "inf2.xlarge"})
    row = account.answer(sandbox, INF)
    assert (row.status, row.result) == (CheckStatus.WARNING, "1152 vCPU, 196 in use elsewhere")
    assert row.increase
    assert row.increase.desired == 196 + 960


def test_spot_counts_against_its_own_quota(account: AwsAccount, tmp_path: Path) -> None:
    edits: Edits = {"aws.asr.0.purchase": {"option": "spot"}, "aws.asr.0.warm_pool": ABSENT}
    row = account.answer(load_edited(edits, tmp_path), "Inf")
    assert row.question == "quota: All Inf Spot Instance Requests (L-B5D1601B)"
    assert row.needed == "192 at the minimum, 768 at the maximum"


def test_p5_spot_counts_against_the_quota_that_exists_in_the_account(account: AwsAccount, tmp_path: Path) -> None:
    deployment = load_edited({"aws.asr.2.purchase": {"option": "spot"}}, tmp_path)
    assert "L-7212CCBC" in account.answer(deployment, "All P").question
    account.quotas.values["ec2", "L-C4BD4855"] = ("All P5 Spot Instance Requests", 0)
    row = account.answer(deployment, "All P")
    assert ("L-C4BD4855" in row.question, row.status) == (True, CheckStatus.BLOCKING)


def test_addresses_networks_and_load_balancers_of_others_count(account: AwsAccount, sandbox: Deployment) -> None:
    account.set_quota("L-0263D0A3", 2)
    account.set_quota("L-F678F1CE", 1, "vpc")
    ec2 = account.session.client("ec2")
    for _ in range(2):
        ec2.allocate_address(Domain="vpc")
    own = ec2.allocate_address(Domain="vpc")["AllocationId"]
    ec2.create_tags(Resources=[own], Tags=[{"Key": "aws:cloudformation:stack-name", "Value": "sandbox-network"}])
    addresses = account.answer(sandbox, "Elastic IPs")
    assert (addresses.status, addresses.result) == (CheckStatus.BLOCKING, "2 addresses, 2 in use elsewhere")
    assert account.answer(sandbox, "VPCs").result == "1 VPCs, 1 in use elsewhere"
    assert account.answer(sandbox, "Network Load Balancers").needed == "3 at the minimum, 3 at the maximum"


@pytest.mark.parametrize(
    ("limit", "status"),
    [(1, CheckStatus.BLOCKING), (2, CheckStatus.WARNING), (43, CheckStatus.WARNING), (44, CheckStatus.PASSED)],
)
def test_quotas_other_than_vcpu_are_read_from_the_account(
    account: AwsAccount, sandbox: Deployment, limit: int, status: CheckStatus
) -> None:
    """A zone has a third of 1 to 100 gateway tasks, and 1 to 10 VAD hosts."""
    account.set_quota("L-B211E961", limit, "elasticloadbalancing")
    row = account.answer(sandbox, "L-B211E961")
    assert (row.status, row.needed) == (status, "2 at the minimum, 44 at the maximum")


def test_rollout_capacity_is_the_quota_minus_all_running_hosts(account: AwsAccount, sandbox: Deployment) -> None:
    """Hosts of the deployment count too, since they run alongside the new ones during a rollout."""
    asked = Account(sandbox, templates_of_sandbox(), account.session)
    ec2 = account.session.client("ec2")
    assert calculate_available_vcpus(asked, "inf", spot=False) == AMPLE_QUOTA
    launch: Any = {"ImageId": "ami-12c6146b", "InstanceType": "inf2.48xlarge", "MinCount": 2, "MaxCount": 2}
    own = [host["InstanceId"] for host in ec2.run_instances(**launch)["Instances"]]
    ec2.create_tags(Resources=own, Tags=[{"Key": "aws:autoscaling:groupName", "Value": "sandbox-inf2"}])
    account.set_quota(INF, 500)
    assert calculate_available_vcpus(asked, "inf", spot=False) == 500 - 2 * 192
    assert calculate_available_vcpus(asked, "standard", spot=False) == AMPLE_QUOTA
    del account.quotas.values["ec2", INF]
    assert calculate_available_vcpus(asked, "inf", spot=False) is None


@pytest.mark.parametrize(("status", "is_open"), [("PENDING", True), ("CASE_OPENED", True), ("DENIED", False)])
def test_open_quota_requests_are_reported(account: AwsAccount, sandbox: Deployment, status: str, is_open: bool) -> None:
    account.set_quota(INF, 0)
    account.quotas.request("ec2", INF, 960, status)
    row = account.answer(sandbox, INF)
    assert row.status is CheckStatus.BLOCKING
    assert (row.increase is None) is is_open
    assert ("960 vCPU requested (request-1, 2026-09-21)" in row.result) is is_open


def test_an_open_request_that_is_too_small_is_reported(account: AwsAccount, sandbox: Deployment) -> None:
    account.set_quota(INF, 0)
    account.quotas.request("ec2", INF, 200)
    row = account.answer(sandbox, INF)
    assert row.increase is None
    assert row.remedy == "the open request is too small: request 960 in its support case"


@pytest.mark.parametrize(
    ("instance_type", "family"),
    [
        ("c8gn.large", "standard"),
        ("im4gn.large", "standard"),
        ("inf2.xlarge", "inf"),
        ("trn1n.32xlarge", "trn"),
        ("t4g.nano", "standard"),
        ("p5.4xlarge", "p"),
        ("gr6.4xlarge", "g-vt"),
        ("x2gd.large", None),
        ("mac2.metal", None),
        ("hpc7g.4xlarge", None),
    ],
)
def test_running_instances_are_counted_by_family(instance_type: str, family: str | None) -> None:
    assert find_quota_family(instance_type) == family


# --- identity and permissions ---------------------------------------------------------------------------------


def test_credentials_of_another_account_block(account: AwsAccount, tmp_path: Path) -> None:
    row = account.answer(load_edited({"aws.account": "999999999999"}, tmp_path), "identity")
    assert row.status is CheckStatus.BLOCKING
    assert row.remedy == "use credentials of 999999999999, or correct aws.account"


def test_missing_permission_to_assume_roles_is_reported(account: AwsAccount, sandbox: Deployment) -> None:
    lookup = "arn:aws:iam::123456789012:role/cdk-hnb659fds-lookup-*"
    allow("operator", ALLOW_ALL, {"Effect": "Deny", "Action": "sts:AssumeRole", "Resource": lookup})
    row = account.answer(sandbox, "permission to assume")
    assert (row.status, row.result) == (CheckStatus.BLOCKING, "denied for 1 of 3")


def test_missing_cloudformation_permissions_are_reported(account: AwsAccount, sandbox: Deployment) -> None:
    denied = {"Effect": "Deny", "Action": ["wafv2:CreateWebACL", "ec2:CreateVpc"], "Resource": "*"}
    execution_role(ALLOW_ALL, denied)
    row = account.answer(sandbox, "permissions of CloudFormation's role")
    assert row.status is CheckStatus.BLOCKING
    assert row.result == "denied on *: ec2:CreateVpc, wafv2:CreateWebACL"


def test_a_session_is_simulated_as_its_role(
    account: AwsAccount, sandbox: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    iam, trust = account.session.client("iam"), '{"Version": "2012-10-17", "Statement": []}'
    role = iam.create_role(RoleName="deployer", Path="/teams/", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    taken = account.session.client("sts").assume_role(RoleArn=role, RoleSessionName="me")["Credentials"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", taken["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", taken["SecretAccessKey"])
    monkeypatch.setenv("AWS_SESSION_TOKEN", taken["SessionToken"])
    assert "assumed-role/" in account.answer(sandbox, "identity").result
    assert account.answer(sandbox, "permission to assume").result == "denied for 3 of 3"


# --- offers, images, launches ---------------------------------------------------------------------------------


def test_a_zone_without_a_vad_type_blocks(account: AwsAccount, tmp_path: Path) -> None:
    zones = ["us-east-1a", "us-east-1b", "us-east-1e"]
    row = account.answer(load_edited({"aws.availability_zones": zones}, tmp_path), "for vad")
    assert row.status is CheckStatus.BLOCKING
    assert row.remedy == "use zones that offer c8g.12xlarge; us-east-1e does not"


def test_drift_of_the_catalogue_is_reported(
    account: AwsAccount, sandbox: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    _set_network(monkeypatch, "p5.4xlarge", EnaSrdSupported=False, EfaSupported=False)
    row = account.answer(sandbox, "p5.4xlarge in the catalogue")
    assert (row.status, row.result) == (CheckStatus.WARNING, "the API returns ENA Express no, EFA no")
    assert row.remedy == "correct p5.4xlarge in voice_blueprint/catalog/instance_types.yaml"


def test_a_type_that_lost_ena_express_blocks_a_file_that_uses_it(
    account: AwsAccount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _set_network(monkeypatch, "c8g.12xlarge", EnaSrdSupported=False)
    edits: Edits = {"aws.vad.ena_express": {"enabled": True}}
    row = account.answer(load_edited(edits, tmp_path), "c8g.12xlarge in the catalogue")
    assert row.status is CheckStatus.BLOCKING
    assert "ena_express" in row.remedy


def _set_network(monkeypatch: pytest.MonkeyPatch, instance_type: str, **network: bool) -> None:
    """Change the network properties of a type in moto's EC2."""
    (row,) = [row for row in InstanceTypeBackend.instance_types if row["InstanceType"] == instance_type]
    monkeypatch.setitem(row, "NetworkInfo", {**row["NetworkInfo"], **network})


def test_a_missing_image_parameter_blocks(
    account: AwsAccount, sandbox: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        PUBLIC_IMAGE_PARAMETERS, "gpu", "/aws/service/ecs/optimized-ami/amazon-linux-2099/gpu/recommended/image_id"
    )
    image = account.answer(sandbox, "machine image amazon-linux-2099/gpu")
    assert (image.status, image.remedy) == (CheckStatus.BLOCKING, "use another region")
    launch = account.answer(sandbox, "launch of a p5 host")
    assert (launch.status, launch.result) == (CheckStatus.SKIPPED, "the machine image does not exist yet")


def test_no_host_is_launched(account: AwsAccount, sandbox: Deployment) -> None:
    assert account.answer(sandbox, "launch of a vad host").status is CheckStatus.PASSED
    assert account.session.client("ec2").describe_instances()["Reservations"] == []


@set_initial_no_auth_action_count(4)
def _ask_with_authorization(account: AwsAccount, deployment: Deployment) -> list[CheckResult]:
    return account.ask(deployment)


def test_a_denied_launch_blocks_and_denied_queries_are_unanswered(account: AwsAccount, sandbox: Deployment) -> None:
    denied = {"Effect": "Deny", "Action": ["ec2:RunInstances", "servicequotas:*"], "Resource": "*"}
    allow("operator", ALLOW_ALL, denied)
    rows = {row.question: row for row in _ask_with_authorization(account, sandbox)}
    assert (rows["launch of a vad host"].status, rows["launch of a vad host"].result) == (
        CheckStatus.BLOCKING,
        "denied",
    )
    quotas = rows["service quotas and open requests"]
    assert quotas.status is CheckStatus.UNKNOWN
    assert (
        quotas.result == "access denied: ListRequestedServiceQuotaChangeHistory (403)"
    )  # moto sends XML to a JSON service
    assert rows["machine image amazon-linux-2023/gpu"].status is CheckStatus.PASSED


def test_without_a_subnet_no_launch_is_tested(account: AwsAccount, sandbox: Deployment) -> None:
    ec2 = account.session.client("ec2")
    for subnet in ec2.describe_subnets()["Subnets"]:
        ec2.delete_subnet(SubnetId=subnet["SubnetId"])
    row = account.answer(sandbox, "launch of a vad host")
    assert (row.status, row.result) == (CheckStatus.SKIPPED, "the subnet in the zones does not exist yet")


# --- what has to stand there ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "status"), [("5", CheckStatus.BLOCKING), ("6", CheckStatus.PASSED)])
def test_an_outdated_bootstrap_blocks(
    account: AwsAccount, sandbox: Deployment, version: str, status: CheckStatus
) -> None:
    ssm = account.session.client("ssm")
    ssm.put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value=version, Type="String", Overwrite=True)
    row = account.answer(sandbox, "CDK bootstrap")
    assert (row.status, row.result, row.needed) == (status, f"version {version}", "version 6 or later")


def test_a_missing_bootstrap_blocks_and_its_role_is_not_simulated(account: AwsAccount, sandbox: Deployment) -> None:
    account.session.client("ssm").delete_parameter(Name="/cdk-bootstrap/hnb659fds/version")
    iam, role = account.session.client("iam"), "cdk-hnb659fds-cfn-exec-role-123456789012-us-east-1"
    iam.delete_role_policy(RoleName=role, PolicyName="all")
    iam.delete_role(RoleName=role)
    row = account.answer(sandbox, "CDK bootstrap")
    command = f"cdk bootstrap aws://123456789012/us-east-1 -c deployment={sandbox.source.file}"
    assert (row.status, row.remedy) == (CheckStatus.BLOCKING, f"run `{command}`")
    assert account.answer(sandbox, "permissions of CloudFormation's role").status is CheckStatus.SKIPPED


def test_a_hosted_zone_of_another_account_blocks(account: AwsAccount, tmp_path: Path) -> None:
    row = account.answer(load_edited({"aws.edge.domain.zone_id": "Z0000000000OTHER"}, tmp_path), "hosted zone")
    assert (row.status, row.result) == (CheckStatus.BLOCKING, "not in this account")


def test_a_hosted_zone_with_another_name_blocks(account: AwsAccount, tmp_path: Path) -> None:
    domain = {"name": "voice.example.org", "zone_id": "Z0123456789EXAMPLE", "zone_name": "example.org"}
    row = account.answer(load_edited({"aws.edge.domain": domain}, tmp_path), "hosted zone")
    assert (row.status, row.result) == (CheckStatus.BLOCKING, "public zone example.com")


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1"])
def test_a_configured_certificate_must_be_issued_in_the_region(
    account: AwsAccount, tmp_path: Path, region: str
) -> None:
    arn = boto3.client("acm", region_name=region).request_certificate(DomainName="media.example.com")["CertificateArn"]
    deployment = load_edited({"aws.edge.domain": ABSENT, "aws.edge.certificate_arn": arn}, tmp_path)
    row = account.answer(deployment, "certificate of the TLS listener")
    assert row.status is CheckStatus.BLOCKING
    assert row.result == ("PENDING_VALIDATION" if region == "us-east-1" else "it is in eu-west-1")


def test_a_missing_secret_blocks_until_it_exists(account: AwsAccount, tmp_path: Path) -> None:
    deployment = load_edited({"aws.observability.chat_webhook_secret": "voice/webhook"}, tmp_path)
    assert account.answer(deployment, "secret voice/webhook").status is CheckStatus.BLOCKING
    account.session.client("secretsmanager").create_secret(Name="voice/webhook", SecretString="https://x.invalid")
    assert account.answer(deployment, "secret voice/webhook").status is CheckStatus.PASSED


def test_a_secret_that_is_scheduled_for_deletion_blocks_until_it_is_restored(
    account: AwsAccount, tmp_path: Path
) -> None:
    """Tasks cannot read its value, although its description is still returned."""
    deployment = load_edited({"aws.observability.chat_webhook_secret": "voice/webhook"}, tmp_path)
    secrets = account.session.client("secretsmanager")
    secrets.create_secret(Name="voice/webhook", SecretString="https://x.invalid")
    secrets.delete_secret(SecretId="voice/webhook", RecoveryWindowInDays=7)
    row = account.answer(deployment, "secret voice/webhook")
    assert (row.status, row.result) == (CheckStatus.BLOCKING, "scheduled for deletion")
    assert row.remedy == "restore it: aws secretsmanager restore-secret --secret-id voice/webhook"
    secrets.restore_secret(SecretId="voice/webhook")
    assert account.answer(deployment, "secret voice/webhook").status is CheckStatus.PASSED


def test_references_of_agents_must_exist(account: AwsAccount, tmp_path: Path) -> None:
    edits: Edits = {
        "aws.agents.prompt": ABSENT,
        "aws.agents.prompt_secret": "our-prompt",
        "aws.agents.chat.key_secret": "language-key",
        "aws.agents.speech.key_secret": "speech-key",
        "aws.agents.tools_key_secret": "tools-key",
        "aws.agents.twilio": {"account": f"AC{'0' * 32}", "token_secret": "twilio-token"},
    }
    deployment = load_edited(edits, tmp_path)
    for name, holds in (
        ("our-prompt", "prompt"),
        ("language-key", "language model"),
        ("speech-key", "speech engine"),
        ("tools-key", "signs"),
        ("twilio-token", "Twilio"),
    ):
        row = account.answer(deployment, f"secret {name}")
        assert row.status is CheckStatus.BLOCKING
        assert holds in row.needed
        account.session.client("secretsmanager").create_secret(Name=name, SecretString="x")
        assert account.answer(deployment, f"secret {name}").status is CheckStatus.PASSED


def test_tasks_count_against_the_quota_of_fargate(account: AwsAccount, sandbox: Deployment) -> None:
    account.set_quota("L-3032A538", 110, "fargate")
    row = account.answer(sandbox, "Fargate")
    # The gateway's 1 to 100 tasks of half a vCPU, and 1 to 10 agents of one.
    assert row.needed == "2 at the minimum, 60 at the maximum"
    assert row.status is CheckStatus.PASSED
    account.set_quota("L-3032A538", 50, "fargate")
    assert account.answer(sandbox, "Fargate").status is CheckStatus.WARNING
    account.set_quota("L-3032A538", 1, "fargate")
    assert account.answer(sandbox, "Fargate").status is CheckStatus.BLOCKING


# --- faults ---------------------------------------------------------------------------------------------------


def test_throttled_queries_are_retried(
    account: AwsAccount, sandbox: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = fail(monkeypatch, "service-quotas", "ThrottlingException")
    row = account.answer(sandbox, "service quotas and open requests")
    assert len(sent) == 2  # AWS_MAX_ATTEMPTS
    assert row.status is CheckStatus.UNKNOWN
    assert row.result == ("ListRequestedServiceQuotaChangeHistory was throttled in 2 attempts (ThrottlingException)")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("ExpiredToken", "the credentials have expired (ExpiredToken)"),
        ("InvalidClientTokenId", "the credentials are not accepted (InvalidClientTokenId)"),
    ],
)
def test_rejected_credentials_end_the_queries(
    account: AwsAccount, sandbox: Deployment, monkeypatch: pytest.MonkeyPatch, code: str, message: str
) -> None:
    fail(monkeypatch, "sts", code, status=403, xml=True)
    first, *others = account.ask(sandbox)
    assert (first.question, first.status, first.result) == ("identity", CheckStatus.UNKNOWN, message)
    assert {row.status for row in others} == {CheckStatus.SKIPPED}


def test_credentials_may_expire_during_the_queries(
    account: AwsAccount, sandbox: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, "service-quotas", "ExpiredTokenException")
    rows = {row.question: row for row in account.ask(sandbox)}
    assert rows["CDK bootstrap"].status is CheckStatus.PASSED
    assert rows["service quotas and open requests"].status is CheckStatus.UNKNOWN
    assert rows["machine images"].status is CheckStatus.SKIPPED


def test_a_nonexistent_profile_is_reported_once(
    account: AwsAccount, sandbox: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    rows = account.ask(sandbox)
    assert {row.status for row in rows} == {CheckStatus.SKIPPED}
    assert rows[0].result == "The config profile (nobody) could not be found"


def test_the_templates_come_from_a_valid_file(sandbox: Deployment) -> None:
    assert not checks.format_blocking_findings(sandbox)
    assert len(templates_of_sandbox()) == 12


def test_missing_artifacts_block(account: AwsAccount, tmp_path: Path) -> None:
    deployment = load_edited({"aws.asr.0.artifacts": True}, tmp_path)
    about, name = "artifacts of inf2", format_artifacts_name(deployment, deployment.aws.asr[0])
    assert account.answer(deployment, about).status is CheckStatus.BLOCKING
    resources = templates_of_sandbox()["sandbox-registry"]["Resources"]
    buckets = {key: {"Type": each["Type"]} for key, each in resources.items() if each["Type"] == "AWS::S3::Bucket"}
    cloudformation, s3 = boto3.client("cloudformation"), boto3.client("s3")
    cloudformation.create_stack(StackName="sandbox-registry", TemplateBody=json.dumps({"Resources": buckets}))
    missing = account.answer(deployment, about)
    assert (missing.status, f"/{name} is not complete" in missing.result) == (CheckStatus.BLOCKING, True)
    assert "LaunchTemplateName=sandbox-inf2-artifacts" in missing.remedy
    (bucket,) = s3.list_buckets()["Buckets"]
    s3.put_object(Bucket=bucket["Name"], Key=f"{name}/complete", Body=b"complete")
    assert account.answer(deployment, about).status is CheckStatus.PASSED
