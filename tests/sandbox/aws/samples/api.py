"""Sample of the REST API."""

from __future__ import annotations

from tests.sandbox.aws.samples.parts import POLICY, TAGS, Resources, att, ref, resource, vpc


def api() -> Resources:
    """Return a REST API with a VPC link, limits and a firewall."""
    place = {"RestApiId": ref("Api"), "ResourceId": ref("Sessions")}
    rule = {"CloudWatchMetricsEnabled": True, "SampledRequestsEnabled": True, "MetricName": "rate"}
    return vpc() | {
        "Balancer": resource(
            "ElasticLoadBalancingV2::LoadBalancer", Type="network", Scheme="internal", Subnets=[ref("SubnetA")]
        ),
        "Link": resource("ApiGateway::VpcLink", Name="voice", TargetArns=[ref("Balancer")]),
        "Api": resource(
            "ApiGateway::RestApi",
            Name="voice",
            EndpointConfiguration={"Types": ["REGIONAL"]},
            Tags=TAGS,
        ),
        "Sessions": resource(
            "ApiGateway::Resource", RestApiId=ref("Api"), ParentId=att("Api", "RootResourceId"), PathPart="sessions"
        ),
        "Body": resource(
            "ApiGateway::Model",
            RestApiId=ref("Api"),
            Name="Session",
            Schema={"type": "object", "required": ["language"]},
        ),
        "Checked": resource("ApiGateway::RequestValidator", RestApiId=ref("Api"), Name="b", ValidateRequestBody=True),
        "Open": resource(
            "ApiGateway::Method",
            **place,
            HttpMethod="POST",
            AuthorizationType="NONE",
            ApiKeyRequired=True,
            RequestModels={"application/json": ref("Body")},
            RequestValidatorId=ref("Checked"),
            MethodResponses=[{"StatusCode": "200"}],
            Integration={
                "Type": "HTTP_PROXY",
                "IntegrationHttpMethod": "POST",
                "Uri": {"Fn::Sub": "http://${Balancer.DNSName}/v1/sessions"},
                "ConnectionType": "VPC_LINK",
                "ConnectionId": ref("Link"),
                "ResponseTransferMode": "STREAM",
                "TimeoutInMillis": 900000,
                "IntegrationResponses": [{"StatusCode": "200"}],
            },
        ),
        "Busy": resource(
            "ApiGateway::GatewayResponse", RestApiId=ref("Api"), ResponseType="THROTTLED", StatusCode="429"
        ),
        "Deployment": resource("ApiGateway::Deployment", ["Open"], RestApiId=ref("Api")),
        "Stage": resource(
            "ApiGateway::Stage",
            RestApiId=ref("Api"),
            DeploymentId=ref("Deployment"),
            StageName="v1",
            TracingEnabled=True,
            AccessLogSetting={"DestinationArn": att("Access", "Arn"), "Format": "$context.requestId"},
            MethodSettings=[
                {
                    "ResourcePath": "/*",
                    "HttpMethod": "*",
                    "ThrottlingRateLimit": 100.5,
                    "ThrottlingBurstLimit": 50,
                    "MetricsEnabled": True,
                    "LoggingLevel": "INFO",
                },
                {"ResourcePath": "/sessions", "HttpMethod": "POST", "ThrottlingBurstLimit": 5},
            ],
        ),
        "Access": resource("Logs::LogGroup", RetentionInDays=7),
        "LogRole": resource("IAM::Role", AssumeRolePolicyDocument=POLICY),
        "Account": resource("ApiGateway::Account", CloudWatchRoleArn=att("LogRole", "Arn")),
        "Domain": resource(
            "ApiGateway::DomainName",
            DomainName="api.example.com",
            RegionalCertificateArn="arn:aws:acm:us-east-1:123456789012:certificate/x",
            EndpointConfiguration={"Types": ["REGIONAL"]},
            SecurityPolicy="TLS_1_2",
        ),
        "Mapping": resource(
            "ApiGateway::BasePathMapping",
            ["Stage"],
            DomainName=ref("Domain"),
            RestApiId=ref("Api"),
            Stage="v1",
            BasePath="voice",
        ),
        "Acl": resource(
            "WAFv2::WebACL",
            Scope="REGIONAL",
            DefaultAction={"Allow": {}},
            VisibilityConfig=rule,
            Rules=[
                {
                    "Name": "rate",
                    "Priority": 0,
                    "Action": {"Block": {}},
                    "Statement": {"RateBasedStatement": {"Limit": 2000, "AggregateKeyType": "IP"}},
                    "VisibilityConfig": rule,
                },
            ],
        ),
        "Protection": resource(
            "WAFv2::WebACLAssociation",
            ["Stage"],
            WebACLArn=att("Acl", "Arn"),
            ResourceArn={"Fn::Sub": "arn:aws:apigateway:${AWS::Region}::/restapis/${Api}/stages/v1"},
        ),
        "WafLog": resource("Logs::LogGroup", LogGroupName="aws-waf-logs-voice"),
        "AclLog": resource(
            "WAFv2::LoggingConfiguration",
            ResourceArn=att("Acl", "Arn"),
            LogDestinationConfigs=[att("WafLog", "Arn")],
        ),
    }
