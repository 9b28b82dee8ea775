"""Load balancers, the gateway service and the REST API."""

from __future__ import annotations

import json
from typing import Any

from tests.sandbox.aws.samples import ZONE, api, att, balancer, gateway
from tests.sandbox.aws.stacks import Deployed


def load_balancer(stack: Deployed, name: str = "Balancer") -> dict[str, Any]:
    found = stack.client("elbv2").describe_load_balancers(LoadBalancerArns=[stack[name]])
    shown: dict[str, Any] = found["LoadBalancers"][0]
    return shown


def test_a_network_load_balancer_has_its_configured_attributes(stack: Deployed) -> None:
    names = ("DNSName", "LoadBalancerFullName", "CanonicalHostedZoneID")
    stack.create(
        balancer(),
        Outputs={name: {"Value": att("Balancer", name)} for name in names}
        | {"Group": {"Value": att("Audio", "TargetGroupFullName")}},
    )
    shown = load_balancer(stack)
    assert (shown["Type"], shown["Scheme"]) == ("network", "internet-facing")
    assert shown["SecurityGroups"] == [stack["Group"]]
    assert stack.outputs["LoadBalancerFullName"].startswith(f"net/{shown['LoadBalancerName']}/")
    assert stack.outputs["DNSName"] == shown["DNSName"]
    assert stack.outputs["Group"].startswith("targetgroup/")
    elbv2 = stack.client("elbv2")
    listeners = elbv2.describe_listeners(LoadBalancerArn=stack["Balancer"])["Listeners"]
    assert {(item["Protocol"], item["Port"]): item.get("SslPolicy") or None for item in listeners} == {
        ("UDP", 5004): None,
        ("TLS", 443): "ELBSecurityPolicy-TLS13-1-2-2021-06",
    }
    attributes = elbv2.describe_load_balancer_attributes(LoadBalancerArn=stack["Balancer"])["Attributes"]
    assert {"Key": "load_balancing.cross_zone.enabled", "Value": "true"} in attributes
    assert load_balancer(stack, "Inner")["Type"] == "application"


def test_target_groups_check_health_as_configured_and_change_in_place(stack: Deployed) -> None:
    template = balancer()
    stack.create(template)
    arn = stack["Audio"]
    template["Audio"]["Properties"] |= {"HealthCheckPath": "/ready", "HealthyThresholdCount": 2}
    template["Audio"]["Properties"]["TargetGroupAttributes"][0]["Value"] = "10"
    template["Balancer"]["Properties"]["LoadBalancerAttributes"][0]["Value"] = "false"
    template["Record"]["Properties"]["TTL"] = "30"
    stack.update(template)
    elbv2 = stack.client("elbv2")
    (shown,) = elbv2.describe_target_groups(TargetGroupArns=[arn])["TargetGroups"]
    assert (shown["Protocol"], shown["HealthCheckProtocol"], shown["HealthCheckPath"]) == ("UDP", "HTTP", "/ready")
    attributes = elbv2.describe_target_group_attributes(TargetGroupArn=arn)["Attributes"]
    assert {"Key": "deregistration_delay.timeout_seconds", "Value": "10"} in attributes
    records = stack.client("route53").list_resource_record_sets(HostedZoneId=ZONE)["ResourceRecordSets"]
    assert {item["Name"]: item["TTL"] for item in records if item["Type"] == "CNAME"} == {"audio.example.com.": 30}


def test_a_record_redirects_by_its_health_check_which_changes_in_place(stack: Deployed) -> None:
    template = balancer()
    stack.create(template)
    route53, check = stack.client("route53"), stack["Check"]
    template["Check"]["Properties"]["HealthCheckConfig"]["FailureThreshold"] = 2
    stack.update(template)
    config = route53.get_health_check(HealthCheckId=check)["HealthCheck"]["HealthCheckConfig"]
    asked = [config[key] for key in ("FullyQualifiedDomainName", "ResourcePath", "RequestInterval", "FailureThreshold")]
    assert asked == ["media.example.com", "/healthz", 10, 2]
    records = route53.list_resource_record_sets(HostedZoneId=ZONE)["ResourceRecordSets"]
    (near,) = (item for item in records if item["Name"] == "any.example.com.")
    assert (near["SetIdentifier"], near["Region"], near["HealthCheckId"]) == ("us-east-1", "us-east-1", check)
    template["Near"]["Properties"]["SetIdentifier"] = "nearest"
    stack.update(template)
    records = route53.list_resource_record_sets(HostedZoneId=ZONE)["ResourceRecordSets"]
    assert [item["SetIdentifier"] for item in records if item["Name"] == "any.example.com."] == ["nearest"]
    stack.delete()
    assert not route53.list_health_checks()["HealthChecks"]


