"""The session API: authorization of sessions, and event streams."""

import json

from aws_cdk import CfnOutput, RemovalPolicy, Stack
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_iam as iam
from constructs import Construct

from voice_blueprint.contract import session_api
from voice_blueprint.contract.session_api import EXPOSED_HEADERS, LAST_EVENT_ID_HEADER, TOKEN_HEADER, JsonSchema
from voice_constructs.aws.acknowledge import acknowledge
from voice_constructs.aws.api_link import ApiLink
from voice_constructs.aws.domain import AnyRegionDomain, EdgeDomain
from voice_constructs.aws.edge import EdgeContext
from voice_constructs.aws.pseudo import PARTITION, REGION
from voice_constructs.aws.web_acl import LOG_GROUP_PREFIX, WebAcl

STAGE_NAME = "live"
JSON_MEDIA_TYPE = "application/json"

ACCESS_LOG_FIELDS = {
    "requestId": "$context.requestId",
    "time": "$context.requestTimeEpoch",
    "address": "$context.identity.sourceIp",
    "caller": "$context.identity.userArn",
    "apiKeyId": "$context.identity.apiKeyId",
    "method": "$context.httpMethod",
    "route": "$context.resourcePath",
    "status": "$context.status",
    "latencyMs": "$context.responseLatency",
    "integrationStatus": "$context.integration.status",
    "integrationLatencyMs": "$context.integration.latency",
    "responseBytes": "$context.responseLength",
    "error": "$context.error.message",
    "waf": "$context.waf.status",
}
"""Fields of the access log. It contains no headers, query strings or session ids: ``resourcePath`` is the pattern of
the route, and ``apiKeyId`` is not the key."""

CALLER_VARIABLE_BY_AUTHORIZER = {
    "api-key": "context.identity.apiKeyId",
    "iam": "context.identity.userArn",
    "none": "context.identity.sourceIp",
}
"""Variable of API Gateway that identifies a caller, by kind of authorizer. The gateway limits each caller. With a JWT,
the token identifies the caller."""


