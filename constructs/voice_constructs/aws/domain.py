"""Custom domain: certificate and DNS records."""

from collections.abc import Mapping
from typing import Any

from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_route53 as route53
from constructs import Construct

from voice_blueprint.aws import edge
from voice_blueprint.contract.network import PUBLIC_TLS
from voice_blueprint.contract.session_api import HEALTH_PATH
from voice_blueprint.file.model.edge import Domain


class HostDomain(Construct):
    """A certificate for host names in one zone, and the records that point to their endpoints.

    The zone is referenced by id, so that a synth does not query AWS. ACM validates the certificate with records that
    CloudFormation creates in the zone. A deployment waits until the certificate is issued, which requires that the zone
    is delegated.

    Attributes:
        certificate_arn: ARN of the certificate for all host names.
    """

    _routing: Mapping[str, Any] = {}

    def __init__(self, scope: Construct, id_: str, *, zone_id: str, hosts: tuple[str, ...]) -> None:
        super().__init__(scope, id_)
        self._zone_id = zone_id
        self.certificate_arn = acm.CfnCertificate(
            self,
            "Certificate",
            domain_name=hosts[0],
            subject_alternative_names=list(hosts[1:]) or None,
            validation_method="DNS",
            domain_validation_options=[
                acm.CfnCertificate.DomainValidationOptionProperty(domain_name=host, hosted_zone_id=zone_id)
                for host in hosts
            ],
        ).ref

    def add_alias_record(self, host: str, *, dns_name: str, zone_id: str) -> None:
        """Make a host name an alias of an AWS endpoint.

        Args:
            dns_name: DNS name of the endpoint.
            zone_id: AWS's hosted zone of that DNS name.
        """
        route53.CfnRecordSet(
            self,
            "".join(part.capitalize() for part in host.split(".")),
            hosted_zone_id=self._zone_id,
            name=host,
            type="A",
            alias_target=route53.CfnRecordSet.AliasTargetProperty(dns_name=dns_name, hosted_zone_id=zone_id),
            **self._routing,
        )


class EdgeDomain(HostDomain):
    """Host names ``api.<name>`` and ``media.<name>``.

    Attributes:
        domain: Domain name.
        api_host: Host name of the session API.
        media_host: Host name of the public listeners.
    """

    def __init__(self, scope: Construct, id_: str, *, domain: Domain) -> None:
        self.domain = domain
        self.api_host = edge.build_api_hostname(domain)
        self.media_host = edge.build_media_hostname(domain)
        super().__init__(scope, id_, zone_id=domain.zone_id, hosts=(self.api_host, self.media_host))


class AnyRegionDomain(HostDomain):
    """Host name ``api.any.<name>``, which Route 53 resolves to the nearest healthy region.

    A region is healthy while its gateways respond on the media host. Their response depends on the store, and the
    request requires no key. Audio does not need such a name, since the response to a request for a session contains the
    session's audio and event URLs.

    The health check costs about 2.50 USD per month (https://aws.amazon.com/route53/pricing/).

    Attributes:
        api_host: Host name of the session API.
    """

    def __init__(self, scope: Construct, id_: str, *, shared: Domain, region_domain: Domain, region: str) -> None:
        self.api_host = edge.build_api_hostname(shared)
        super().__init__(scope, id_, zone_id=shared.zone_id, hosts=(self.api_host,))
        check = route53.CfnHealthCheck(
            self,
            "Check",
            health_check_config=route53.CfnHealthCheck.HealthCheckConfigProperty(
                type="HTTPS",
                fully_qualified_domain_name=edge.build_media_hostname(region_domain),
                port=PUBLIC_TLS.number,
                resource_path=HEALTH_PATH,
                request_interval=edge.HEALTH_CHECK_INTERVAL_S,
                failure_threshold=edge.HEALTH_CHECK_FAILURE_THRESHOLD,
            ),
        )
        self._routing = {"set_identifier": region, "region": region, "health_check_id": check.ref}
