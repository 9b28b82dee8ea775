"""Route 53: records."""

from __future__ import annotations

from sandbox.aws.adapters.adapter import Adapter, Properties, only


class RecordSet(Adapter):
    """A record, which only a batch of changes reaches."""

    def configure(self, before: Properties, after: Properties) -> None:
        """Create or change the record; one of another type is another record."""
        if before and before["Type"] != after["Type"]:
            self._change("DELETE", before)
        self._change("UPSERT" if before else "CREATE", after)

    def delete(self) -> None:
        """Delete the record."""
        self._change("DELETE", self.properties)

    def _change(self, action: str, properties: Properties) -> None:
        record = only(properties, "Name", "Type", "TTL")
        if "ResourceRecords" in properties:
            record["ResourceRecords"] = [{"Value": value} for value in properties["ResourceRecords"]]
        if "AliasTarget" in properties:
            record["AliasTarget"] = {"EvaluateTargetHealth": False, **properties["AliasTarget"]}
        batch = {"Changes": [{"Action": action, "ResourceRecordSet": record}]}
        self.call("change_resource_record_sets", HostedZoneId=properties["HostedZoneId"], ChangeBatch=batch)
