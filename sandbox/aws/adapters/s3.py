"""S3: buckets."""

from __future__ import annotations

import re
from typing import Any

from sandbox.aws.adapters.adapter import Adapter, Properties, only


class Bucket(Adapter):
    """A bucket, some of whose properties the API nests in another way."""

    def translated(self, properties: Properties) -> Properties:
        """Return the properties as the API nests them, and the bucket's place."""
        result = super().translated(properties)
        if self.scope.region != "us-east-1":  # which the API does not take
            result["CreateBucketConfiguration"] = {"LocationConstraint": self.scope.region}
        if "AccessControl" in result:  # `LogDeliveryWrite` is `log-delivery-write`
            result["AccessControl"] = re.sub(r"(?<!^)(?=[A-Z])", "-", result["AccessControl"]).lower()
        if "BucketEncryption" in result:
            rules = result["BucketEncryption"]["ServerSideEncryptionConfiguration"]
            result["BucketEncryption"] = [_encryption_rule(rule) for rule in rules]
        if "LifecycleConfiguration" in result:
            result["LifecycleConfiguration"] = [
                _lifecycle_rule(rule) for rule in result["LifecycleConfiguration"]["Rules"]
            ]
        return result


def _encryption_rule(rule: Properties) -> dict[str, Any]:
    default = {"ApplyServerSideEncryptionByDefault": rule["ServerSideEncryptionByDefault"]}
    return default | only(rule, "BucketKeyEnabled")


def _lifecycle_rule(rule: Properties) -> dict[str, Any]:
    """Return a rule as the API has it: the template writes days and prefix one level higher."""
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
