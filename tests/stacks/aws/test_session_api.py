"""The session API: authorization, integration with the gateway, and redaction."""

import json
import re
from pathlib import Path

import pytest

from tests.nonempty import nonempty
from tests.stacks.aws.edge import balancer, environment, log_group, routes
from tests.synthesized import Stack, edited_sandbox, shipped
from voice_blueprint.contract.environment import JWT_AUDIENCE, JWT_ISSUER
from voice_blueprint.contract.network import GATEWAY_HTTP
from voice_blueprint.contract.session_api import CALLER_HEADER, SESSION_REQUEST_SCHEMA, TOKEN_HEADER

# --- Session API ----------------------------------------------------------------------------------------


def test_api_has_exactly_three_routes(edge: Stack) -> None:
    assert set(routes(edge)) == {
        "POST /v1/sessions",
        "DELETE /v1/sessions/{id}",
        "GET /v1/sessions/{id}/events",
    }


def test_cors_preflight_of_allowed_origins_needs_no_credentials(edge: Stack, tmp_path: Path) -> None:
    with_pages = edited_sandbox({"aws.edge.allowed_origins": ["https://app.example.com"]}, tmp_path)["edge"]
    asked = {name: method for name, method in routes(with_pages).items() if name.startswith("OPTIONS ")}
    assert {name.partition(" ")[2] for name in asked} == {name.partition(" ")[2] for name in routes(edge)}
    assert routes(with_pages).keys() - asked.keys() == routes(edge).keys()
    for method in asked.values():
        assert method["AuthorizationType"] == "NONE"
        assert not method.get("ApiKeyRequired")
        assert method["Integration"]["ConnectionType"] == "VPC_LINK"


def test_api_is_regional_and_only_reachable_by_its_domain_name(edge: Stack, edge_without_domain: Stack) -> None:
    api = edge.only("ApiGateway::RestApi")
    assert api["EndpointConfiguration"]["Types"] == ["REGIONAL"]
    assert api["DisableExecuteApiEndpoint"] is True
    assert not edge_without_domain.only("ApiGateway::RestApi").get("DisableExecuteApiEndpoint")


@pytest.mark.parametrize(
    ("kind", "authorization", "key"),
    [("iam", "AWS_IAM", False), ("jwt", "NONE", False), ("api-key", "NONE", True), ("none", "NONE", False)],
)
def test_opening_a_session_uses_the_configured_authorizer_and_other_routes_its_token(
    by_authorizer: dict[str, Stack], kind: str, authorization: str, key: bool
) -> None:
    for route, method in nonempty(routes(by_authorizer[kind]).items()):
        opens = route == "POST /v1/sessions"
        assert method["AuthorizationType"] == (authorization if opens else "NONE")
        assert bool(method.get("ApiKeyRequired")) is (key and opens)
        assert method.get("RequestParameters", {}).get(f"method.request.header.{TOKEN_HEADER}", False) is not opens


def test_api_keys_have_a_throttled_usage_plan_and_no_value(by_authorizer: dict[str, Stack]) -> None:
    stack = by_authorizer["api-key"]
    plan = stack.only("ApiGateway::UsagePlan")
    assert plan["Throttle"] == {"RateLimit": 200, "BurstLimit": 400}
    assert len(plan["ApiStages"]) == 1
    assert "Value" not in stack.only("ApiGateway::ApiKey")
    assert stack.only("ApiGateway::UsagePlanKey")["KeyId"] == {"Ref": next(iter(stack.of_type("ApiGateway::ApiKey")))}
    assert not by_authorizer["iam"].of_type("ApiGateway::UsagePlan")


def test_the_gateway_has_an_issuer_only_with_jwt(by_authorizer: dict[str, Stack]) -> None:
    for kind, stack in nonempty(by_authorizer.items()):
        given = environment(stack)
        issuer, audience = given[JWT_ISSUER.name], given[JWT_AUDIENCE.name]
        assert (issuer, audience) == (("https://login.callers.dev/", "voice") if kind == "jwt" else ("", ""))


def test_events_stream_for_fifteen_minutes_and_resume(edge: Stack) -> None:
    events = routes(edge)["GET /v1/sessions/{id}/events"]
    assert events["Integration"]["ResponseTransferMode"] == "STREAM"
    assert events["Integration"]["TimeoutInMillis"] == 15 * 60 * 1000
    assert events["RequestParameters"]["method.request.header.Last-Event-ID"] is False
    others = [method for route, method in routes(edge).items() if not route.startswith("GET")]
    assert all(method["Integration"].get("ResponseTransferMode") in {None, "BUFFERED"} for method in others)


