"""Load balancers, session API, gateway service: who gets in, where to, and what is kept quiet."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from blueprint import contract
from blueprint.contract import ENVIRONMENT, FLOWS, Image, Tier
from blueprint.session_api import SESSION_REQUEST
from tests.blueprint.documents import ABSENT, Edits
from tests.synthesized import Properties, Stack, Stacks, edited_sandbox, shipped

AUTHORIZERS: dict[str, dict[str, str]] = {
    "jwt": {"kind": "jwt", "issuer": "https://login.callers.dev/", "audience": "voice"},
    "api-key": {"kind": "api-key"},
    "none": {"kind": "none"},
}
CERTIFICATE = "arn:aws:acm:us-east-1:123456789012:certificate/00000000-0000-0000-0000-000000000000"


@pytest.fixture(scope="module")
def sandbox() -> Stacks:
    return shipped("sandbox")


@pytest.fixture(scope="module")
def edge(sandbox: Stacks) -> Stack:
    return sandbox["edge"]


@pytest.fixture(scope="module")
def production() -> Stack:
    return shipped("production-us-east-1")["edge"]


@pytest.fixture(scope="module")
def by_authorizer(edge: Stack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stack]:
    """The edge with each kind of authorizer."""
    return {"iam": edge} | {
        kind: edited_sandbox({"aws.edge.authorizer": value}, tmp_path_factory.mktemp(kind))["edge"]
        for kind, value in AUTHORIZERS.items()
    }


@pytest.fixture(scope="module")
def unnamed(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """The edge with a certificate and no domain."""
    edits: Edits = {"aws.edge.domain": ABSENT, "aws.edge.certificate_arn": CERTIFICATE}
    return edited_sandbox(edits, tmp_path_factory.mktemp("unnamed"))["edge"]


def routes(stack: Stack) -> dict[str, Properties]:
    """Methods by verb and path, as in ``GET /v1/sessions``."""
    resources = stack.of_type("ApiGateway::Resource")

    def path(reference: dict[str, Any]) -> str:
        if "Ref" not in reference:
            return ""
        properties = resources[reference["Ref"]]["Properties"]
        return f"{path(properties['ParentId'])}/{properties['PathPart']}"

    return {f"{m['HttpMethod']} {path(m['ResourceId'])}": m for m in stack.properties("ApiGateway::Method")}


def balancer(stack: Stack, scheme: str) -> tuple[str, Properties]:
    (found,) = [
        (name, resource["Properties"])
        for name, resource in stack.of_type("ElasticLoadBalancingV2::LoadBalancer").items()
        if resource["Properties"]["Scheme"] == scheme
    ]
    return found


def attributes(load_balancer: Properties) -> dict[str, Any]:
    return {attribute["Key"]: attribute["Value"] for attribute in load_balancer["LoadBalancerAttributes"]}


def listeners(stack: Stack, scheme: str) -> dict[tuple[str, int], Properties]:
    name, _ = balancer(stack, scheme)
    return {
        (listener["Protocol"], listener["Port"]): listener
        for listener in stack.properties("ElasticLoadBalancingV2::Listener")
        if listener["LoadBalancerArn"] == {"Ref": name}
    }


def target_of(stack: Stack, listener: Properties) -> Properties:
    (action,) = listener["DefaultActions"]
    targets: Properties = stack.of_type("ElasticLoadBalancingV2::TargetGroup")[action["TargetGroupArn"]["Ref"]]
    return dict(targets["Properties"])


def container(stack: Stack) -> Properties:
    (only,) = stack.the("ECS::TaskDefinition")["ContainerDefinitions"]
    return dict(only)


def environment(stack: Stack) -> dict[str, Any]:
    return {variable["Name"]: variable["Value"] for variable in container(stack)["Environment"]}


def log_group(stack: Stack, reference: dict[str, Any]) -> Properties:
    name = reference.get("Ref") or reference["Fn::GetAtt"][0]
    return dict(stack.of_type("Logs::LogGroup")[name]["Properties"])


# --- Session API ------------------------------------------------------------------------------------------


def test_api_has_three_routes_and_no_other(edge: Stack) -> None:
    assert set(routes(edge)) == {
        "POST /v1/sessions",
        "DELETE /v1/sessions/{id}",
        "GET /v1/sessions/{id}/events",
    }


def test_api_is_regional_and_is_reached_by_its_own_name_only(edge: Stack, unnamed: Stack) -> None:
    api = edge.the("ApiGateway::RestApi")
    assert api["EndpointConfiguration"]["Types"] == ["REGIONAL"]
    assert api["DisableExecuteApiEndpoint"] is True
    assert not unnamed.the("ApiGateway::RestApi").get("DisableExecuteApiEndpoint")


@pytest.mark.parametrize(
    ("kind", "authorization", "key"),
    [("iam", "AWS_IAM", False), ("jwt", "NONE", False), ("api-key", "NONE", True), ("none", "NONE", False)],
)
def test_every_route_asks_for_what_the_file_says(
    by_authorizer: dict[str, Stack], kind: str, authorization: str, key: bool
) -> None:
    for method in routes(by_authorizer[kind]).values():
        assert method["AuthorizationType"] == authorization
        assert bool(method.get("ApiKeyRequired")) is key


def test_keys_come_with_a_throttled_plan_and_no_value(by_authorizer: dict[str, Stack]) -> None:
    stack = by_authorizer["api-key"]
    plan = stack.the("ApiGateway::UsagePlan")
    assert plan["Throttle"] == {"RateLimit": 200, "BurstLimit": 400}
    assert len(plan["ApiStages"]) == 1
    assert "Value" not in stack.the("ApiGateway::ApiKey")
    assert stack.the("ApiGateway::UsagePlanKey")["KeyId"] == {"Ref": next(iter(stack.of_type("ApiGateway::ApiKey")))}
    assert not by_authorizer["iam"].of_type("ApiGateway::UsagePlan")


def test_only_with_jwt_does_the_gateway_know_an_issuer(by_authorizer: dict[str, Stack]) -> None:
    for kind, stack in by_authorizer.items():
        given = environment(stack)
        issuer, audience = given[contract.JWT_ISSUER.name], given[contract.JWT_AUDIENCE.name]
        assert (issuer, audience) == (("https://login.callers.dev/", "voice") if kind == "jwt" else ("", ""))


def test_events_stream_for_fifteen_minutes_and_resume(edge: Stack) -> None:
    events = routes(edge)["GET /v1/sessions/{id}/events"]
    assert events["Integration"]["ResponseTransferMode"] == "STREAM"
    assert events["Integration"]["TimeoutInMillis"] == 15 * 60 * 1000
    assert events["RequestParameters"]["method.request.header.Last-Event-ID"] is False
    others = [method for route, method in routes(edge).items() if not route.startswith("GET")]
    assert all(method["Integration"].get("ResponseTransferMode") in {None, "BUFFERED"} for method in others)


def test_requests_pass_through_the_link_to_the_gateway_unchanged(edge: Stack) -> None:
    internal, _ = balancer(edge, "internal")
    assert edge.the("ApiGateway::VpcLink")["TargetArns"] == [{"Ref": internal}]
    for route, method in routes(edge).items():
        verb, path = route.split()
        integration = method["Integration"]
        assert integration["Type"] == "HTTP_PROXY"
        assert integration["IntegrationHttpMethod"] == verb
        assert integration["ConnectionType"] == "VPC_LINK"
        assert integration["ConnectionId"] == {"Ref": next(iter(edge.of_type("ApiGateway::VpcLink")))}
        scheme, host, rest = integration["Uri"]["Fn::Join"][1]
        assert (scheme, host["Fn::GetAtt"]) == ("http://", [internal, "DNSName"])
        assert rest == f":{contract.GATEWAY_HTTP.number}{path}"
        if "{id}" in path:
            assert integration["RequestParameters"] == {"integration.request.path.id": "method.request.path.id"}


def test_requests_are_validated(edge: Stack) -> None:
    validator = edge.the("ApiGateway::RequestValidator")
    assert validator["ValidateRequestBody"] is True
    assert validator["ValidateRequestParameters"] is True
    for route, method in routes(edge).items():
        assert method["RequestValidatorId"]
        # What belongs to a session needs its token, and in a header: addresses end up in logs.
        needs_token = method.get("RequestParameters", {}).get(f"method.request.header.{contract.TOKEN_HEADER}", False)
        assert needs_token is ("{id}" in route)
    model = routes(edge)["POST /v1/sessions"]["RequestModels"]["application/json"]["Ref"]
    schema = edge.of_type("ApiGateway::Model")[model]["Properties"]["Schema"]
    assert schema["properties"] == SESSION_REQUEST["properties"]
    assert schema["additionalProperties"] is False


def test_a_changed_model_is_deployed(edge: Stack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(SESSION_REQUEST, "required", [])
    changed = edited_sandbox({}, tmp_path)["edge"]
    assert set(changed.of_type("ApiGateway::Deployment")) != set(edge.of_type("ApiGateway::Deployment"))


def test_refusals_are_json_and_throttled_callers_are_told_when_to_return(edge: Stack) -> None:
    answers = {answer["ResponseType"]: answer for answer in edge.properties("ApiGateway::GatewayResponse")}
    assert {"THROTTLED", "UNAUTHORIZED", "ACCESS_DENIED", "BAD_REQUEST_BODY"} <= set(answers)
    assert answers["THROTTLED"]["StatusCode"] == "429"
    assert answers["THROTTLED"]["ResponseParameters"] == {"gatewayresponse.header.Retry-After": "'1'"}
    for answer in answers.values():
        # API Gateway quotes messageString itself.
        body = answer["ResponseTemplates"]["application/json"].replace("$context.error.messageString", '"refused"')
        assert json.loads(body)["error"] == "refused"


def test_stage_is_throttled_and_traced_and_logs_no_payload(edge: Stack) -> None:
    stage = edge.the("ApiGateway::Stage")
    (settings,) = stage["MethodSettings"]
    assert (settings["HttpMethod"], settings["ResourcePath"]) == ("*", "/*")
    assert (settings["ThrottlingRateLimit"], settings["ThrottlingBurstLimit"]) == (200, 400)
    assert settings["LoggingLevel"] == "ERROR"
    assert settings["DataTraceEnabled"] is False
    assert stage["TracingEnabled"] is True


def test_access_log_names_no_credential_no_query_and_no_session(edge: Stack) -> None:
    logged = edge.the("ApiGateway::Stage")["AccessLogSetting"]
    fields = set(json.loads(logged["Format"]).values())
    assert "$context.requestId" in fields
    secret = re.compile(r"header|querystring|authorizer|apiKey$|\$context\.path$|accessKey|overrides", re.IGNORECASE)
    assert not [field for field in fields if secret.search(field)]
    assert log_group(edge, logged["DestinationArn"])["KmsKeyId"]


def test_execution_log_is_made_before_api_gateway_would_make_it(edge: Stack) -> None:
    (stage,) = edge.of_type("ApiGateway::Stage").values()
    api = next(iter(edge.of_type("ApiGateway::RestApi")))
    (name,) = [
        name
        for name, group in edge.of_type("Logs::LogGroup").items()
        if group["Properties"]["LogGroupName"]
        == {"Fn::Join": ["", ["API-Gateway-Execution-Logs_", {"Ref": api}, "/live"]]}
    ]
    assert name in stage["DependsOn"]


# --- Web application firewall -----------------------------------------------------------------------------


def test_firewall_limits_addresses_and_knows_common_attacks(edge: Stack) -> None:
    acl = edge.the("WAFv2::WebACL")
    rate, *managed = sorted(acl["Rules"], key=lambda rule: rule["Priority"])
    assert rate["Action"] == {"Block": {}}
    assert rate["Statement"]["RateBasedStatement"] == {
        "AggregateKeyType": "IP",
        "Limit": 1000,
        "EvaluationWindowSec": 300,
    }
    assert [rule["Statement"]["ManagedRuleGroupStatement"]["Name"] for rule in managed] == [
        "AWSManagedRulesCommonRuleSet",
        "AWSManagedRulesKnownBadInputsRuleSet",
    ]
    assert all(rule["OverrideAction"] == {"None": {}} for rule in managed)


def test_firewall_stands_before_the_stage(edge: Stack) -> None:
    association = edge.the("WAFv2::WebACLAssociation")
    parts = association["ResourceArn"]["Fn::Join"][1]
    assert {"Ref": next(iter(edge.of_type("ApiGateway::RestApi")))} in parts
    assert {"Ref": next(iter(edge.of_type("ApiGateway::Stage")))} in parts


def test_firewall_log_is_redacted(edge: Stack) -> None:
    logging = edge.the("WAFv2::LoggingConfiguration")
    headers = {field["SingleHeader"]["Name"] for field in logging["RedactedFields"] if "SingleHeader" in field}
    assert headers == {"authorization", "x-api-key", contract.TOKEN_HEADER.lower()}
    assert {"QueryString": {}} in logging["RedactedFields"]
    (destination,) = logging["LogDestinationConfigs"]
    group = log_group(edge, destination["Fn::Join"][1][-1])
    assert group["LogGroupName"].startswith("aws-waf-logs-")
    rules = edge.the("WAFv2::WebACL")
    shown = [rules["VisibilityConfig"], *(rule["VisibilityConfig"] for rule in rules["Rules"])]
    assert not any(visibility["SampledRequestsEnabled"] for visibility in shown)


# --- Load balancers ---------------------------------------------------------------------------------------


def test_public_load_balancer_listens_for_tls_and_rtp_only(edge: Stack) -> None:
    assert set(listeners(edge, "internet-facing")) == {("TLS", 443), ("UDP", 5004)}
    assert set(listeners(edge, "internal")) == {("TCP", contract.GATEWAY_HTTP.number)}


def test_rtp_goes_to_the_vad_fleet(sandbox: Stacks, edge: Stack) -> None:
    (action,) = listeners(edge, "internet-facing")["UDP", 5004]["DefaultActions"]
    export = action["TargetGroupArn"]["Fn::ImportValue"]
    (output,) = [value for value in sandbox["vad"].template["Outputs"].values() if value["Export"]["Name"] == export]
    (targets,) = sandbox["vad"].of_type("ElasticLoadBalancingV2::TargetGroup")
    assert output["Value"] == {"Ref": targets}


def test_the_public_reaches_the_gateways_audio_and_api_gateway_its_sessions(edge: Stack) -> None:
    public = target_of(edge, listeners(edge, "internet-facing")["TLS", 443])
    private = target_of(edge, listeners(edge, "internal")["TCP", contract.GATEWAY_HTTP.number])
    assert (public["Port"], private["Port"]) == (contract.GATEWAY_MEDIA.number, contract.GATEWAY_HTTP.number)
    for targets in (public, private):
        assert (targets["Protocol"], targets["TargetType"]) == ("TCP", "ip")
        assert (targets["HealthCheckProtocol"], targets["HealthCheckPath"]) == ("HTTP", contract.HEALTH_PATH)


def test_tls_is_modern(edge: Stack) -> None:
    listener = listeners(edge, "internet-facing")["TLS", 443]
    assert listener["SslPolicy"] == "ELBSecurityPolicy-TLS13-1-2-Res-2021-06"
    assert listener["Certificates"] == [
        {"CertificateArn": {"Ref": next(iter(edge.of_type("CertificateManager::Certificate")))}}
    ]


def test_a_given_certificate_is_used_as_it_is(unnamed: Stack) -> None:
    assert listeners(unnamed, "internet-facing")["TLS", 443]["Certificates"] == [{"CertificateArn": CERTIFICATE}]
    assert not unnamed.of_type("CertificateManager::Certificate")
    assert not unnamed.of_type("Route53::RecordSet")
    name, _ = balancer(unnamed, "internet-facing")
    assert environment(unnamed)[contract.MEDIA_HOST.name] == {"Fn::GetAtt": [name, "DNSName"]}


@pytest.mark.parametrize("cross_zone", [True, False])
def test_callers_cross_zones_if_the_file_says_so(edge: Stack, tmp_path: Path, cross_zone: bool) -> None:
    stack = edited_sandbox({"aws.edge.cross_zone": True}, tmp_path)["edge"] if cross_zone else edge
    _, public = balancer(stack, "internet-facing")
    assert attributes(public)["load_balancing.cross_zone.enabled"] == str(cross_zone).lower()


def test_production_refuses_to_lose_its_load_balancers(edge: Stack, production: Stack) -> None:
    for stack, protected in ((edge, "false"), (production, "true")):
        for scheme in ("internet-facing", "internal"):
            _, found = balancer(stack, scheme)
            assert attributes(found)["deletion_protection.enabled"] == protected
    assert production.termination_protection


def test_each_load_balancer_has_its_tiers_security_group_and_nothing_opens_it_further(edge: Stack) -> None:
    for scheme, tier in (("internet-facing", "PublicLoadBalancer"), ("internal", "ApiLoadBalancer")):
        _, found = balancer(edge, scheme)
        (group,) = found["SecurityGroups"]
        assert tier in group["Fn::ImportValue"]
    _, internal = balancer(edge, "internal")
    assert internal["EnforceSecurityGroupInboundRulesOnPrivateLinkTraffic"] == "off"
    kinds = {resource["Type"] for resource in edge.template["Resources"].values()}
    assert not {kind for kind in kinds if kind.startswith("AWS::EC2::SecurityGroup")}


def test_the_world_reaches_the_two_public_listeners_and_nothing_else(sandbox: Stacks) -> None:
    open_rules = [
        (rule["IpProtocol"], rule["FromPort"], rule["ToPort"])
        for group in sandbox["network"].properties("EC2::SecurityGroup")
        for rule in group.get("SecurityGroupIngress", [])
        if rule.get("CidrIp") == "0.0.0.0/0"
    ]
    assert sorted(open_rules) == [("tcp", 443, 443), ("udp", 5004, 5004)]


def test_access_logs_are_encrypted_private_and_forgotten(production: Stack) -> None:
    _, public = balancer(production, "internet-facing")
    (bucket,) = production.of_type("S3::Bucket")
    assert attributes(public)["access_logs.s3.enabled"] == "true"
    assert attributes(public)["access_logs.s3.bucket"] == {"Ref": bucket}
    properties = production.the("S3::Bucket")
    assert set(properties["PublicAccessBlockConfiguration"].values()) == {True}
    (encryption,) = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert encryption["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
    (rule,) = properties["LifecycleConfiguration"]["Rules"]
    assert rule["ExpirationInDays"] == 90
    deny, *allow = production.the("S3::BucketPolicy")["PolicyDocument"]["Statement"]
    assert deny["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    for statement in allow:
        assert statement["Principal"] == {"Service": "delivery.logs.amazonaws.com"}
        assert statement["Condition"]["StringEquals"]["aws:SourceAccount"] == {"Ref": "AWS::AccountId"}
    key = production.the("KMS::Key")["KeyPolicy"]["Statement"]
    assert any(statement["Principal"] == {"Service": "delivery.logs.amazonaws.com"} for statement in key)


# --- Names ------------------------------------------------------------------------------------------------


def test_own_names_have_one_certificate_and_lead_to_api_and_audio(edge: Stack) -> None:
    certificate = edge.the("CertificateManager::Certificate")
    names = {certificate["DomainName"], *certificate["SubjectAlternativeNames"]}
    assert names == {"api.voice.example.com", "media.voice.example.com"}
    assert {option["DomainName"]: option["HostedZoneId"] for option in certificate["DomainValidationOptions"]} == (
        dict.fromkeys(names, "Z0123456789EXAMPLE")
    )
    records = {record["Name"]: record["AliasTarget"]["DNSName"] for record in edge.properties("Route53::RecordSet")}
    public, _ = balancer(edge, "internet-facing")
    (domain,) = edge.of_type("ApiGateway::DomainName")
    assert records == {
        "api.voice.example.com": {"Fn::GetAtt": [domain, "RegionalDomainName"]},
        "media.voice.example.com": {"Fn::GetAtt": [public, "DNSName"]},
    }
    assert edge.the("ApiGateway::DomainName")["SecurityPolicy"] == "TLS_1_2"
    mapping = edge.the("ApiGateway::BasePathMapping")
    assert mapping["DomainName"] == {"Ref": domain}
    assert mapping["Stage"] == {"Ref": next(iter(edge.of_type("ApiGateway::Stage")))}
    assert environment(edge)[contract.MEDIA_HOST.name] == "media.voice.example.com"


# --- Gateway service --------------------------------------------------------------------------------------


def test_tasks_are_arm64_in_private_subnets_of_all_zones(edge: Stack) -> None:
    task, service = edge.the("ECS::TaskDefinition"), edge.the("ECS::Service")
    assert task["RuntimePlatform"] == {"CpuArchitecture": "ARM64", "OperatingSystemFamily": "LINUX"}
    assert (task["Cpu"], task["Memory"]) == ("512", "1024")
    assert service["LaunchType"] == "FARGATE"
    network = service["NetworkConfiguration"]["AwsvpcConfiguration"]
    assert network["AssignPublicIp"] == "DISABLED"
    assert len(network["Subnets"]) == 3
    assert all("privateSubnet" in subnet["Fn::ImportValue"] for subnet in network["Subnets"])
    (group,) = network["SecurityGroups"]
    assert "NetworkGateway" in group["Fn::ImportValue"]


def test_container_can_write_nothing_and_is_nobody(edge: Stack) -> None:
    found = container(edge)
    assert found["ReadonlyRootFilesystem"] is True
    assert found["User"] == "65532:65532"
    assert found["LinuxParameters"]["Capabilities"] == {"Drop": ["ALL"]}
    assert not found.get("Privileged")
    assert found["HealthCheck"]["Command"] == ["CMD", contract.HEALTH_COMMAND]


@pytest.mark.parametrize("kind", ["iam", "jwt"])
def test_container_gets_every_variable_of_the_contract_once(by_authorizer: dict[str, Stack], kind: str) -> None:
    found = container(by_authorizer[kind])
    given = [variable["Name"] for variable in (*found["Environment"], *found["Secrets"])]
    assert sorted(given) == sorted(variable.name for variable in ENVIRONMENT[Image.GATEWAY])


def test_secrets_are_references(edge: Stack) -> None:
    secrets = {secret["Name"]: json.dumps(secret["ValueFrom"]) for secret in container(edge)["Secrets"]}
    assert set(secrets) == {contract.VALKEY_PASSWORD.name, contract.TOKEN_KEY.name}
    assert "StoreGatewaySecret" in secrets[contract.VALKEY_PASSWORD.name]
    assert ":password::" in secrets[contract.VALKEY_PASSWORD.name]
    assert json.loads(secrets[contract.TOKEN_KEY.name]) == {"Ref": next(iter(edge.of_type("SecretsManager::Secret")))}


def test_template_holds_no_secret_value(by_authorizer: dict[str, Stack]) -> None:
    for stack in by_authorizer.values():
        secret = stack.the("SecretsManager::Secret")
        assert "SecretString" not in secret
        assert "Fn::GetAtt" in secret["KmsKeyId"]
        assert "{{resolve:" not in json.dumps(stack.template)
        assert "secret" not in json.dumps(stack.template.get("Outputs", {})).lower()


def test_image_is_by_digest(edge: Stack) -> None:
    *registry, digest = container(edge)["Image"]["Fn::Join"][1]
    assert "RegistryGateway" in json.dumps(registry)
    assert digest == f"@sha256:{'1' * 64}"


def test_without_an_image_no_task_is_started(production: Stack, edge: Stack) -> None:
    assert production.the("ECS::Service")["DesiredCount"] == 0
    assert production.the("ApplicationAutoScaling::ScalableTarget")["MinCapacity"] == 0
    # With one, the number belongs to the scaling: a deployment that names it would reset it.
    assert "DesiredCount" not in edge.the("ECS::Service")
    target = edge.the("ApplicationAutoScaling::ScalableTarget")
    assert (target["MinCapacity"], target["MaxCapacity"]) == (1, 6)


def test_service_grows_with_the_open_sockets_of_a_task(edge: Stack) -> None:
    policy = edge.the("ApplicationAutoScaling::ScalingPolicy")["TargetTrackingScalingPolicyConfiguration"]
    metric = policy["CustomizedMetricSpecification"]
    declared = contract.METRICS["OpenSockets"]
    assert (metric["Namespace"], metric["MetricName"]) == (declared.namespace, declared.name)
    assert {d["Name"]: d["Value"] for d in metric["Dimensions"]} == {"Deployment": "sandbox", "Fleet": "gateway"}
    assert {d["Name"] for d in metric["Dimensions"]} == set(declared.dimensions)
    assert metric["Statistic"] == "Average"
    assert policy["TargetValue"] == 1000
    given = environment(edge)
    assert (given["VOICE_DEPLOYMENT"], given["VOICE_FLEET"]) == ("sandbox", "gateway")


def test_a_broken_release_rolls_back(edge: Stack) -> None:
    deployment = edge.the("ECS::Service")["DeploymentConfiguration"]
    assert deployment["DeploymentCircuitBreaker"] == {"Enable": True, "Rollback": True}
    assert deployment["MinimumHealthyPercent"] == 100


def test_a_stopping_task_outlives_the_longest_silence(edge: Stack) -> None:
    idle_s = int(environment(edge)[contract.IDLE_TIMEOUT_S.name])
    drain_s = int(environment(edge)[contract.DRAIN_TIMEOUT_S.name])
    assert idle_s < drain_s < container(edge)["StopTimeout"] <= 120
    for targets in edge.properties("ElasticLoadBalancingV2::TargetGroup"):
        (delay,) = [
            attribute["Value"]
            for attribute in targets["TargetGroupAttributes"]
            if attribute["Key"] == "deregistration_delay.timeout_seconds"
        ]
        assert int(delay) > idle_s


def test_tasks_listen_on_the_ports_that_flows_lead_to(edge: Stack) -> None:
    listening = {mapping["ContainerPort"] for mapping in container(edge)["PortMappings"]}
    assert listening == {flow.port.number for flow in FLOWS if flow.destination is Tier.GATEWAY}
    given = environment(edge)
    assert listening == {int(given[contract.HTTP_PORT.name]), int(given[contract.MEDIA_PORT.name])}


def test_tasks_may_do_nothing_in_aws_and_their_launcher_little(edge: Stack) -> None:
    task = edge.the("ECS::TaskDefinition")
    roles = edge.of_type("IAM::Role")
    assert not roles[task["TaskRoleArn"]["Fn::GetAtt"][0]]["Properties"].keys() & {"Policies", "ManagedPolicyArns"}
    policy = edge.the("IAM::Policy")
    assert policy["Roles"] == [{"Ref": task["ExecutionRoleArn"]["Fn::GetAtt"][0]}]
    for statement in policy["PolicyDocument"]["Statement"]:
        if statement["Resource"] == "*":
            assert statement["Action"] == "ecr:GetAuthorizationToken"
        if statement["Action"] == "kms:Decrypt":
            assert statement["Condition"] == {
                "StringEquals": {"kms:ViaService": "secretsmanager.us-east-1.amazonaws.com"}
            }


# --- Logs -------------------------------------------------------------------------------------------------


def test_logs_are_encrypted_and_kept_as_long_as_the_file_says(production: Stack) -> None:
    groups = production.of_type("Logs::LogGroup").values()
    assert len(groups) == 4
    for group in groups:
        assert group["Properties"]["KmsKeyId"]
        assert group["Properties"]["RetentionInDays"] == 90
        assert group["DeletionPolicy"] == "Retain"
