"""Helpers for tests of the edge's template."""

from typing import Any

from tests.synthesized import Properties, Stack

CERTIFICATE = "arn:aws:acm:us-east-1:123456789012:certificate/00000000-0000-0000-0000-000000000000"


def routes(stack: Stack) -> dict[str, Properties]:
    """Return methods by verb and path, as in ``GET /v1/sessions``."""
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


def target_group(stack: Stack, listener: Properties) -> Properties:
    (action,) = listener["DefaultActions"]
    targets: Properties = stack.of_type("ElasticLoadBalancingV2::TargetGroup")[action["TargetGroupArn"]["Ref"]]
    return dict(targets["Properties"])


def container(stack: Stack) -> Properties:
    (only,) = stack.only("ECS::TaskDefinition")["ContainerDefinitions"]
    return dict(only)


def environment(stack: Stack) -> dict[str, Any]:
    return {variable["Name"]: variable["Value"] for variable in container(stack)["Environment"]}


def log_group(stack: Stack, reference: dict[str, Any]) -> Properties:
    name = reference.get("Ref") or reference["Fn::GetAtt"][0]
    return dict(stack.of_type("Logs::LogGroup")[name]["Properties"])
