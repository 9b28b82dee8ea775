"""Every permission suffices and none is spare: what hosts and tasks call, under the policies that their roles have."""

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
from voice_telemetry.cloudwatch import CloudWatch
from voice_telemetry.sample import Sample

FILES = ("sandbox", "production-us-east-1", "vfio")
GROUPS = f"arn:aws:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup:a1-b2:autoScalingGroupName/"
PULL = ("BatchCheckLayerAvailability", "BatchGetImage", "GetDownloadUrlForLayer")
"""What Docker and Fargate call for an image.
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


def machine_of(folder: Path, ready_port: int) -> Machine:
    """Return a machine that has what any host looks for."""
    machine = Machine(folder, ready_port)
    machine.add_secondary_interface()
    machine.write("dev/neuron0", "")
    machine.write("sys/block/nvme1n1/device/model", "Amazon EC2 NVMe Instance Storage\n")
    return machine


def prepare(script: str, folder: Path, ready_port: int, *, fails: bool) -> Machine:
    """Run the job that fills a fleet's artifacts."""
    machine = machine_of(folder, ready_port)
    user_data = folder / "user-data"
    user_data.write_text(script)
    assert (machine.run(user_data).returncode != 0) is fails
    return machine


def boot(script: str, folder: Path, ready_port: int, *, fails: bool) -> Machine:
    """Run a host's life by the user data of its launch template, or the end that a failure puts to it."""
    machine = machine_of(folder, ready_port)
    if fails:
        machine.set("fail", "docker info")
        machine.set("no-action")
    user_data = folder / "user-data"
    user_data.write_text(re.sub(r"HEALTH_PORT=\([^)]*\)", lambda m: re.sub(r"=\d+", f"={ready_port}", m[0]), script))
    assert machine.run(user_data).returncode == 0
    assert (machine.boot().returncode != 0) is fails
    return machine


def calls(cloud: Cloud, machine: Machine, script: str) -> Iterator[Call]:
    """Yield what a host asks AWS, by its commands and by what it tells Docker."""
    group = "".join(re.findall(r"^GROUP='?([^'\s]+)'?$", script, re.MULTILINE))
    for line in machine.transcript:
        if line.startswith("docker pull"):
            yield from pulled(line.split()[-1])
        if line.startswith("aws "):
            yield from asked(cloud, line, f"{GROUPS}{group}")
    for arguments in (machine.root / "run/voice").glob("*.arguments"):
        options = dict(re.findall(r"--log-opt=([a-z-]+)=(\S+)", arguments.read_text()))
        yield from logged(options)


def asked(cloud: Cloud, line: str, group: str) -> Iterator[Call]:
    """Yield what a command of the AWS CLI asks."""
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
            yield from (call for call in logged(named) if call.action == f"logs:{action}")
        case "secretsmanager":
            yield from read(cloud, options["secret-id"])
        case "ssm":
            yield Call("ssm:GetParameter", f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter{options['name']}")
        case "s3":
            yield from copied(cloud, *line.split()[-2:])
        case _:
            raise AssertionError(f"what does {line} need?")


def copied(cloud: Cloud, source: str, target: str) -> Iterator[Call]:
    """Yield what ``aws s3 cp`` or ``sync`` asks; S3 itself asks KMS for the caller."""
    writes = target.startswith("s3:")
    bucket, _, name = (target if writes else source).removeprefix("s3://").partition("/")
    arn, via = f"arn:aws:s3:::{bucket}", {"kms:ViaService": f"s3.{REGION}.amazonaws.com"}
    if "/" not in name:
        yield Call("s3:ListBucket", arn, {"s3:prefix": f"{name}/"})
    yield Call("s3:PutObject" if writes else "s3:GetObject", f"{arn}/{name}" if "/" in name else f"{arn}/{name}/a/b")
    for action in ("kms:GenerateDataKey", "kms:Decrypt") if writes else ("kms:Decrypt",):
        yield Call(action, cloud.key_of_bucket(bucket), via)


def pulled(image: str) -> Iterator[Call]:
    registry, _, repository = image.partition("@")[0].partition("/")
    account, _, _, region, *_ = registry.split(".")
    for action in PULL:
        yield Call(f"ecr:{action}", f"arn:aws:ecr:{region}:{account}:repository/{repository}")


def logged(options: Mapping[str, str]) -> Iterator[Call]:
    """Yield what Docker's log driver asks."""
    stream = f"log-group:{options['awslogs-group']}:log-stream:{options['awslogs-stream']}"
    for action in ("CreateLogStream", "PutLogEvents"):
        yield Call(f"logs:{action}", f"arn:aws:logs:{REGION}:{ACCOUNT}:{stream}")


def read(cloud: Cloud, secret: str) -> Iterator[Call]:
    """Yield what reading a secret takes: Secrets Manager decrypts with the caller's permission."""
    yield Call("secretsmanager:GetSecretValue", secret)
    via = {"kms:ViaService": f"secretsmanager.{REGION}.amazonaws.com"}
    yield Call("kms:Decrypt", cloud.key_of_secret(secret), via)


def published() -> Call:
    """Return the call by which the telemetry container publishes."""
    asked: list[str] = []

    class Client:
        def put_metric_data(self, *, Namespace: str, **_: object) -> None:  # noqa: N803 - boto3's word
            asked.append(Namespace)

    publisher = CloudWatch(Client(), deployment="d", fleet="f")  # type: ignore[arg-type]
    publisher.add([Sample("VadSessions", 1)])
    asyncio.run(publisher.publish())
    (namespace,) = asked
    return Call("cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": namespace})


