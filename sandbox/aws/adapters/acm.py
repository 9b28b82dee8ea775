"""Certificate Manager: certificates."""

from __future__ import annotations

from sandbox.aws.adapters.base import Adapter, Properties, without


class Certificate(Adapter):
    """A certificate. moto validates none; the deployment does not wait for it."""

    resource_type = "AWS::CertificateManager::Certificate"
    service = "acm"

    def create(self, properties: Properties) -> str:
        """Request the certificate; its id is its ARN."""
        given = without(
            properties, "CertificateTransparencyLoggingPreference", "DomainValidationOptions", "CertificateExport"
        )
        options = {}
        if "CertificateTransparencyLoggingPreference" in properties:
            options["CertificateTransparencyLoggingPreference"] = properties["CertificateTransparencyLoggingPreference"]
        validation = [
            {"DomainName": item["DomainName"], "ValidationDomain": item["ValidationDomain"]}
            for item in properties.get("DomainValidationOptions", [])
            if "ValidationDomain" in item
        ]
        extra: Properties = {"Options": options} if options else {}
        extra |= {"DomainValidationOptions": validation} if validation else {}
        return str(self.call("request_certificate", given, extra)["CertificateArn"])

    def delete(self) -> None:
        """Delete the certificate."""
        self.call("delete_certificate", CertificateArn=self.id)
