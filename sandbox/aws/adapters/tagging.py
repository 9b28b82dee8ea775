"""The calls by which each service sets and removes tags."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TagCalls:
    """Names of a service's tag operations and of their arguments."""

    tag: str = "tag_resource"
    untag: str = "untag_resource"
    resource: str = "ResourceArn"
    tags: str = "Tags"
    keys: str = "TagKeys"


_USUAL = TagCalls()

TAG_CALLS: dict[str, TagCalls] = {
    "acm": TagCalls("add_tags_to_certificate", "remove_tags_from_certificate", "CertificateArn", keys="Tags"),
    "apigateway": _USUAL,
    "budgets": TagCalls(resource="ResourceARN", tags="ResourceTags", keys="ResourceTagKeys"),
    "cloudwatch": TagCalls(resource="ResourceARN"),
    "ec2": TagCalls("create_tags", "delete_tags", "Resources", keys="Tags"),
    "ecr": _USUAL,
    "ecs": _USUAL,
    "elasticache": TagCalls("add_tags_to_resource", "remove_tags_from_resource", "ResourceName"),
    "elbv2": TagCalls("add_tags", "remove_tags", "ResourceArns"),
    "events": TagCalls(resource="ResourceARN"),
    "kms": TagCalls(resource="KeyId"),
    "logs": _USUAL,
    "secretsmanager": TagCalls(resource="SecretId"),
    "servicediscovery": TagCalls(resource="ResourceARN"),
    "sns": _USUAL,
    "wafv2": TagCalls(resource="ResourceARN"),
}