def test_a_protected_load_balancer_fails_the_deletion(stack: Deployed) -> None:
    template = balancer()
    attribute = template["Balancer"]["Properties"]["LoadBalancerAttributes"]
    attribute.append({"Key": "deletion_protection.enabled", "Value": "true"})
    stack.create(template)
    stack.cloudformation.delete_stack(StackName=stack.name)
    assert stack.status == "DELETE_FAILED"
    assert any("deletion protection is enabled" in reason for reason in stack.reasons)
    stack.client("elbv2").modify_load_balancer_attributes(
        LoadBalancerArn=stack["Balancer"], Attributes=[{"Key": "deletion_protection.enabled", "Value": "false"}]
    )


def test_no_load_balancer_resource_remains(stack: Deployed) -> None:
    stack.create(balancer())
    stack.delete()
    elbv2 = stack.client("elbv2")
    assert not elbv2.describe_load_balancers()["LoadBalancers"]
    assert not elbv2.describe_target_groups()["TargetGroups"]
    records = stack.client("route53").list_resource_record_sets(HostedZoneId=ZONE)["ResourceRecordSets"]
    assert {item["Type"] for item in records} == {"NS", "SOA"}
    assert not stack.client("acm").list_certificates()["CertificateSummaryList"]


def service(stack: Deployed) -> dict[str, Any]:
    found = stack.client("ecs").describe_services(cluster=stack["Cluster"], services=[stack["Service"]])
    shown: dict[str, Any] = found["services"][0]
    return shown


def test_the_gateway_service_keeps_its_settings_and_is_stable(stack: Deployed) -> None:
    stack.create(gateway())
    shown = service(stack)
    assert (shown["launchType"], shown["desiredCount"], shown["runningCount"]) == ("FARGATE", 2, 2)
    assert shown["deploymentConfiguration"]["deploymentCircuitBreaker"] == {"enable": True, "rollback": True}
    assert shown["healthCheckGracePeriodSeconds"] == 60
    assert shown["networkConfiguration"]["awsvpcConfiguration"]["securityGroups"] == [stack["Group"]]
    ecs = stack.client("ecs")
    task = ecs.describe_task_definition(taskDefinition=stack["Task"])["taskDefinition"]
    assert task["runtimePlatform"]["cpuArchitecture"] == "ARM64"
    assert task["containerDefinitions"][0]["readonlyRootFilesystem"] is True
    (target,) = stack.client("application-autoscaling").describe_scalable_targets(ServiceNamespace="ecs")[
        "ScalableTargets"
    ]
    assert target["ResourceId"] == f"service/{stack['Cluster']}/{shown['serviceName']}"


def test_a_new_revision_reaches_the_service(stack: Deployed) -> None:
    template = gateway()
    stack.create(template)
    arn = stack["Service"]
    template["Task"]["Properties"]["Cpu"] = "2048"
    template["Service"]["Properties"]["DesiredCount"] = 3
    template["Target"]["Properties"]["MaxCapacity"] = 20
    stack.update(template)
    shown = service(stack)
    assert (shown["serviceArn"], shown["runningCount"], shown["taskDefinition"]) == (arn, 3, stack["Task"])
    scaling = stack.client("application-autoscaling")
    assert scaling.describe_scalable_targets(ServiceNamespace="ecs")["ScalableTargets"][0]["MaxCapacity"] == 20


def test_no_gateway_resource_remains(stack: Deployed) -> None:
    stack.create(gateway())
    stack.delete()
    ecs, scaling = stack.client("ecs"), stack.client("application-autoscaling")
    assert not ecs.list_clusters()["clusterArns"]
    assert not ecs.list_task_definitions()["taskDefinitionArns"]
    assert not scaling.describe_scalable_targets(ServiceNamespace="ecs")["ScalableTargets"]
    assert not scaling.describe_scaling_policies(ServiceNamespace="ecs")["ScalingPolicies"]


def test_the_api_streams_through_the_vpc_link(stack: Deployed) -> None:
    stack.create(api())
    gateway_api = stack.client("apigateway")
    place = {"restApiId": stack["Api"], "resourceId": stack["Sessions"], "httpMethod": "POST"}
    method = gateway_api.get_method(**place)
    assert method["apiKeyRequired"] is True
    assert method["requestValidatorId"] == stack["Checked"]
    integration = gateway_api.get_integration(**place)
    assert (integration["connectionType"], integration["connectionId"]) == ("VPC_LINK", stack["Link"])
    assert (integration["responseTransferMode"], integration["timeoutInMillis"]) == ("STREAM", 900000)
    assert integration["uri"] == f"http://{load_balancer(stack)['DNSName']}/v1/sessions"
    model = gateway_api.get_model(restApiId=stack["Api"], modelName=stack["Body"])
    assert json.loads(model["schema"])["required"] == ["language"]


