"""Elastic Load Balancing: ARNs, names, listeners, deletion protection and deletion of network load balancers."""

from __future__ import annotations

from types import ModuleType

from moto.elbv2 import urls
from moto.elbv2.exceptions import ELBClientError
from moto.elbv2.models import ELBv2Backend, FakeListener, FakeLoadBalancer, elbv2_backends

from voice_sandbox.aws.shapes import Json

NETWORK_PROTOCOLS = {"TCP", "TLS", "UDP", "TCP_UDP"}
_ARN_PATH_BY_TYPE = {"network": "net", "gateway": "gwy"}


class PatchedElbv2(ELBv2Backend):
    """moto's load balancers with an ARN format per type, from which CloudWatch dimensions are derived."""

    @property
    def _url_module(self) -> ModuleType:
        return urls

    def create_load_balancer(self, name: str, *args: Json, **options: Json) -> FakeLoadBalancer:
        """Create a load balancer; names are unique, as in AWS."""
        if any(balancer.name == name for balancer in self.load_balancers.values()):
            raise ELBClientError("DuplicateLoadBalancerName", f"A load balancer with the name '{name}' already exists.")
        balancer = super().create_load_balancer(name, *args, **options)
        path = _ARN_PATH_BY_TYPE.get(options.get("loadbalancer_type") or "")
        if path:
            tags = self.tagging_service.list_tags_for_resource(balancer.arn)["Tags"]
            self.tagging_service.delete_all_tags_for_resource(balancer.arn)
            del self.load_balancers[balancer.arn]
            balancer.arn = balancer.arn.replace(":loadbalancer/app/", f":loadbalancer/{path}/")
            balancer.dns_name = f"{name}-{balancer.arn.rsplit('/', 1)[1]}.elb.{self.region_name}.amazonaws.com"
            self.load_balancers[balancer.arn] = balancer
            self.tagging_service.tag_resource(balancer.arn, tags)
        return balancer

    def create_listener(self, *args: Json, **options: Json) -> FakeListener:
        """Create a listener; only an encrypted one has a security policy."""
        listener = super().create_listener(*args, **options)
        if listener.protocol not in {"HTTPS", "TLS"}:
            listener.ssl_policy = ""
        return listener

    def modify_listener(self, arn: str, *args: Json, **options: Json) -> FakeListener:
        """Change a listener; moto rejects the protocols of a network load balancer."""
        names = ("port", "protocol", "ssl_policy", "certificates", "actions")
        request = dict(zip(names, args, strict=False)) | options
        protocol = request.pop("protocol", None)
        is_network = protocol in NETWORK_PROTOCOLS
        listener = super().modify_listener(arn, protocol=None if is_network else protocol, **request)
        if is_network:
            listener.protocol = protocol
        if protocol == "TLS" and request.get("certificates"):
            listener.certificates = [each["CertificateArn"] for each in request["certificates"]]
            listener.certificate = listener.certificates[0]
        for action in listener.default_actions:
            group = self.target_groups.get(action.data.get("TargetGroupArn", ""))
            if group and listener.load_balancer_arn not in group.load_balancer_arns:
                group.load_balancer_arns.append(listener.load_balancer_arn)
        return listener

    def delete_load_balancer(self, arn: str) -> None:
        """Delete a load balancer, unless it is protected, and remove it from its target groups."""
        balancer = self.load_balancers.get(arn)
        if balancer is not None and balancer.attrs.get("deletion_protection.enabled") == "true":
            message = f"Load balancer '{arn}' cannot be deleted because deletion protection is enabled"
            raise ELBClientError("OperationNotPermitted", message)
        super().delete_load_balancer(arn)
        for group in self.target_groups.values():
            group.load_balancer_arns = [item for item in group.load_balancer_arns if item != arn]


def install() -> None:
    """Install the patch."""
    elbv2_backends.backend = PatchedElbv2
