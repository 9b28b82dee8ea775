"""The agents' stack: who reaches them, what they may read, how they end."""

import json
from pathlib import Path

from blueprint.contract.environment import CHAT_KEY, ENVIRONMENT, PROMPT, TOKEN_KEY, VALKEY_HOST, VALKEY_PASSWORD
from blueprint.contract.images import Image
from blueprint.contract.network import FLOWS, Tier
from tests.blueprint.documents import ABSENT
from tests.stacks.aws.edge import CERTIFICATE, container, environment
from tests.synthesized import edited_sandbox, shipped

AGENTS = shipped("sandbox")["agents"]


def test_tasks_have_one_core_and_the_agents_own_security_group() -> None:
    task, service = AGENTS.the("ECS::TaskDefinition"), AGENTS.the("ECS::Service")
    assert (task["Cpu"], task["Memory"]) == ("1024", "2048")
    network = service["NetworkConfiguration"]["AwsvpcConfiguration"]
    (group,) = network["SecurityGroups"]
    assert "NetworkAgent" in group["Fn::ImportValue"]
    assert "LoadBalancer" not in group["Fn::ImportValue"]
    assert network["AssignPublicIp"] == "DISABLED"


def test_container_gets_every_variable_of_the_contract_once_and_writes_nowhere() -> None:
    found = container(AGENTS)
    given = [variable["Name"] for variable in (*found["Environment"], *found["Secrets"])]
    assert sorted(given) == sorted(variable.name for variable in ENVIRONMENT[Image.AGENT])
    assert found["ReadonlyRootFilesystem"] is True
    assert not found.get("MountPoints")


def test_keys_of_engines_and_a_prompt_may_be_secrets_and_only_these_are_read(tmp_path: Path) -> None:
    edits = {"aws.agents.prompt": ABSENT, "aws.agents.prompt_secret": "our-prompt"}
    stack = edited_sandbox(edits, tmp_path)["agents"]
    secrets = {secret["Name"]: json.dumps(secret["ValueFrom"]) for secret in container(stack)["Secrets"]}
    injected = (VALKEY_HOST, VALKEY_PASSWORD, TOKEN_KEY, CHAT_KEY, PROMPT)
    assert set(secrets) == {variable.name for variable in injected}
    assert ":secret:our-prompt" in secrets[PROMPT.name]
    assert ":secret:chat-key" in secrets[CHAT_KEY.name]
    statements = [each for policy in stack.properties("IAM::Policy") for each in policy["PolicyDocument"]["Statement"]]
    read = json.dumps([each["Resource"] for each in statements if "secretsmanager:GetSecretValue" in each["Action"]])
    assert {name for name in ("our-prompt", "chat-key", "StoreAgentSecret", "TokenKey") if name in read} == {
        "our-prompt", "chat-key", "StoreAgentSecret", "TokenKey"
    }  # fmt: skip
    # What runs may do nothing at all: metrics are log lines, engines and store have passwords.
    roles = {role["Ref"] for policy in stack.properties("IAM::Policy") for role in policy["Roles"]}
    assert json.loads(json.dumps(stack.the("ECS::TaskDefinition")["TaskRoleArn"]))["Fn::GetAtt"][0] not in roles


def test_the_gateway_is_reached_inside_the_network_and_only_there() -> None:
    url = json.dumps(environment(AGENTS)["VOICE_GATEWAY_URL"])
    assert "SessionsLinkLoadBalancer" in url
    assert ":8080" in url
    out = {(flow.destination, flow.port.number) for flow in FLOWS if flow.source is Tier.AGENT}
    siblings = {(Tier.AGENT, 8084)}
    assert out == {(Tier.API_LOAD_BALANCER, 8080), (Tier.STATE, 6379), (Tier.AWS, 443)} | siblings


def test_callers_come_over_tls_to_a_name_with_a_certificate_of_its_own() -> None:
    (listener,) = AGENTS.properties("ElasticLoadBalancingV2::Listener")
    assert (listener["Port"], listener["Protocol"]) == (443, "TLS")
    assert AGENTS.the("CertificateManager::Certificate")["DomainName"] == "agent.voice.example.com"
    assert AGENTS.the("Route53::RecordSet")["Name"] == "agent.voice.example.com"


def test_without_a_domain_the_files_certificate_serves(tmp_path: Path) -> None:
    edits = {"aws.edge.domain": ABSENT, "aws.edge.certificate_arn": CERTIFICATE}
    stack = edited_sandbox(edits, tmp_path)["agents"]
    assert stack.the("ElasticLoadBalancingV2::Listener")["Certificates"] == [{"CertificateArn": CERTIFICATE}]
    assert not stack.properties("Route53::RecordSet")


def test_a_conversation_may_end_before_its_task_is_killed() -> None:
    found, target = container(AGENTS), AGENTS.the("ElasticLoadBalancingV2::TargetGroup")
    attributes = {each["Key"]: each["Value"] for each in target["TargetGroupAttributes"]}
    drain_s = int(environment(AGENTS)["VOICE_DRAIN_TIMEOUT_S"])
    assert 20 <= drain_s < found["StopTimeout"] == int(attributes["deregistration_delay.timeout_seconds"])
    assert target["HealthCheckPath"] == "/healthz"


def test_tasks_are_scaled_on_conversations_against_those_admitted() -> None:
    policy = AGENTS.the("ApplicationAutoScaling::ScalingPolicy")["TargetTrackingScalingPolicyConfiguration"]
    assert policy["CustomizedMetricSpecification"]["MetricName"] == "Conversations"
    assert policy["TargetValue"] == round(0.7 * int(environment(AGENTS)["VOICE_CONVERSATIONS"]))


def test_a_file_without_agents_has_no_stack_and_no_user_of_theirs(tmp_path: Path) -> None:
    stacks = edited_sandbox({"aws.agents": ABSENT}, tmp_path)
    assert "agents" not in stacks
    assert "agent" not in {user["UserName"] for user in stacks["state"].properties("ElastiCache::User")}
