"""Policies of hosts and tasks contain exactly the permissions that their calls need."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.policies import ACCOUNT, REGION, Call, Cloud, Statement, findings
from tests.synthesized import edited_sandbox, shipped
from tests.userdata.machine import Machine
from voice_telemetry.cloudwatch import CloudWatchPublisher
from voice_telemetry.sample import Sample

FILES = ("sandbox", "production-us-east-1", "vfio")
GROUPS = f"arn:aws:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup:a1-b2:autoScalingGroupName/"
WITH_ARCHIVE = sorted(
    [
        "kms:Decrypt",
        "kms:GenerateDataKey",
        "s3:DeleteObject",
        "s3:GetObject",
        "s3:PutObject",
        "s3:PutObject",
        "s3:PutObject",
    ]
)
"""Calls of ``voice_gateway/archive.py``: transcripts are written, read and deleted; index entries and usage are
written."""
PULL = ("BatchCheckLayerAvailability", "BatchGetImage", "GetDownloadUrlForLayer")
"""Calls of Docker and Fargate for an image.
https://docs.aws.amazon.com/AmazonECR/latest/userguide/repository-policy-examples.html"""


@pytest.fixture(scope="module", params=FILES)
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cloud:
    if request.param == "vfio":
        edits = {
            "aws.vad.data_path.mode": "vfio",
            "aws.vad.machine_image": "ami-0123456789abcdef0",
            "aws.asr.0.artifacts": True,
            "aws.asr.2.artifacts": True,
        }
        return Cloud(edited_sandbox(edits, tmp_path_factory.mktemp("vfio")))
    return Cloud(shipped(request.param))


def complete_machine(folder: Path, ready_port: int) -> Machine:
    """Return a machine with the hardware and files that any host expects."""
    machine = Machine(folder, ready_port)
    machine.add_secondary_interface()
    machine.write("dev/neuron0", "")
    machine.write("sys/block/nvme1n1/device/model", "Amazon EC2 NVMe Instance Storage\n")
    return machine


def prepare(script: str, folder: Path, ready_port: int, *, fails: bool) -> Machine:
    """Run the job that fills a fleet's artifacts."""
    machine = complete_machine(folder, ready_port)
    user_data = folder / "user-data"
    user_data.write_text(script)
    assert (machine.run(user_data).returncode != 0) is fails
    return machine


def boot(script: str, folder: Path, ready_port: int, *, fails: bool) -> Machine:
    """Run a host with the user data of its launch template until it terminates or fails."""
    machine = complete_machine(folder, ready_port)
    if fails:
        machine.set("fail", "docker info")
        machine.set("no-action")
    user_data = folder / "user-data"
    user_data.write_text(re.sub(r"HEALTH_PORT=\([^)]*\)", lambda m: re.sub(r"=\d+", f"={ready_port}", m[0]), script))
    assert machine.run(user_data).returncode == 0
    assert (machine.boot().returncode != 0) is fails
    return machine


def calls(cloud: Cloud, machine: Machine, script: str) -> Iterator[Call]:
    """Yield a host's AWS calls, from its commands and from Docker's options."""
    group = "".join(re.findall(r"^GROUP='?([^'\s]+)'?$", script, re.MULTILINE))
    for line in machine.transcript:
        if line.startswith("docker pull"):
            yield from pull_calls(line.split()[-1])
        if line.startswith("aws "):
            yield from asked(cloud, line, f"{GROUPS}{group}")
    for arguments in (machine.root / "run/voice").glob("*.arguments"):
        options = dict(re.findall(r"--log-opt=([a-z-]+)=(\S+)", arguments.read_text()))
        yield from log_calls(options)


