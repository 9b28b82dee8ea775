"""CloudWatch Logs: log groups and what hangs on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.base import Adapter, Properties, only, without


class LogGroup(Adapter):
    """A log group. Not represented: data protection policies, field indexes, transformers."""

    resource_type = "AWS::Logs::LogGroup"
    service = "logs"
    name = "LogGroupName"
    name_limit = 512
    replaced_by = frozenset({"LogGroupClass"})

    def create(self, properties: Properties) -> str:
        """Create the group and set its retention."""
        name = str(properties["LogGroupName"])
        self.call("create_log_group", without(properties, "RetentionInDays"))
        self.begin(name)
        self._retain(properties)
        return name

    def update(self, new: Properties) -> None:
        """Set retention and key."""
        self._retain(new)
        if new.get("KmsKeyId") != self.properties.get("KmsKeyId"):
            operation = "associate_kms_key" if "KmsKeyId" in new else "disassociate_kms_key"
            self.call(operation, only(new, "KmsKeyId"), LogGroupName=self.id)

    def delete(self) -> None:
        """Delete the group."""
        self.call("delete_log_group", LogGroupName=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the ARN, which ends in `:*` as CloudFormation's does."""
        return {"Arn": f"arn:aws:logs:{self.scope.region}:{self.scope.account}:log-group:{self.id}:*"}

    def tag_target(self) -> str:
        """Return the ARN without its end, which is what the tag calls take."""
        return str(self.attributes()["Arn"]).removesuffix(":*")

    def _retain(self, properties: Properties) -> None:
        if "RetentionInDays" in properties:
            self.call("put_retention_policy", only(properties, "RetentionInDays"), LogGroupName=self.id)
        else:
            self.call("delete_retention_policy", LogGroupName=self.id)


class LogStream(Adapter):
    """A log stream."""

    resource_type = "AWS::Logs::LogStream"
    service = "logs"
    name = "LogStreamName"

    def create(self, properties: Properties) -> str:
        """Create the stream."""
        self.call("create_log_stream", properties)
        return str(properties["LogStreamName"])

    def delete(self) -> None:
        """Delete the stream."""
        self.call("delete_log_stream", only(self.properties, "LogGroupName"), LogStreamName=self.id)


class MetricFilter(Adapter):
    """A filter that counts what it finds in a log group; moto stores it and counts nothing."""

    resource_type = "AWS::Logs::MetricFilter"
    service = "logs"
    name = "FilterName"
    replaced_by = frozenset({"LogGroupName"})

    def create(self, properties: Properties) -> str:
        """Put the filter."""
        self.update(properties)
        return str(properties["FilterName"])

    def update(self, new: Properties) -> None:
        """Put the filter again; the template lists dimensions that the API takes as a map."""
        transformations = [
            {**item, "Dimensions": {entry["Key"]: entry["Value"] for entry in item["Dimensions"]}}
            if "Dimensions" in item
            else item
            for item in new["MetricTransformations"]
        ]
        self.call("put_metric_filter", new, MetricTransformations=transformations)

    def delete(self) -> None:
        """Delete the filter."""
        self.call("delete_metric_filter", only(self.properties, "LogGroupName"), FilterName=self.id)


class ResourcePolicy(Adapter):
    """A policy that lets services write to log groups."""

    resource_type = "AWS::Logs::ResourcePolicy"
    service = "logs"
    replaced_by = frozenset({"PolicyName"})

    def create(self, properties: Properties) -> str:
        """Put the policy."""
        self.update(properties)
        return str(properties["PolicyName"])

    def update(self, new: Properties) -> None:
        """Put the policy again."""
        self.call("put_resource_policy", new)

    def delete(self) -> None:
        """Delete the policy."""
        self.call("delete_resource_policy", PolicyName=self.id)