def test_the_stage_has_throttling_logs_and_a_web_acl(stack: Deployed) -> None:
    stack.create(api())
    stage = stack.client("apigateway").get_stage(restApiId=stack["Api"], stageName="v1")
    everywhere = stage["methodSettings"]["*/*"]
    assert (everywhere["throttlingRateLimit"], everywhere["throttlingBurstLimit"]) == (100.5, 50)
    assert (everywhere["metricsEnabled"], everywhere["loggingLevel"]) == (True, "INFO")
    assert stage["methodSettings"]["~1sessions/POST"]["throttlingBurstLimit"] == 5
    assert stage["tracingEnabled"] is True
    assert stage["accessLogSettings"]["destinationArn"].endswith(f":{stack['Access']}:*")
    waf = stack.client("wafv2")
    arn = f"arn:aws:apigateway:us-east-1::/restapis/{stack['Api']}/stages/v1"
    acl = waf.get_web_acl_for_resource(ResourceArn=arn)["WebACL"]
    assert stack["Acl"] == f"{acl['Name']}|{acl['Id']}|REGIONAL"
    assert [rule["Name"] for rule in acl["Rules"]] == ["rate"]
    logging = waf.get_logging_configuration(ResourceArn=acl["ARN"])["LoggingConfiguration"]
    assert logging["LogDestinationConfigs"][0].split(":")[6] == "aws-waf-logs-voice"


def test_limits_of_the_api_change_in_place(stack: Deployed) -> None:
    template = api()
    stack.create(template)
    before = {name: stack[name] for name in ("Api", "Deployment", "Stage", "Link", "Acl", "Body", "Domain")}
    template["Api"]["Properties"] |= {"Name": "renamed", "DisableExecuteApiEndpoint": True}
    template["Api"]["Properties"]["EndpointConfiguration"] = {"Types": ["PRIVATE"]}
    template["Deployment"]["Properties"]["Description"] = "second"
    template["Stage"]["Properties"]["MethodSettings"][0]["ThrottlingBurstLimit"] = 20
    template["Link"]["Properties"]["Description"] = "to the gateway"
    template["Acl"]["Properties"]["Rules"][0]["Statement"]["RateBasedStatement"]["Limit"] = 100
    template["Body"]["Properties"]["Schema"]["required"] = []
    template["Domain"]["Properties"]["RegionalCertificateArn"] += "2"
    template["Open"]["Properties"]["Integration"]["ResponseTransferMode"] = "BUFFERED"
    stack.update(template)
    assert {name: stack[name] for name in before} == before
    client = stack.client("apigateway")
    shown = client.get_rest_api(restApiId=stack["Api"])
    assert shown["disableExecuteApiEndpoint"] is True
    assert (shown["name"], shown["endpointConfiguration"]["types"]) == ("renamed", ["PRIVATE"])
    deployment = client.get_deployment(restApiId=stack["Api"], deploymentId=stack["Deployment"])
    assert deployment["description"] == "second"
    stage = client.get_stage(restApiId=stack["Api"], stageName="v1")
    assert stage["methodSettings"]["*/*"]["throttlingBurstLimit"] == 20
    assert client.get_vpc_link(vpcLinkId=stack["Link"])["description"] == "to the gateway"
    domain = client.get_domain_name(domainName="api.example.com")
    assert domain["regionalCertificateArn"].endswith("certificate/x2")
    place = {"restApiId": stack["Api"], "resourceId": stack["Sessions"], "httpMethod": "POST"}
    assert client.get_integration(**place)["responseTransferMode"] == "BUFFERED"
    name, identifier, scope = stack["Acl"].split("|")
    rules = stack.client("wafv2").get_web_acl(Name=name, Id=identifier, Scope=scope)["WebACL"]["Rules"]
    assert rules[0]["Statement"]["RateBasedStatement"]["Limit"] == 100


def test_no_api_resource_remains(stack: Deployed) -> None:
    stack.create(api())
    stack.delete()
    client, waf = stack.client("apigateway"), stack.client("wafv2")
    for listing in ("get_rest_apis", "get_vpc_links", "get_domain_names"):
        assert not getattr(client, listing)()["items"], listing
    assert not waf.list_web_acls(Scope="REGIONAL")["WebACLs"]
    assert not waf.list_logging_configurations(Scope="REGIONAL")["LoggingConfigurations"]