def without(statements: list[Statement], at: int, action: str) -> list[Statement]:
    """Return a role's statements without one action."""
    kept = [each for each in _listed(statements[at]["Action"]) if each != action]
    return [*statements[:at], {**statements[at], "Action": kept}, *statements[at + 1 :]]


def _listed(value: Any) -> list[Any]:  # noqa: ANN401
    return value if isinstance(value, list) else [value]


def test_a_host_may_do_what_it_does_and_nothing_else(cloud: Cloud, tmp_path: Path, ready_port: int) -> None:
    """A permission that is taken away is missed by some call: none lacks, none is spare."""
    hosts = list(cloud.hosts())
    assert hosts
    for name, script, statements in hosts:
        is_job = name.endswith("-artifacts")
        made = [] if is_job else [published()]
        for fails in (False,) if is_job else (False, True):
            live = prepare if is_job else boot
            machine = live(script, tmp_path / f"{name}-{fails}", ready_port, fails=fails)
            made += calls(cloud, machine, script)
        assert [call for call in made if not call.allowed_by(statements)] == [], name
        spare = [
            (name, action)
            for at, statement in enumerate(statements)
            for action in _listed(statement["Action"])
            if all(call.allowed_by(without(statements, at, action)) for call in made)
        ]
        assert spare == []


def test_a_task_may_start_and_nothing_else(cloud: Cloud) -> None:
    """Fargate pulls, reads secrets and writes logs by the execution role; programs themselves ask AWS for nothing."""
    tasks = [task for _, _, task in cloud.of_type("ECS::TaskDefinition")]
    assert tasks
    for task in tasks:
        _may_start(cloud, task)


def _may_start(cloud: Cloud, task: dict[str, Any]) -> None:
    roles = cloud.roles()
    assert roles[task["TaskRoleArn"]] == []
    (container,) = task["ContainerDefinitions"]
    made = [Call("ecr:GetAuthorizationToken", "*"), *pulled(container["Image"])]
    options = container["LogConfiguration"]["Options"]
    made += logged({**options, "awslogs-stream": f"{options['awslogs-stream-prefix']}/task/0"})
    ours = {cloud.arn(tier, name) for tier, name, _ in cloud.of_type("SecretsManager::Secret")}
    for secret in container["Secrets"]:
        place = ":".join(secret["ValueFrom"].split(":")[:7])
        if ":ssm:" in place:
            made.append(Call("ssm:GetParameters", place))
        elif place in ours:
            made += read(cloud, place)
        else:  # the operator's own: under the account's key, and named without what AWS puts behind a secret's name
            made.append(Call("secretsmanager:GetSecretValue", f"{place}-a1B2c3"))
    statements = roles[task["ExecutionRoleArn"]]
    assert [call for call in made if not call.allowed_by(statements)] == []


def test_no_policy_says_what_aws_does_not_know_or_more_than_it_means(cloud: Cloud) -> None:
    own = [statement for statements in cloud.roles().values() for statement in statements]
    assert own
    keys = [s for _, _, key in cloud.of_type("KMS::Key") for s in key["KeyPolicy"]["Statement"]]
    buckets = [s for _, _, policy in cloud.of_type("S3::BucketPolicy") for s in policy["PolicyDocument"]["Statement"]]
    topics = [s for _, _, policy in cloud.of_type("SNS::TopicPolicy") for s in policy["PolicyDocument"]["Statement"]]
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
    """Say whether a statement hands a resource to the account's own IAM policies, or denies."""
    principal = statement["Principal"]
    own = isinstance(principal, dict) and principal.get("AWS") == f"arn:aws:iam::{ACCOUNT}:root"
    return own or statement["Effect"] == "Deny"


ALLOWED = "arn:aws:s3:::bucket/*"


@pytest.mark.parametrize(
    ("planted", "finding"),
    [
        ({"Action": "s3:GetObjekt", "Resource": ALLOWED}, "s3:GetObjekt is no action"),
        ({"Action": "s3:*", "Resource": ALLOWED}, "s3:* is too much"),
        ({"Action": "s3:GetObject", "Resource": "arn:aws:s3:::bucket"}, "s3:GetObject on none of its resources"),
        ({"Action": "kms:Decrypt", "Resource": "*"}, "kms:Decrypt on everything"),
        ({"Action": "logs:PutLogEvents", "Resource": [ALLOWED, "arn:aws:logs:r:1:log-group:g:*"]}, "is no resource of"),
        (
            {"Action": "s3:GetObject", "Resource": ALLOWED, "Condition": {"StringEquals": {"kms:ViaService": "s3"}}},
            "s3:GetObject knows no condition kms:ViaService",
        ),
        ({"NotAction": "iam:*", "Resource": "*"}, "says what is not meant"),
    ],
)
def test_a_planted_mistake_is_found(planted: Statement, finding: str) -> None:
    assert any(finding in each for each in findings({"Effect": "Allow", **planted}))


def test_iam_is_judged_as_iam_judges() -> None:
    allow = {"Effect": "Allow", "Action": ["s3:Get*"], "Resource": [ALLOWED]}
    call = Call("s3:GetObject", "arn:aws:s3:::bucket/key", {"aws:SecureTransport": "false"})
    assert call.allowed_by([allow])
    assert not Call("s3:PutObject", call.resource).allowed_by([allow])
    assert not Call("s3:GetObject", "arn:aws:s3:::other/key").allowed_by([allow])
    insecure = {"StringEquals": {"aws:SecureTransport": "false"}}
    assert not call.allowed_by([allow, {**allow, "Effect": "Deny", "Condition": insecure}])
    assert call.allowed_by([{**allow, "Condition": insecure}])
    assert not Call(call.action, call.resource).allowed_by([{**allow, "Condition": insecure}])