def asked(cloud: Cloud, line: str, group: str) -> Iterator[Call]:
    """Yield the calls of an AWS CLI command."""
    _, service, command, *_ = line.split()
    options = dict(re.findall(r"--([a-z-]+) (\S+)", line))
    action = "".join(word.capitalize() for word in command.split("-"))
    match service:
        case "autoscaling":
            yield Call(f"autoscaling:{action}", group)
        case "ecr":
            yield Call("ecr:GetAuthorizationToken", "*")
        case "elbv2":
            yield Call(f"elasticloadbalancing:{action}", options["target-group-arn"])
        case "logs":
            named = {"awslogs-group": options["log-group-name"], "awslogs-stream": options["log-stream-name"]}
            yield from (call for call in log_calls(named) if call.action == f"logs:{action}")
        case "secretsmanager":
            yield from secret_calls(cloud, options["secret-id"])
        case "ssm":
            yield Call("ssm:GetParameter", f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter{options['name']}")
        case "s3":
            yield from copy_calls(cloud, *line.split()[-2:])
        case _:
            raise AssertionError(f"what does {line} need?")


def copy_calls(cloud: Cloud, source: str, target: str) -> Iterator[Call]:
    """Yield the calls of ``aws s3 cp`` or ``sync``; S3 itself calls KMS for the caller."""
    writes = target.startswith("s3:")
    bucket, _, name = (target if writes else source).removeprefix("s3://").partition("/")
    arn, via = f"arn:aws:s3:::{bucket}", {"kms:ViaService": f"s3.{REGION}.amazonaws.com"}
    if "/" not in name:
        yield Call("s3:ListBucket", arn, {"s3:prefix": f"{name}/"})
    yield Call("s3:PutObject" if writes else "s3:GetObject", f"{arn}/{name}" if "/" in name else f"{arn}/{name}/a/b")
    for action in ("kms:GenerateDataKey", "kms:Decrypt") if writes else ("kms:Decrypt",):
        yield Call(action, cloud.bucket_key_arn(bucket), via)


def pull_calls(image: str) -> Iterator[Call]:
    registry, _, repository = image.partition("@")[0].partition("/")
    account, _, _, region, *_ = registry.split(".")
    for action in PULL:
        yield Call(f"ecr:{action}", f"arn:aws:ecr:{region}:{account}:repository/{repository}")


def log_calls(options: Mapping[str, str]) -> Iterator[Call]:
    """Yield the calls of Docker's log driver."""
    stream = f"log-group:{options['awslogs-group']}:log-stream:{options['awslogs-stream']}"
    for action in ("CreateLogStream", "PutLogEvents"):
        yield Call(f"logs:{action}", f"arn:aws:logs:{REGION}:{ACCOUNT}:{stream}")


def secret_calls(cloud: Cloud, secret: str) -> Iterator[Call]:
    """Yield the calls that read a secret: Secrets Manager decrypts with the caller's permission."""
    yield Call("secretsmanager:GetSecretValue", secret)
    via = {"kms:ViaService": f"secretsmanager.{REGION}.amazonaws.com"}
    yield Call("kms:Decrypt", cloud.secret_key_arn(secret), via)


def metric_call() -> Call:
    """Return the call with which the telemetry container publishes."""
    asked: list[str] = []

    class Client:
        def put_metric_data(self, *, Namespace: str, **_: object) -> None:  # noqa: N803 - boto3's word
            asked.append(Namespace)

    publisher = CloudWatchPublisher(Client(), deployment="d", fleet="f")  # type: ignore[arg-type]
    publisher.add([Sample("VadSessions", 1)])
    asyncio.run(publisher.publish())
    (namespace,) = asked
    return Call("cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": namespace})


def statements_without(statements: list[Statement], at: int, action: str) -> list[Statement]:
    """Return a role's statements without one action."""
    kept = [each for each in _listed(statements[at]["Action"]) if each != action]
    return [*statements[:at], {**statements[at], "Action": kept}, *statements[at + 1 :]]


def _listed(value: Any) -> list[Any]:  # noqa: ANN401
    return value if isinstance(value, list) else [value]


def test_a_host_has_exactly_the_permissions_that_it_uses(cloud: Cloud, tmp_path: Path, ready_port: int) -> None:
    """All calls are allowed, and without any single permission a call is denied."""
    hosts = list(cloud.hosts())
    assert hosts
    for name, script, statements in hosts:
        is_job = name.endswith("-artifacts")
        made = [] if is_job else [metric_call()]
        for fails in (False,) if is_job else (False, True):
            live = prepare if is_job else boot
            machine = live(script, tmp_path / f"{name}-{fails}", ready_port, fails=fails)
            made += calls(cloud, machine, script)
        assert [call for call in made if not call.is_allowed(statements)] == [], name
        spare = [
            (name, action)
            for at, statement in enumerate(statements)
            for action in _listed(statement["Action"])
            if all(call.is_allowed(statements_without(statements, at, action)) for call in made)
        ]
        assert spare == []


def test_a_task_only_has_permissions_to_start(cloud: Cloud) -> None:
    """Fargate pulls, reads secrets and writes logs with the execution role.

    Programs request protection, and archive.
    """
    tasks = [task for _, _, task in cloud.resources_by_type("ECS::TaskDefinition")]
    assert tasks
    for task in tasks:
        _may_start(cloud, task)