def test_requests_reach_the_gateway_through_the_vpc_link(edge: Stack) -> None:
    internal, _ = balancer(edge, "internal")
    assert edge.only("ApiGateway::VpcLink")["TargetArns"] == [{"Ref": internal}]
    for route, method in routes(edge).items():
        verb, path = route.split()
        integration = method["Integration"]
        assert integration["Type"] == "HTTP_PROXY"
        assert integration["IntegrationHttpMethod"] == verb
        assert integration["ConnectionType"] == "VPC_LINK"
        assert integration["ConnectionId"] == {"Ref": next(iter(edge.of_type("ApiGateway::VpcLink")))}
        scheme, host, rest = integration["Uri"]["Fn::Join"][1]
        assert (scheme, host["Fn::GetAtt"]) == ("http://", [internal, "DNSName"])
        assert rest == f":{GATEWAY_HTTP.number}{path}"
        of_session = {"integration.request.path.id": "method.request.path.id"} if "{id}" in path else {}
        caller = {f"integration.request.header.{CALLER_HEADER}": "context.identity.userArn"}
        assert integration["RequestParameters"] == (of_session or caller)


@pytest.mark.parametrize(
    ("kind", "caller"),
    [("api-key", "context.identity.apiKeyId"), ("none", "context.identity.sourceIp"), ("jwt", None)],
)
def test_gateway_receives_the_identity_of_the_caller(
    by_authorizer: dict[str, Stack], kind: str, caller: str | None
) -> None:
    header = f"integration.request.header.{CALLER_HEADER}"
    opening = routes(by_authorizer[kind])["POST /v1/sessions"]
    assert opening["Integration"].get("RequestParameters", {}).get(header) == caller


def test_requests_are_validated(edge: Stack) -> None:
    validator = edge.only("ApiGateway::RequestValidator")
    assert validator["ValidateRequestBody"] is True
    assert validator["ValidateRequestParameters"] is True
    for route, method in routes(edge).items():
        assert method["RequestValidatorId"]
        # Methods of a session require its token in a header, since URLs are logged.
        needs_token = method.get("RequestParameters", {}).get(f"method.request.header.{TOKEN_HEADER}", False)
        assert needs_token is ("{id}" in route)
    model = routes(edge)["POST /v1/sessions"]["RequestModels"]["application/json"]["Ref"]
    schema = edge.of_type("ApiGateway::Model")[model]["Properties"]["Schema"]
    assert schema["properties"] == SESSION_REQUEST_SCHEMA["properties"]
    assert schema["additionalProperties"] is False


