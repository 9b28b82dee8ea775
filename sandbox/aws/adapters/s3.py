"""S3: buckets and their policies."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from sandbox.aws.adapters.base import Adapter, Properties, as_tags, only, tag_map
from sandbox.aws.shapes import Json

# Property of the bucket -> operation that sets it, its argument, and the operation that takes it away.
_PLAIN = {
    "OwnershipControls": ("put_bucket_ownership_controls", "OwnershipControls", "delete_bucket_ownership_controls"),
    "PublicAccessBlockConfiguration": (
        "put_public_access_block",
        "PublicAccessBlockConfiguration",
        "delete_public_access_block",
    ),
    "VersioningConfiguration": ("put_bucket_versioning", "VersioningConfiguration", ""),
    "AccelerateConfiguration": ("put_bucket_accelerate_configuration", "AccelerateConfiguration", ""),
}


class Bucket(Adapter):
    """A bucket. Its deletion fails, as in AWS, while objects lie in it.

    Not represented: replication, inventories, analytics, metrics, website and intelligent tiering; such a property
    fails the deployment.
    """

    resource_type = "AWS::S3::Bucket"
    service = "s3"
    name = "BucketName"
    name_limit = 63
    name_lower = True
    replaced_by = frozenset({"ObjectLockEnabled"})

    def create(self, properties: Properties) -> str:
        """Create the bucket and configure it."""
        name = str(properties["BucketName"])
        place = (
            {}
            if self.scope.region == "us-east-1"
            else {"CreateBucketConfiguration": {"LocationConstraint": self.scope.region}}
        )
        lock = (
            {"ObjectLockEnabledForBucket": properties["ObjectLockEnabled"]} if "ObjectLockEnabled" in properties else {}
        )
        self.call("create_bucket", place, lock, Bucket=name)
        self.begin(name)
        self.update(properties)
        return name

    def update(self, new: Properties) -> None:
        """Set every configuration that changed, and take away those that are gone."""
        for key in self.properties.keys() | new.keys():
            if self.properties.get(key) == new.get(key) or key in {"BucketName", "ObjectLockEnabled"}:
                continue
            if key in _PLAIN:
                put, argument, delete = _PLAIN[key]
                if key in new:
                    self.call(put, {argument: new[key]}, Bucket=self.id)
                elif delete:
                    self.call(delete, Bucket=self.id)
            elif key in _SPECIAL:
                _SPECIAL[key](self, self.id, new.get(key))
            else:
                raise ValueError(f"AWS::S3::Bucket: the sandbox does not represent the property {key}")

    def delete(self) -> None:
        """Delete the bucket."""
        self.call("delete_bucket", Bucket=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return ARN and names."""
        region = self.scope.region
        return {
            "Arn": f"arn:aws:s3:::{self.id}",
            "DomainName": f"{self.id}.s3.amazonaws.com",
            "RegionalDomainName": f"{self.id}.s3.{region}.amazonaws.com",
            "DualStackDomainName": f"{self.id}.s3.dualstack.{region}.amazonaws.com",
            "WebsiteURL": f"http://{self.id}.s3-website-{region}.amazonaws.com",
        }

    def encryption(self, bucket: str, value: Json) -> None:
        """Set or remove the default encryption."""
        if value is None:
            self.call("delete_bucket_encryption", Bucket=bucket)
            return
        rules = [
            {
                **only(rule, "BucketKeyEnabled"),
                "ApplyServerSideEncryptionByDefault": rule.get("ServerSideEncryptionByDefault"),
            }
            for rule in value["ServerSideEncryptionConfiguration"]
        ]
        self.call("put_bucket_encryption", Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": rules})

    def lifecycle(self, bucket: str, value: Json) -> None:
        """Set or remove the lifecycle rules."""
        if value is None:
            self.call("delete_bucket_lifecycle", Bucket=bucket)
            return
        rules = [_lifecycle_rule(rule) for rule in value["Rules"]]
        self.call("put_bucket_lifecycle_configuration", Bucket=bucket, LifecycleConfiguration={"Rules": rules})

    def logging(self, bucket: str, value: Json) -> None:
        """Set or remove access logging."""
        target = (
            {
                "TargetBucket": value.get("DestinationBucketName", bucket),
                "TargetPrefix": value.get("LogFilePrefix", ""),
            }
            if value
            else None
        )
        self.call("put_bucket_logging", Bucket=bucket, BucketLoggingStatus={"LoggingEnabled": target} if target else {})

    def notifications(self, bucket: str, value: Json) -> None:
        """Set the notifications; only EventBridge is represented."""
        enabled = bool((value or {}).get("EventBridgeConfiguration"))
        self.call(
            "put_bucket_notification_configuration",
            Bucket=bucket,
            NotificationConfiguration={"EventBridgeConfiguration": {}} if enabled else {},
        )

    def cors(self, bucket: str, value: Json) -> None:
        """Set or remove the CORS rules."""
        if value is None:
            self.call("delete_bucket_cors", Bucket=bucket)
            return
        names = {"Id": "ID", "MaxAge": "MaxAgeSeconds", "ExposedHeaders": "ExposeHeaders"}
        rules = [{names.get(key, key): item for key, item in rule.items()} for rule in value["CorsRules"]]
        self.call("put_bucket_cors", Bucket=bucket, CORSConfiguration={"CORSRules": rules})

    def acl(self, bucket: str, value: Json) -> None:
        """Set the canned ACL; `LogDeliveryWrite` is `log-delivery-write` to the API."""
        self.call("put_bucket_acl", Bucket=bucket, ACL=re.sub(r"(?<!^)(?=[A-Z])", "-", value or "Private").lower())

    def tags(self, bucket: str, value: Json) -> None:
        """Set or remove the tags."""
        if tags := tag_map({"Tags": value}):
            self.call("put_bucket_tagging", Bucket=bucket, Tagging={"TagSet": as_tags(tags)})
        else:
            self.call("delete_bucket_tagging", Bucket=bucket)


_SPECIAL: dict[str, Callable[[Bucket, str, Any], None]] = {
    "AccessControl": Bucket.acl,
    "BucketEncryption": Bucket.encryption,
    "CorsConfiguration": Bucket.cors,
    "LifecycleConfiguration": Bucket.lifecycle,
    "LoggingConfiguration": Bucket.logging,
    "NotificationConfiguration": Bucket.notifications,
    "Tags": Bucket.tags,
}


def _lifecycle_rule(rule: Properties) -> dict[str, Any]:
    """Return a rule as the API has it: the template writes days and prefix one level higher."""
    result: dict[str, Any] = {"Status": rule["Status"], "Filter": {"Prefix": rule.get("Prefix", "")}}
    if "Id" in rule:
        result["ID"] = rule["Id"]
    expiration = {
        new: rule[old]
        for old, new in (
            ("ExpirationInDays", "Days"),
            ("ExpirationDate", "Date"),
            ("ExpiredObjectDeleteMarker", "ExpiredObjectDeleteMarker"),
        )
        if old in rule
    }
    if expiration:
        result["Expiration"] = expiration
    for key in ("NoncurrentVersionExpiration", "AbortIncompleteMultipartUpload"):
        if key in rule:
            result[key] = rule[key]
    if "NoncurrentVersionExpirationInDays" in rule:
        result["NoncurrentVersionExpiration"] = {"NoncurrentDays": rule["NoncurrentVersionExpirationInDays"]}
    for key in ("Transitions", "NoncurrentVersionTransitions"):
        if key in rule:
            result[key] = [_transition(item) for item in rule[key]]
    return result


def _transition(transition: Properties) -> dict[str, Any]:
    names = {"TransitionInDays": "Days", "TransitionDate": "Date"}
    if "TransitionInDays" in transition and "NewerNoncurrentVersions" in transition:
        names["TransitionInDays"] = "NoncurrentDays"
    return {names.get(key, key): value for key, value in transition.items()}


class BucketPolicy(Adapter):
    """A bucket's policy."""

    resource_type = "AWS::S3::BucketPolicy"
    service = "s3"
    replaced_by = frozenset({"Bucket"})

    def create(self, properties: Properties) -> str:
        """Put the policy."""
        self.update(properties)
        return str(properties["Bucket"])

    def update(self, new: Properties) -> None:
        """Put the policy again."""
        self.call("put_bucket_policy", Bucket=new["Bucket"], Policy=new["PolicyDocument"])

    def delete(self) -> None:
        """Delete the policy."""
        self.call("delete_bucket_policy", Bucket=self.id)