def _may_start(cloud: Cloud, task: dict[str, Any]) -> None:
    roles = cloud.roles()
    own, *archiving = roles[task["TaskRoleArn"]]
    assert sorted(_listed(own["Action"])) == ["ecs:GetTaskProtection", "ecs:UpdateTaskProtection"]
    assert ":task/" in str(own["Resource"])
    (container,) = task["ContainerDefinitions"]
    told = {each["Name"]: each["Value"] for each in container["Environment"]}
    assert bool(archiving) is bool(told.get("VOICE_ARCHIVE_URL"))
    assert sorted(action for each in archiving for action in _listed(each["Action"])) == (
        WITH_ARCHIVE if archiving else []
    )
    made = [Call("ecr:GetAuthorizationToken", "*"), *pull_calls(container["Image"])]
    options = container["LogConfiguration"]["Options"]
    made += log_calls({**options, "awslogs-stream": f"{options['awslogs-stream-prefix']}/task/0"})
    ours = {cloud.arn(tier, name) for tier, name, _ in cloud.resources_by_type("SecretsManager::Secret")}
    for secret in container["Secrets"]:
        place = ":".join(secret["ValueFrom"].split(":")[:7])
        if ":ssm:" in place:
            made.append(Call("ssm:GetParameters", place))
        elif place in ours:
            made += secret_calls(cloud, place)
        else:  # the operator's own: under the account's key, without AWS' suffix of the name
            made.append(Call("secretsmanager:GetSecretValue", f"{place}-a1B2c3"))
    statements = roles[task["ExecutionRoleArn"]]
    assert [call for call in made if not call.is_allowed(statements)] == []


def test_policies_are_valid_and_minimal(cloud: Cloud) -> None:
    own = [statement for statements in cloud.roles().values() for statement in statements]
    assert own
    keys = [s for _, _, key in cloud.resources_by_type("KMS::Key") for s in key["KeyPolicy"]["Statement"]]
    buckets = [
        s for _, _, policy in cloud.resources_by_type("S3::BucketPolicy") for s in policy["PolicyDocument"]["Statement"]
    ]
    topics = [
        s for _, _, policy in cloud.resources_by_type("SNS::TopicPolicy") for s in policy["PolicyDocument"]["Statement"]
    ]
    found = [finding for statement in own for finding in findings(statement)]
    found += [
        finding
        for statement in (*keys, *buckets, *topics)
        if not _is_of_the_account(statement)
        for finding in findings(statement, of_resource=True)
    ]
    assert found == []
    assert not any(action.startswith(("iam:", "sts:")) for each in own for action in _listed(each["Action"]))


def _is_of_the_account(statement: Statement) -> bool:
    """Return whether a statement delegates a resource to the account's own IAM policies, or denies."""
    principal = statement["Principal"]
    own = isinstance(principal, dict) and principal.get("AWS") == f"arn:aws:iam::{ACCOUNT}:root"
    return own or statement["Effect"] == "Deny"


BROAD_PERMISSIONS = "arn:aws:s3:::bucket/*"


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ({"Action": "s3:GetObjekt", "Resource": BROAD_PERMISSIONS}, "s3:GetObjekt is no action"),
        ({"Action": "s3:*", "Resource": BROAD_PERMISSIONS}, "s3:* is too much"),
        ({"Action": "s3:GetObject", "Resource": "arn:aws:s3:::bucket"}, "s3:GetObject on none of its resources"),
        ({"Action": "kms:Decrypt", "Resource": "*"}, "kms:Decrypt on everything"),
        ({"Action": "kms:Decrypt", "Resource": "arn:aws:kms:r:1:key/k"}, "kms:Decrypt outside of the service"),
        (
            {"Action": "logs:PutLogEvents", "Resource": [BROAD_PERMISSIONS, "arn:aws:logs:r:1:log-group:g:*"]},
            "is no resource of",
        ),
        (
            {
                "Action": "s3:GetObject",
                "Resource": BROAD_PERMISSIONS,
                "Condition": {"StringEquals": {"kms:ViaService": "s3"}},
            },
            "s3:GetObject knows no condition kms:ViaService",
        ),
        ({"NotAction": "iam:*", "Resource": "*"}, "says what is not meant"),
    ],
)
def test_a_planted_mistake_is_detected(statement: Statement, finding: str) -> None:
    assert any(finding in each for each in findings({"Effect": "Allow", **statement}))


def test_policies_are_evaluated_like_iam() -> None:
    allow = {"Effect": "Allow", "Action": ["s3:Get*"], "Resource": [BROAD_PERMISSIONS]}
    call = Call("s3:GetObject", "arn:aws:s3:::bucket/key", {"aws:SecureTransport": "false"})
    assert call.is_allowed([allow])
    assert not Call("s3:PutObject", call.resource).is_allowed([allow])
    assert not Call("s3:GetObject", "arn:aws:s3:::other/key").is_allowed([allow])
    insecure = {"StringEquals": {"aws:SecureTransport": "false"}}
    assert not call.is_allowed([allow, {**allow, "Effect": "Deny", "Condition": insecure}])
    assert call.is_allowed([{**allow, "Condition": insecure}])
    assert not Call(call.action, call.resource).is_allowed([{**allow, "Condition": insecure}])
