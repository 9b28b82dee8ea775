"""Route 53: records and health checks."""

from __future__ import annotations

from voice_sandbox.aws.adapters.adapter import Adapter, Properties, select_keys


class HealthCheck(Adapter):
    """A health check, whose update operation has no nested arguments."""

    def configure(self, before: Properties, after: Properties) -> None:
        """Update the settings that can change, such as the target and the failure threshold."""
        if before.get("HealthCheckConfig") != (config := after["HealthCheckConfig"]):
            fixed = {"Type", "RequestInterval", "MeasureLatency"}
            self.call("update_health_check", select_keys(config, *config.keys() - fixed), HealthCheckId=self.id)


class RecordSet(Adapter):
    """A record, which the API changes only in batches."""

    def configure(self, before: Properties, after: Properties) -> None:
        """Create or change the record. A record with another type or set identifier replaces the old one."""
        if before and any(before.get(key) != after.get(key) for key in ("Type", "SetIdentifier")):
            self._change_record("DELETE", before)
        self._change_record("UPSERT" if before else "CREATE", after)

    def delete(self) -> None:
        self._change_record("DELETE", self.properties)

    def _change_record(self, action: str, properties: Properties) -> None:
        record = select_keys(properties, "Name", "Type", "TTL", "SetIdentifier", "Region", "HealthCheckId")
        if "ResourceRecords" in properties:
            record["ResourceRecords"] = [{"Value": value} for value in properties["ResourceRecords"]]
        if "AliasTarget" in properties:
            record["AliasTarget"] = {"EvaluateTargetHealth": False, **properties["AliasTarget"]}
        batch = {"Changes": [{"Action": action, "ResourceRecordSet": record}]}
        self.call("change_resource_record_sets", HostedZoneId=properties["HostedZoneId"], ChangeBatch=batch)
