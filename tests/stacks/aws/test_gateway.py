"""The gateway service."""

import json

import pytest

from tests.nonempty import nonempty
from tests.stacks.aws.edge import container, environment
from tests.synthesized import Stack
from voice_blueprint.contract.environment import (
    DRAIN_TIMEOUT_S,
    HTTP_PORT,
    IDLE_TIMEOUT_S,
    MEDIA_PORT,
    TOKEN_KEY,
    VALKEY_HOST,
    VALKEY_PASSWORD,
)
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.metrics import METRICS
from voice_blueprint.contract.network import FLOWS, Tier
from voice_blueprint.contract.session_api import HEALTH_COMMAND
from voice_blueprint.environment import VARIABLES_BY_IMAGE

# --- Gateway service ------------------------------------------------------------------------------------


def test_tasks_are_arm64_in_private_subnets_of_all_zones(edge: Stack) -> None:
    task, service = edge.only("ECS::TaskDefinition"), edge.only("ECS::Service")
    assert task["RuntimePlatform"] == {"CpuArchitecture": "ARM64", "OperatingSystemFamily": "LINUX"}
    assert (task["Cpu"], task["Memory"]) == ("512", "1024")
    assert service["LaunchType"] == "FARGATE"
    network = service["NetworkConfiguration"]["AwsvpcConfiguration"]
    assert network["AssignPublicIp"] == "DISABLED"
    assert len(network["Subnets"]) == 3
    assert all("privateSubnet" in subnet["Fn::ImportValue"] for subnet in network["Subnets"])
    (group,) = network["SecurityGroups"]
    assert "NetworkGateway" in group["Fn::ImportValue"]


def test_container_can_write_only_to_tmp_and_is_unprivileged(edge: Stack) -> None:
    found = container(edge)
    assert found["ReadonlyRootFilesystem"] is True
    assert found["User"] == "10001:10001"
    assert found["LinuxParameters"]["Capabilities"] == {"Drop": ["ALL"]}
    assert not found.get("Privileged")
    (mount,) = found["MountPoints"]  # uploaded files
    assert (mount["ContainerPath"], mount["ReadOnly"]) == ("/tmp", False)  # noqa: S108
    assert found["HealthCheck"]["Command"] == ["CMD", HEALTH_COMMAND]


@pytest.mark.parametrize("kind", ["iam", "jwt"])
def test_container_has_every_contract_variable_once(by_authorizer: dict[str, Stack], kind: str) -> None:
    found = container(by_authorizer[kind])
    given = [variable["Name"] for variable in (*found["Environment"], *found["Secrets"])]
    assert sorted(given) == sorted(variable.name for variable in VARIABLES_BY_IMAGE[Image.GATEWAY])


def test_secrets_are_references(edge: Stack) -> None:
    secrets = {secret["Name"]: json.dumps(secret["ValueFrom"]) for secret in container(edge)["Secrets"]}
    assert set(secrets) == {VALKEY_HOST.name, VALKEY_PASSWORD.name, TOKEN_KEY.name}
    assert "parameter/voice/sandbox/state-host" in secrets[VALKEY_HOST.name]
    assert "StoreGatewaySecret" in secrets[VALKEY_PASSWORD.name]
    assert ":password::" in secrets[VALKEY_PASSWORD.name]
    assert json.loads(secrets[TOKEN_KEY.name]) == {"Ref": next(iter(edge.of_type("SecretsManager::Secret")))}


def test_template_contains_no_secret_value(by_authorizer: dict[str, Stack]) -> None:
    for stack in nonempty(by_authorizer.values()):
        secret = stack.only("SecretsManager::Secret")
        assert "SecretString" not in secret
        assert "Fn::GetAtt" in secret["KmsKeyId"]
        assert "{{resolve:" not in json.dumps(stack.template)
        assert "secret" not in json.dumps(stack.template.get("Outputs", {})).lower()


def test_image_is_referenced_by_digest(edge: Stack) -> None:
    *registry, digest = container(edge)["Image"]["Fn::Join"][1]
    assert "RegistryGateway" in json.dumps(registry)
    assert digest == f"@sha256:{'1' * 64}"


def test_without_an_image_no_task_is_started(production: Stack, edge: Stack) -> None:
    assert production.only("ECS::Service")["DesiredCount"] == 0
    assert production.only("ApplicationAutoScaling::ScalableTarget")["MinCapacity"] == 0
    # With an image, scaling determines the desired count; setting it would reset the count on each deployment.
    assert "DesiredCount" not in edge.only("ECS::Service")
    target = edge.only("ApplicationAutoScaling::ScalableTarget")
    assert (target["MinCapacity"], target["MaxCapacity"]) == (1, 100)


