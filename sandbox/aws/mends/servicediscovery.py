"""Cloud Map: the hosted zone of a private namespace has its name and its VPC, and goes with it."""

from __future__ import annotations

import json

from moto.route53.models import Route53Backend, route53_backends
from moto.servicediscovery import urls
from moto.servicediscovery.responses import ServiceDiscoveryResponse

from sandbox.aws.mends.base import take_over


class MendedServiceDiscovery(ServiceDiscoveryResponse):
    """moto's Cloud Map API with complete hosted zones."""

    def create_private_dns_namespace(self) -> str:
        """Answer CreatePrivateDnsNamespace; moto calls the zone `name-hz` and gives it no VPC."""
        answer = super().create_private_dns_namespace()
        operation = self.servicediscovery_backend.get_operation(json.loads(answer)["OperationId"])
        namespace = self.servicediscovery_backend.get_namespace(operation.targets["NAMESPACE"])
        zone = self._route53.get_hosted_zone(namespace.dns_properties["HostedZoneId"])
        zone.name = f"{namespace.name}."
        zone.add_vpc(namespace.vpc, self.region)
        return answer

    def delete_namespace(self) -> str:
        """Answer DeleteNamespace."""
        namespace = self.servicediscovery_backend.get_namespace(json.loads(self.body)["Id"])
        answer = super().delete_namespace()
        if zone := (namespace.dns_properties or {}).get("HostedZoneId"):
            self._route53.zones.pop(zone.rsplit("/", 1)[-1], None)
        return answer

    @property
    def _route53(self) -> Route53Backend:
        return route53_backends[self.current_account][self.partition]


def install() -> None:
    """Put the mend in place."""
    take_over(urls, ServiceDiscoveryResponse, MendedServiceDiscovery)