def test_a_changed_model_is_deployed(edge: Stack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(SESSION_REQUEST_SCHEMA, "required", [])
    changed = edited_sandbox({}, tmp_path)["edge"]
    assert set(changed.of_type("ApiGateway::Deployment")) != set(edge.of_type("ApiGateway::Deployment"))


def test_errors_are_json_and_throttling_has_retry_after(edge: Stack) -> None:
    answers = {answer["ResponseType"]: answer for answer in edge.properties("ApiGateway::GatewayResponse")}
    assert {"THROTTLED", "UNAUTHORIZED", "ACCESS_DENIED", "BAD_REQUEST_BODY"} <= set(answers)
    assert answers["THROTTLED"]["StatusCode"] == "429"
    assert answers["THROTTLED"]["ResponseParameters"] == {"gatewayresponse.header.Retry-After": "'1'"}
    for answer in answers.values():
        # API Gateway quotes messageString itself.
        body = answer["ResponseTemplates"]["application/json"].replace("$context.error.messageString", '"refused"')
        assert json.loads(body)["error"] == "refused"
        # Body validation errors are in a separate variable.
        wrong = "validationErrorString" if answer["ResponseType"] == "BAD_REQUEST_BODY" else "responseType"
        assert json.loads(body)["detail"] == f"$context.error.{wrong}"
        assert not any("Access-Control" in name for name in answer.get("ResponseParameters", {}))


@pytest.mark.parametrize(
    ("origins", "named"), [(["https://a.test"], "'https://a.test'"), (["https://a.test", "https://b.test"], "'*'")]
)
def test_error_responses_have_cors_headers(origins: list[str], named: str, tmp_path: Path) -> None:
    edge = edited_sandbox({"aws.edge.allowed_origins": origins}, tmp_path)["edge"]
    answers = {answer["ResponseType"]: answer for answer in edge.properties("ApiGateway::GatewayResponse")}
    assert {"DEFAULT_4XX", "DEFAULT_5XX"} < set(answers)
    for answer in answers.values():
        assert answer["ResponseParameters"]["gatewayresponse.header.Access-Control-Allow-Origin"] == named
        exposed = answer["ResponseParameters"]["gatewayresponse.header.Access-Control-Expose-Headers"]
        assert exposed == "'Retry-After'"


def test_stage_is_throttled_and_traced_without_logging_payloads(edge: Stack) -> None:
    stage = edge.only("ApiGateway::Stage")
    (settings,) = stage["MethodSettings"]
    assert (settings["HttpMethod"], settings["ResourcePath"]) == ("*", "/*")
    assert (settings["ThrottlingRateLimit"], settings["ThrottlingBurstLimit"]) == (200, 400)
    assert settings["LoggingLevel"] == "ERROR"
    assert settings["DataTraceEnabled"] is False
    assert stage["TracingEnabled"] is True


def test_access_log_contains_no_credential_query_or_session(edge: Stack) -> None:
    logged = edge.only("ApiGateway::Stage")["AccessLogSetting"]
    fields = set(json.loads(logged["Format"]).values())
    assert "$context.requestId" in fields
    secret = re.compile(r"header|querystring|authorizer|apiKey$|\$context\.path$|accessKey|overrides", re.IGNORECASE)
    assert not [field for field in fields if secret.search(field)]
    assert log_group(edge, logged["DestinationArn"])["KmsKeyId"]


def test_execution_log_is_created_before_api_gateway_would_create_it(edge: Stack) -> None:
    (stage,) = edge.of_type("ApiGateway::Stage").values()
    api = next(iter(edge.of_type("ApiGateway::RestApi")))
    (name,) = [
        name
        for name, group in edge.of_type("Logs::LogGroup").items()
        if group["Properties"]["LogGroupName"]
        == {"Fn::Join": ["", ["API-Gateway-Execution-Logs_", {"Ref": api}, "/live"]]}
    ]
    assert name in stage["DependsOn"]


# --- Web application firewall ---------------------------------------------------------------------------


def test_firewall_rate_limits_addresses_and_blocks_common_attacks(edge: Stack) -> None:
    acl = edge.only("WAFv2::WebACL")
    rate, *managed = sorted(acl["Rules"], key=lambda rule: rule["Priority"])
    assert rate["Action"] == {"Block": {}}
    assert rate["Statement"]["RateBasedStatement"] == {
        "AggregateKeyType": "IP",
        "Limit": 10_000,
        "EvaluationWindowSec": 300,
    }
    assert [rule["Statement"]["ManagedRuleGroupStatement"]["Name"] for rule in managed] == [
        "AWSManagedRulesCommonRuleSet",
        "AWSManagedRulesKnownBadInputsRuleSet",
    ]
    assert all(rule["OverrideAction"] == {"None": {}} for rule in managed)


def test_firewall_protects_the_stage(edge: Stack) -> None:
    association = edge.only("WAFv2::WebACLAssociation")
    parts = association["ResourceArn"]["Fn::Join"][1]
    assert {"Ref": next(iter(edge.of_type("ApiGateway::RestApi")))} in parts
    assert {"Ref": next(iter(edge.of_type("ApiGateway::Stage")))} in parts


def test_firewall_log_is_redacted(edge: Stack) -> None:
    logging = edge.only("WAFv2::LoggingConfiguration")
    headers = {field["SingleHeader"]["Name"] for field in logging["RedactedFields"] if "SingleHeader" in field}
    assert headers == {"authorization", "x-api-key", TOKEN_HEADER.lower()}
    assert {"QueryString": {}} in logging["RedactedFields"]
    (destination,) = logging["LogDestinationConfigs"]
    group = log_group(edge, destination["Fn::Join"][1][-1])
    assert group["LogGroupName"].startswith("aws-waf-logs-")
    rules = edge.only("WAFv2::WebACL")
    shown = [rules["VisibilityConfig"], *(rule["VisibilityConfig"] for rule in rules["Rules"])]
    assert not any(visibility["SampledRequestsEnabled"] for visibility in shown)


@pytest.mark.parametrize("name", ["production-us-east-1", "sandbox", "small"])
def test_the_role_of_api_logs_outlives_the_deployment(name: str) -> None:
    """It is one setting for the account and region, so other deployments may use it, even after a failed create."""
    edge = shipped(name)["edge"]
    (account,) = edge.of_type("ApiGateway::Account").values()
    role = edge.of_type("IAM::Role")[account["Properties"]["CloudWatchRoleArn"]["Fn::GetAtt"][0]]
    for resource in (role, account):
        assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == ("Retain", "Retain")
    assert "RoleName" not in role["Properties"], "a second create would conflict with the retained role"