def test_service_scales_on_open_sockets_per_task(edge: Stack) -> None:
    policy = edge.only("ApplicationAutoScaling::ScalingPolicy")["TargetTrackingScalingPolicyConfiguration"]
    metric = policy["CustomizedMetricSpecification"]
    declared = METRICS["OpenSockets"]
    assert (metric["Namespace"], metric["MetricName"]) == (declared.namespace, declared.name)
    assert {d["Name"]: d["Value"] for d in metric["Dimensions"]} == {"Deployment": "sandbox", "Fleet": "gateway"}
    assert {d["Name"] for d in metric["Dimensions"]} == set(declared.dimensions)
    assert metric["Statistic"] == "Average"
    assert policy["TargetValue"] == 74  # 70 % of two sockets for each of 53 calls
    given = environment(edge)
    assert (given["VOICE_DEPLOYMENT"], given["VOICE_FLEET"]) == ("sandbox", "gateway")


def test_a_broken_release_rolls_back(edge: Stack) -> None:
    deployment = edge.only("ECS::Service")["DeploymentConfiguration"]
    assert deployment["DeploymentCircuitBreaker"] == {"Enable": True, "Rollback": True}
    assert deployment["MinimumHealthyPercent"] == 100


def test_the_stop_timeout_exceeds_the_idle_timeout(edge: Stack) -> None:
    idle_s = int(environment(edge)[IDLE_TIMEOUT_S.name])
    drain_s = int(environment(edge)[DRAIN_TIMEOUT_S.name])
    assert idle_s < drain_s < container(edge)["StopTimeout"] <= 120
    for targets in edge.properties("ElasticLoadBalancingV2::TargetGroup"):
        (delay,) = [
            attribute["Value"]
            for attribute in targets["TargetGroupAttributes"]
            if attribute["Key"] == "deregistration_delay.timeout_seconds"
        ]
        assert int(delay) > idle_s


def test_tasks_listen_on_the_ports_of_flows(edge: Stack) -> None:
    listening = {mapping["ContainerPort"] for mapping in container(edge)["PortMappings"]}
    assert listening == {flow.port.number for flow in FLOWS if flow.destination is Tier.GATEWAY}
    given = environment(edge)
    assert listening == {int(given[HTTP_PORT.name]), int(given[MEDIA_PORT.name])}


def test_tasks_have_no_aws_permissions_and_a_minimal_execution_role(edge: Stack) -> None:
    task = edge.only("ECS::TaskDefinition")
    roles = edge.of_type("IAM::Role")
    assert not roles[task["TaskRoleArn"]["Fn::GetAtt"][0]]["Properties"].keys() & {"Policies", "ManagedPolicyArns"}
    by_role = {role["Ref"]: policy for policy in edge.properties("IAM::Policy") for role in policy["Roles"]}
    assert by_role.keys() == {task[name]["Fn::GetAtt"][0] for name in ("ExecutionRoleArn", "TaskRoleArn")}
    (own,) = by_role[task["TaskRoleArn"]["Fn::GetAtt"][0]]["PolicyDocument"]["Statement"]
    assert own["Action"] == ["ecs:GetTaskProtection", "ecs:UpdateTaskProtection"]
    assert json.dumps(own["Resource"]).count("Cluster") == 1, "its own cluster's tasks"
    policy = by_role[task["ExecutionRoleArn"]["Fn::GetAtt"][0]]
    for statement in policy["PolicyDocument"]["Statement"]:
        if statement["Resource"] == "*":
            assert statement["Action"] == "ecr:GetAuthorizationToken"
        if statement["Action"] == "kms:Decrypt":
            assert statement["Condition"] == {
                "StringEquals": {"kms:ViaService": "secretsmanager.us-east-1.amazonaws.com"}
            }


# --- Logs -----------------------------------------------------------------------------------------------


def test_logs_are_encrypted_with_the_configured_retention(production: Stack) -> None:
    groups = production.of_type("Logs::LogGroup").values()
    assert len(groups) == 4
    for group in groups:
        assert group["Properties"]["KmsKeyId"]
        assert group["Properties"]["RetentionInDays"] == 90
        assert group["DeletionPolicy"] == "RetainExceptOnCreate"
