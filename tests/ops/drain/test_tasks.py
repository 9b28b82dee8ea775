"""`voice drain` of a task of the gateway, with the real SDK against moto."""

import json
from typing import Any

import boto3
import pytest

from tests.ops.drain.conftest import REGION, drain

EDGE = {
    "Resources": {
        "Cluster": {"Type": "AWS::ECS::Cluster", "Properties": {"ClusterName": "edge"}},
        "Definition": {
            "Type": "AWS::ECS::TaskDefinition",
            "Properties": {
                "Family": "gateway",
                "ContainerDefinitions": [{"Name": "gateway", "Image": "gateway", "Memory": 512}],
            },
        },
        "Service": {
            "Type": "AWS::ECS::Service",
            "Properties": {
                "ServiceName": "gateway",
                "Cluster": {"Ref": "Cluster"},
                "TaskDefinition": {"Ref": "Definition"},
                "DesiredCount": 0,
            },
        },
    }
}


@pytest.fixture
def task(account: object) -> str:
    """Return the ARN of a task of the deployed gateway."""
    del account
    boto3.client("cloudformation", region_name=REGION).create_stack(
        StackName="sandbox-edge", TemplateBody=json.dumps(EDGE)
    )
    ecs: Any = boto3.client("ecs", region_name=REGION)
    subnet = boto3.client("ec2", region_name=REGION).describe_subnets()["Subnets"][0]["SubnetId"]
    started = ecs.run_task(
        cluster="edge",
        taskDefinition="gateway",
        launchType="FARGATE",
        networkConfiguration={"awsvpcConfiguration": {"subnets": [subnet]}},
    )
    return str(started["tasks"][0]["taskArn"])


def test_a_task_is_stopped_and_followed(task: str) -> None:
    result = drain(task.rpartition("/")[2])
    assert result.exit_code == 0, result.output
    assert "gateway in cluster edge" in result.stdout
    assert "callers have 120 s to finish" in result.stdout
    ecs: Any = boto3.client("ecs", region_name=REGION)
    found = ecs.describe_tasks(cluster="edge", tasks=[task])["tasks"][0]
    assert (found["lastStatus"], found["stoppedReason"]) == ("STOPPED", "voice drain")


def test_an_arn_is_accepted_and_a_dry_run_stops_nothing(task: str) -> None:
    told = json.loads(drain(task, "--dry-run", "--json").stdout)
    assert told["host"]["fleet"] == "gateway"
    assert told["host"]["state"] != "STOPPED"


@pytest.mark.usefixtures("task")
def test_a_task_outside_the_deployment_is_refused() -> None:
    result = drain("0" * 32)
    assert result.exit_code == 2
    assert "is not a task of the gateway of sandbox" in result.stderr