class SessionApi(Construct):
    """A Regional REST API on the gateway service.

    The endpoint is Regional, since an edge-optimized endpoint closes a stream after 30 s without data. The API is a
    REST API, since HTTP APIs do not stream. The JWT authorizers of REST APIs are Lambda functions or Cognito user
    pools, so with ``jwt`` the gateway verifies callers' tokens with the issuer's keys.

    The construct sets API Gateway's log role, which applies to all APIs of an account and region. Without it, no stage
    can write logs. The role has the permissions of AWS's managed policy, so other APIs can still log. It is retained
    when the stack is deleted, and when the first creation of the stack fails.

    Attributes:
        rest_api: The API.
        stage: The only stage of the API.
        link: The connection to the gateway service.
    """

    def __init__(self, scope: Construct, id_: str, *, context: EdgeContext, domain: EdgeDomain | None) -> None:
        super().__init__(scope, id_)
        self._context = context
        self._name = f"{context.deployment.name}-sessions"
        self.link = ApiLink(self, "Link", context=context)
        self.rest_api = self._build_rest_api(domain)
        self.stage = self.rest_api.deployment_stage
        self._build_execution_log()
        self._build_routes()
        self._build_gateway_responses()
        self._build_web_acl()
        self._build_api_keys()
        self._build_outputs(domain)
        if domain is not None:
            self._build_custom_domain(domain)
            if shared := context.deployment.shared_domain:
                region = context.deployment.aws.region
                self._build_custom_domain(
                    AnyRegionDomain(self, "AnyRegion", shared=shared, region_domain=domain.domain, region=region)
                )

    def _build_rest_api(self, domain: EdgeDomain | None) -> apigateway.RestApi:
        throttle = self._context.settings.throttle
        access_log = self._context.create_log_group(
            self, "AccessLog", f"/voice/{self._context.deployment.name}/api-access"
        )
        api = apigateway.RestApi(
            self,
            "Api",
            rest_api_name=self._name,
            description="Opens, follows and closes sessions",
            endpoint_types=[apigateway.EndpointType.REGIONAL],
            # If there is a domain, callers use it; the default endpoint would be a second entry point.
            disable_execute_api_endpoint=domain is not None,
            cloud_watch_role=True,
            # The role is a setting of the account and region; without it, APIs of other deployments could not write
            # logs. Even a failed creation changes the setting. The role has no fixed name, since the retained role
            # would then block the next creation.
            cloud_watch_role_removal_policy=RemovalPolicy.RETAIN,
            deploy_options=apigateway.StageOptions(
                stage_name=STAGE_NAME,
                access_log_destination=apigateway.LogGroupLogDestination(access_log),
                access_log_format=apigateway.AccessLogFormat.custom(json.dumps(ACCESS_LOG_FIELDS)),
                logging_level=apigateway.MethodLoggingLevel.ERROR,
                data_trace_enabled=False,
                tracing_enabled=True,
                throttling_rate_limit=throttle.requests_per_s,
                throttling_burst_limit=throttle.burst,
            ),
        )
        # The CDK's own output contains the default endpoint even if that endpoint is disabled.
        api.node.try_remove_child("Endpoint")
        acknowledge(
            api,
            "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/"
            "AmazonAPIGatewayPushToCloudWatchLogs]",
            "The role applies to every API of the account, and API Gateway requires this policy",
        )
        return api

    def _build_outputs(self, domain: EdgeDomain | None) -> None:
        """Add an output with the API's address and, for IAM, an output with the policy for callers."""
        address = f"https://{domain.api_host}" if domain else self.stage.url_for_path("/")
        CfnOutput(self, "Address", value=address, description="Session API").override_logical_id("ApiAddress")
        if self._context.settings.authorizer.kind == "iam":
            opening = [self.rest_api.arn_for_execute_api("POST", session_api.SESSIONS_PATH, STAGE_NAME)]
            if self._context.settings.archive:
                transcript_path = session_api.TRANSCRIPT_PATH.format(id="*")
                opening += [
                    self.rest_api.arn_for_execute_api(each, transcript_path, STAGE_NAME) for each in ("GET", "DELETE")
                ]
            policy = iam.ManagedPolicy(
                self,
                "Callers",
                description=f"Opens sessions of {self._context.deployment.name}",
                statements=[iam.PolicyStatement(actions=["execute-api:Invoke"], resources=opening)],
            )
            if self._context.settings.archive:
                self._acknowledge_transcript_access(policy)
            CfnOutput(
                self,
                "CallersPolicy",
                value=policy.managed_policy_arn,
                description="Attach to principals that open sessions",
            ).override_logical_id("CallersPolicy")

    def _acknowledge_transcript_access(self, policy: iam.ManagedPolicy) -> None:
        api_resource = self.rest_api.node.default_child
        assert isinstance(api_resource, apigateway.CfnRestApi)  # noqa: S101  the L2's own resource
        stack = Stack.of(self)
        account = self._context.deployment.aws.account or "<AWS::AccountId>"
        for method in ("GET", "DELETE"):
            path = f"{STAGE_NAME}/{method}{session_api.TRANSCRIPT_PATH.format(id='*')}"
            api_id = stack.get_logical_id(api_resource)
            method_arn = f"arn:<AWS::Partition>:execute-api:{stack.region}:{account}:<{api_id}>/{path}"
            acknowledge(
                policy,
                f"AwsSolutions-IAM5[Resource::{method_arn}]",
                "The gateway returns a transcript only to the caller that owns it",
            )

    def _build_execution_log(self) -> None:
        # API Gateway would create the group itself, unencrypted and without expiry.
        log = self._context.create_log_group(
            self, "ExecutionLog", f"API-Gateway-Execution-Logs_{self.rest_api.rest_api_id}/{STAGE_NAME}"
        )
        self.stage.node.add_dependency(log)

    def _build_routes(self) -> None:
        self._validator = self.rest_api.add_request_validator(
            "Validator", validate_request_body=True, validate_request_parameters=True
        )
        error = self._add_model("Error", session_api.ERROR_SCHEMA)
        sessions = self.rest_api.root.resource_for_path(session_api.SESSIONS_PATH)
        self._add_route(
            sessions,
            "POST",
            responses={"201": self._add_model("Session", session_api.SESSION_SCHEMA), "400": error, "503": error},
            request=self._add_model("SessionRequest", session_api.SESSION_REQUEST_SCHEMA),
        )
        session_parameters = {f"method.request.header.{TOKEN_HEADER}": True, "method.request.path.id": True}
        session = sessions.add_resource("{id}")
        self._add_route(session, "DELETE", responses={"204": None, "404": error}, token=session_parameters)
        events = session.add_resource("events")
        self._add_route(
            events,
            "GET",
            responses={"200": None, "404": error},
            token={**session_parameters, f"method.request.header.{LAST_EVENT_ID_HEADER}": False},
            stream=True,
        )
        resources = [sessions, session, events]
        if self._context.settings.archive:
            transcript = session.add_resource("transcript")
            for method, answers in (("GET", {"200": None, "404": error}), ("DELETE", {"204": None, "404": error})):
                self._add_route(transcript, method, responses=answers, parameters={"method.request.path.id": True})
            resources.append(transcript)
        if self._context.settings.allowed_origins:
            for resource in resources:
                self._add_preflight(resource)

    def _add_preflight(self, resource: apigateway.IResource) -> None:
        """Add the CORS preflight for a route, which requires no authorization."""
        method = resource.add_method(
            "OPTIONS",
            self.link.build_integration("OPTIONS", resource.path, caller=None),
            request_parameters={"method.request.path.id": True} if "{id}" in resource.path else None,
        )
        for rule in ("AwsSolutions-APIG4", "AwsSolutions-COG4"):
            acknowledge(
                method, rule, "Browsers send preflight requests without credentials; the response is the same for all"
            )

    def _add_model(self, name: str, schema: JsonSchema) -> apigateway.IModel:
        model = apigateway.CfnModel(
            self,
            f"{name}Model",
            rest_api_id=self.rest_api.rest_api_id,
            content_type=JSON_MEDIA_TYPE,
            name=name,
            schema={"$schema": "http://json-schema.org/draft-04/schema#", "title": name, **schema},
        )
        deployment = self.rest_api.latest_deployment
        assert deployment is not None  # noqa: S101  `deploy` is on
        # A stage serves a snapshot, so a changed model requires a new deployment.
        deployment.add_to_logical_id(schema)
        return apigateway.Model.from_model_name(self, name, model.ref)

    def _add_route(
        self,
        resource: apigateway.IResource,
        method: str,
        *,
        responses: dict[str, apigateway.IModel | None],
        request: apigateway.IModel | None = None,
        token: dict[str, bool] | None = None,
        parameters: dict[str, bool] | None = None,
        stream: bool = False,
    ) -> None:
        """Add a method.

        Args:
            token: Parameters of a method that requires only a session token, since web pages have no other credentials.
                The gateway verifies the token. If not set, callers must authenticate.
            parameters: Parameters of a method for authenticated callers.
        """
        kind = "session" if token else self._context.settings.authorizer.kind
        cfn_method = resource.add_method(
            method,
            self.link.build_integration(
                method, resource.path, caller=CALLER_VARIABLE_BY_AUTHORIZER.get(kind), stream=stream
            ),
            authorization_type=apigateway.AuthorizationType.IAM if kind == "iam" else apigateway.AuthorizationType.NONE,
            api_key_required=kind == "api-key",
            request_validator=self._validator,
            request_models={JSON_MEDIA_TYPE: request} if request else None,
            request_parameters=token or parameters,
            method_responses=[
                apigateway.MethodResponse(
                    status_code=status, response_models={JSON_MEDIA_TYPE: model} if model else None
                )
                for status, model in responses.items()
            ],
        )
        acknowledge(
            cfn_method, "AwsSolutions-COG4", "Callers are services and users of the operator, not of a user pool"
        )
        reasons = {
            "session": "The gateway service verifies the session's token, which it issued to the caller that opened "
            "the session",
            "jwt": "The gateway service verifies the caller's token: a REST API can only do so with a Lambda function",
            "api-key": "The method requires an API key",
            "none": "The deployment file configures it; the check edge-authorizer-in-production rejects it in "
            "production",
        }
        if kind in reasons:
            acknowledge(cfn_method, "AwsSolutions-APIG4", reasons[kind])

    def _build_gateway_responses(self) -> None:
        types = apigateway.ResponseType
        origins = self._context.settings.allowed_origins
        # Web pages can only read responses that allow their origin, and a response that API Gateway itself generates
        # can allow only one. If several origins are configured, such a response allows every origin, since it discloses
        # nothing about a session. Responses of the gateway allow the page's own origin.
        readable = {
            "Access-Control-Allow-Origin": f"'{origins[0] if len(origins) == 1 else '*'}'",
            "Access-Control-Expose-Headers": f"'{', '.join(EXPOSED_HEADERS)}'",
        }
        invalid = types.BAD_REQUEST_BODY
        for name, type_, status, headers in (
            ("Throttled", types.THROTTLED, "429", {"Retry-After": "'1'"}),
            ("Unauthorized", types.UNAUTHORIZED, "401", {}),
            ("Denied", types.ACCESS_DENIED, "403", {}),
            ("Unsigned", types.MISSING_AUTHENTICATION_TOKEN, "403", {}),
            ("Keyless", types.INVALID_API_KEY, "403", {}),
            ("Invalid", invalid, "400", {}),
            ("Incomplete", types.BAD_REQUEST_PARAMETERS, "400", {}),
            ("Other", types.DEFAULT_4_XX, None, {}),
            ("Failed", types.DEFAULT_5_XX, None, {}),
        ):
            detail = "validationErrorString" if type_ is invalid else "responseType"
            self.rest_api.add_gateway_response(
                name,
                type=type_,
                status_code=status,
                response_headers=headers | (readable if origins else {}),
                templates={
                    JSON_MEDIA_TYPE: f'{{"error": $context.error.messageString, "detail": "$context.error.{detail}"}}'
                },
            )

    def _build_web_acl(self) -> None:
        name = self._context.deployment.name
        WebAcl(
            self,
            "WebAcl",
            name=name,
            requests_per_address_5_min=self._context.settings.throttle.requests_per_address_5_min,
            log_group=self._context.create_log_group(self, "WebAclLog", f"{LOG_GROUP_PREFIX}{name}"),
            resource_arn=(
                f"arn:{PARTITION}:apigateway:{REGION}::/restapis/{self.rest_api.rest_api_id}"
                f"/stages/{self.stage.stage_name}"
            ),
        )

    def _build_api_keys(self) -> None:
        if self._context.settings.authorizer.kind != "api-key":
            return
        throttle = self._context.settings.throttle
        # API Gateway generates the key's value, so the template does not contain it.
        key = self.rest_api.add_api_key("Key", description=f"Callers of {self._name}")
        plan = self.rest_api.add_usage_plan(
            "Plan",
            throttle=apigateway.ThrottleSettings(rate_limit=throttle.requests_per_s, burst_limit=throttle.burst),
            api_stages=[apigateway.UsagePlanPerApiStage(api=self.rest_api, stage=self.stage)],
        )
        plan.add_api_key(key)

    def _build_custom_domain(self, domain: EdgeDomain | AnyRegionDomain) -> None:
        scope = self if isinstance(domain, EdgeDomain) else domain
        name = apigateway.CfnDomainName(
            scope,
            "Domain",
            domain_name=domain.api_host,
            endpoint_configuration=apigateway.CfnDomainName.EndpointConfigurationProperty(types=["REGIONAL"]),
            regional_certificate_arn=domain.certificate_arn,
            security_policy="TLS_1_2",
        )
        apigateway.CfnBasePathMapping(
            scope,
            "Mapping",
            domain_name=name.ref,
            rest_api_id=self.rest_api.rest_api_id,
            stage=self.stage.stage_name,
        )
        domain.add_alias_record(
            domain.api_host, dns_name=name.attr_regional_domain_name, zone_id=name.attr_regional_hosted_zone_id
        )
