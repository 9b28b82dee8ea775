"""The agents' stack: network access, permissions, scaling and stopping."""

import json
from pathlib import Path

from tests.blueprint.documents import ABSENT
from tests.stacks.aws.edge import CERTIFICATE, container, environment
from tests.synthesized import edited_sandbox, shipped
from voice_blueprint.contract.environment import (
    CHAT_KEY,
    PROMPT,
    TOKEN_KEY,
    TOOLS_KEY,
    TWILIO_TOKEN,
    VALKEY_HOST,
    VALKEY_PASSWORD,
)
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.network import FLOWS, Tier
from voice_blueprint.environment import VARIABLES_BY_IMAGE

AGENTS = shipped("sandbox")["agents"]


def test_tasks_have_one_core_and_the_agents_own_security_group() -> None:
    task, service = AGENTS.only("ECS::TaskDefinition"), AGENTS.only("ECS::Service")
    assert (task["Cpu"], task["Memory"]) == ("1024", "2048")
    network = service["NetworkConfiguration"]["AwsvpcConfiguration"]
    (group,) = network["SecurityGroups"]
    assert "NetworkAgent" in group["Fn::ImportValue"]
    assert "LoadBalancer" not in group["Fn::ImportValue"]
    assert network["AssignPublicIp"] == "DISABLED"


def test_container_has_every_contract_variable_once_and_a_read_only_file_system() -> None:
    found = container(AGENTS)
    given = [variable["Name"] for variable in (*found["Environment"], *found["Secrets"])]
    assert sorted(given) == sorted(variable.name for variable in VARIABLES_BY_IMAGE[Image.AGENT])
    assert found["ReadonlyRootFilesystem"] is True
    assert not found.get("MountPoints")


def test_engine_keys_and_a_prompt_may_be_secrets_and_no_others_are_readable(tmp_path: Path) -> None:
    edits = {
        "aws.agents.prompt": ABSENT,
        "aws.agents.prompt_secret": "our-prompt",
        "aws.agents.tools_key_secret": "tools-key",
        "aws.agents.twilio": {"account": f"AC{'0' * 32}", "token_secret": "twilio-token"},
    }
    stack = edited_sandbox(edits, tmp_path)["agents"]
    secrets = {secret["Name"]: json.dumps(secret["ValueFrom"]) for secret in container(stack)["Secrets"]}
    injected = (VALKEY_HOST, VALKEY_PASSWORD, TOKEN_KEY, CHAT_KEY, PROMPT, TOOLS_KEY, TWILIO_TOKEN)
    assert set(secrets) == {variable.name for variable in injected}
    assert ":secret:our-prompt" in secrets[PROMPT.name]
    assert ":secret:chat-key" in secrets[CHAT_KEY.name]
    assert ":secret:tools-key" in secrets[TOOLS_KEY.name]
    assert ":secret:twilio-token" in secrets[TWILIO_TOKEN.name]
    statements = [each for policy in stack.properties("IAM::Policy") for each in policy["PolicyDocument"]["Statement"]]
    read = json.dumps([each["Resource"] for each in statements if "secretsmanager:GetSecretValue" in each["Action"]])
    assert {name for name in ("our-prompt", "chat-key", "StoreAgentSecret", "TokenKey") if name in read} == {
        "our-prompt", "chat-key", "StoreAgentSecret", "TokenKey"
    }  # fmt: skip
    # Tasks only need permission to protect themselves: metrics are log lines, and engines and store use passwords.
    role = stack.only("ECS::TaskDefinition")["TaskRoleArn"]["Fn::GetAtt"][0]
    (own,) = (policy for policy in stack.properties("IAM::Policy") if {"Ref": role} in policy["Roles"])
    assert [each["Action"] for each in own["PolicyDocument"]["Statement"]] == [
        ["ecs:GetTaskProtection", "ecs:UpdateTaskProtection"]
    ]


def test_the_gateway_is_only_reachable_inside_the_network() -> None:
    url = json.dumps(environment(AGENTS)["VOICE_GATEWAY_URL"])
    assert "SessionsLinkLoadBalancer" in url
    assert ":8080" in url
    out = {(flow.destination, flow.port.number) for flow in FLOWS if flow.source is Tier.AGENT}
    siblings = {(Tier.AGENT, 8084)}
    assert out == {(Tier.API_LOAD_BALANCER, 8080), (Tier.STATE, 6379), (Tier.AWS, 443)} | siblings


def test_callers_use_tls_with_a_separate_certificate() -> None:
    (listener,) = AGENTS.properties("ElasticLoadBalancingV2::Listener")
    assert (listener["Port"], listener["Protocol"]) == (443, "TLS")
    assert AGENTS.only("CertificateManager::Certificate")["DomainName"] == "agent.voice.example.com"
    assert AGENTS.only("Route53::RecordSet")["Name"] == "agent.voice.example.com"


def test_without_a_domain_the_configured_certificate_is_used(tmp_path: Path) -> None:
    edits = {"aws.edge.domain": ABSENT, "aws.edge.certificate_arn": CERTIFICATE}
    stack = edited_sandbox(edits, tmp_path)["agents"]
    assert stack.only("ElasticLoadBalancingV2::Listener")["Certificates"] == [{"CertificateArn": CERTIFICATE}]
    assert not stack.properties("Route53::RecordSet")


def test_the_stop_timeout_covers_the_end_of_a_conversation() -> None:
    found, target = container(AGENTS), AGENTS.only("ElasticLoadBalancingV2::TargetGroup")
    attributes = {each["Key"]: each["Value"] for each in target["TargetGroupAttributes"]}
    drain_s = int(environment(AGENTS)["VOICE_DRAIN_TIMEOUT_S"])
    assert 20 <= drain_s < found["StopTimeout"] == int(attributes["deregistration_delay.timeout_seconds"])
    assert target["HealthCheckPath"] == "/livez"


def test_tasks_scale_on_conversations_relative_to_the_admission_limit() -> None:
    policy = AGENTS.only("ApplicationAutoScaling::ScalingPolicy")["TargetTrackingScalingPolicyConfiguration"]
    assert policy["CustomizedMetricSpecification"]["MetricName"] == "Conversations"
    assert policy["TargetValue"] == round(0.7 * int(environment(AGENTS)["VOICE_CONVERSATIONS"]))


def test_a_file_without_agents_has_no_agent_stack_but_their_store_user(tmp_path: Path) -> None:
    """Tasks of removed agents drain with the user's password, whose secret they import."""
    stacks = edited_sandbox({"aws.agents": ABSENT}, tmp_path)
    assert "agents" not in stacks
    assert "agent" in {user["UserName"] for user in stacks["state"].properties("ElastiCache::User")}
