"""Elastic Load Balancing: load balancers of every type, target groups, listeners and rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.base import Adapter, Properties, only, without


class _Elbv2(Adapter):
    """Shared by the service's types: the physical id is the ARN."""

    service = "elbv2"

    def tag_target(self) -> str:
        """Return the ARN."""
        return self.id


class LoadBalancer(_Elbv2):
    """A load balancer; network load balancers keep their type and their security groups.

    Not represented: addresses of subnet mappings, minimum capacity, the switch for PrivateLink traffic.
    """

    resource_type = "AWS::ElasticLoadBalancingV2::LoadBalancer"
    name = "Name"
    name_limit = 32
    replaced_by = frozenset({"Scheme", "Type"})
    _apart = (
        "LoadBalancerAttributes",
        "EnforceSecurityGroupInboundRulesOnPrivateLinkTraffic",
        "MinimumLoadBalancerCapacity",
        "EnableCapacityReservationProvisionStabilize",
    )

    def create(self, properties: Properties) -> str:
        """Create the load balancer and set its attributes."""
        made = self.call("create_load_balancer", without(properties, *self._apart))
        arn = self.begin(made["LoadBalancers"][0]["LoadBalancerArn"])
        self._set_attributes(properties)
        return arn

    def update(self, new: Properties) -> None:
        """Change subnets, security groups, address type and attributes."""
        for key, operation in (
            ("Subnets", "set_subnets"),
            ("SubnetMappings", "set_subnets"),
            ("SecurityGroups", "set_security_groups"),
            ("IpAddressType", "set_ip_address_type"),
        ):
            if new.get(key) != self.properties.get(key) and key in new:
                self.call(operation, only(new, key), LoadBalancerArn=self.id)
        self._set_attributes(new)

    def delete(self) -> None:
        """Delete the load balancer."""
        self.call("delete_load_balancer", LoadBalancerArn=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return names and zone."""
        balancer = self.call("describe_load_balancers", LoadBalancerArns=[self.id])["LoadBalancers"][0]
        return {
            "LoadBalancerArn": self.id,
            "DNSName": balancer["DNSName"],
            "CanonicalHostedZoneID": balancer["CanonicalHostedZoneId"],
            "LoadBalancerName": balancer["LoadBalancerName"],
            "LoadBalancerFullName": self.id.split(":loadbalancer/", 1)[1],
            "SecurityGroups": balancer.get("SecurityGroups", []),
        }

    def _set_attributes(self, properties: Properties) -> None:
        if wanted := properties.get("LoadBalancerAttributes"):
            self.call("modify_load_balancer_attributes", LoadBalancerArn=self.id, Attributes=wanted)


class TargetGroup(_Elbv2):
    """A target group with its attributes and fixed targets."""

    resource_type = "AWS::ElasticLoadBalancingV2::TargetGroup"
    name = "Name"
    name_limit = 32
    replaced_by = frozenset({"Port", "Protocol", "ProtocolVersion", "TargetType", "VpcId", "IpAddressType"})
    _health = (
        "HealthCheckEnabled",
        "HealthCheckIntervalSeconds",
        "HealthCheckPath",
        "HealthCheckPort",
        "HealthCheckProtocol",
        "HealthCheckTimeoutSeconds",
        "HealthyThresholdCount",
        "UnhealthyThresholdCount",
        "Matcher",
    )

    def create(self, properties: Properties) -> str:
        """Create the group, set its attributes and register its targets."""
        made = self.call("create_target_group", without(properties, "TargetGroupAttributes", "Targets"))
        arn = self.begin(made["TargetGroups"][0]["TargetGroupArn"])
        self._fill(properties)
        return arn

    def update(self, new: Properties) -> None:
        """Change health check, attributes and targets."""
        self.call("modify_target_group", only(new, *self._health), TargetGroupArn=self.id)
        self._fill(new)

    def delete(self) -> None:
        """Delete the group."""
        self.call("delete_target_group", TargetGroupArn=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return names and load balancers."""
        group = self.call("describe_target_groups", TargetGroupArns=[self.id])["TargetGroups"][0]
        return {
            "TargetGroupArn": self.id,
            "TargetGroupName": group["TargetGroupName"],
            "TargetGroupFullName": self.id.rsplit(":", 1)[1],
            "LoadBalancerArns": group.get("LoadBalancerArns", []),
        }

    def _fill(self, new: Properties) -> None:
        if wanted := new.get("TargetGroupAttributes"):
            self.call("modify_target_group_attributes", TargetGroupArn=self.id, Attributes=wanted)
        before, after = self.properties.get("Targets", []), new.get("Targets", [])
        for operation, targets in (
            ("deregister_targets", [target for target in before if target not in after]),
            ("register_targets", [target for target in after if target not in before]),
        ):
            if targets:
                self.call(operation, TargetGroupArn=self.id, Targets=targets)


class Listener(_Elbv2):
    """A listener. Mutual authentication is passed on; moto does not check it."""

    resource_type = "AWS::ElasticLoadBalancingV2::Listener"
    replaced_by = frozenset({"LoadBalancerArn"})

    def create(self, properties: Properties) -> str:
        """Create the listener."""
        made = self.call("create_listener", without(properties, "ListenerAttributes"))
        arn = self.begin(made["Listeners"][0]["ListenerArn"])
        self._set_attributes(properties)
        return arn

    def update(self, new: Properties) -> None:
        """Change the listener."""
        changed = without(new, "ListenerAttributes", "LoadBalancerArn", "Tags")
        self.call("modify_listener", changed, ListenerArn=self.id)
        self._set_attributes(new)

    def delete(self) -> None:
        """Delete the listener."""
        self.call("delete_listener", ListenerArn=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the ARN."""
        return {"ListenerArn": self.id}

    def _set_attributes(self, properties: Properties) -> None:
        if wanted := properties.get("ListenerAttributes"):
            self.call("modify_listener_attributes", ListenerArn=self.id, Attributes=wanted)


class ListenerRule(_Elbv2):
    """A rule of an application load balancer's listener."""

    resource_type = "AWS::ElasticLoadBalancingV2::ListenerRule"
    replaced_by = frozenset({"ListenerArn"})

    def create(self, properties: Properties) -> str:
        """Create the rule."""
        return str(self.call("create_rule", properties)["Rules"][0]["RuleArn"])

    def update(self, new: Properties) -> None:
        """Change actions, conditions and priority."""
        self.call("modify_rule", only(new, "Actions", "Conditions"), RuleArn=self.id)
        if new["Priority"] != self.properties["Priority"]:
            self.call("set_rule_priorities", RulePriorities=[{"RuleArn": self.id, "Priority": new["Priority"]}])

    def delete(self) -> None:
        """Delete the rule."""
        self.call("delete_rule", RuleArn=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the ARN."""
        return {"RuleArn": self.id}
