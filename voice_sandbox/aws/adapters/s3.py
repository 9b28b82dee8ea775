"""S3: buckets."""

from __future__ import annotations

import re
from typing import Any

from voice_sandbox.aws.adapters.adapter import Adapter, Properties, select_keys


class Bucket(Adapter):
    """A bucket with properties that are nested differently in the API."""

    def translate(self, properties: Properties) -> Properties:
        """Nest the properties as the API does, and add the bucket's location."""
        result = super().translate(properties)
        if self.scope.region != "us-east-1":  # the API does not accept us-east-1
            result["CreateBucketConfiguration"] = {"LocationConstraint": self.scope.region}
        if "AccessControl" in result:  # `LogDeliveryWrite` is `log-delivery-write`
            result["AccessControl"] = re.sub(r"(?<!^)(?=[A-Z])", "-", result["AccessControl"]).lower()
        if "BucketEncryption" in result:
            rules = result["BucketEncryption"]["ServerSideEncryptionConfiguration"]
            result["BucketEncryption"] = [_convert_encryption_rule(rule) for rule in rules]
        if "LifecycleConfiguration" in result:
            result["LifecycleConfiguration"] = [
                _convert_lifecycle_rule(rule) for rule in result["LifecycleConfiguration"]["Rules"]
            ]
        return result


def _convert_encryption_rule(rule: Properties) -> dict[str, Any]:
    default = {"ApplyServerSideEncryptionByDefault": rule["ServerSideEncryptionByDefault"]}
    return default | select_keys(rule, "BucketKeyEnabled")


def _convert_lifecycle_rule(rule: Properties) -> dict[str, Any]:
    """Convert a rule to the format of the API, which nests the days and the prefix."""
    names = {"Id": "ID", "ExpirationInDays": "Expiration"}
    result = {names.get(key, key): value for key, value in rule.items()}
    result["Filter"] = {"Prefix": result.pop("Prefix", "")}
    if "Expiration" in result:
        result["Expiration"] = {"Days": result["Expiration"]}
    if "Transitions" in result:
        days = {"TransitionInDays": "Days"}
        result["Transitions"] = [
            {days.get(key, key): value for key, value in item.items()} for item in result["Transitions"]
        ]
    return result
