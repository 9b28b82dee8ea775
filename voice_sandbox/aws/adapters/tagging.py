"""Operations that set and remove tags in each service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TagOperations:
    """Names of a service's tag operations and their arguments.

    Attributes:
        tag: Operation that sets tags.
        untag: Operation that removes them.
        resource: Argument that identifies the resource.
        tags: Argument with the tags.
        keys: Argument with the keys of the tags to remove.
        key_value_names: The service's names of a tag's key and value.
        constant_arguments: Constant arguments.
    """

    tag: str = "tag_resource"
    untag: str = "untag_resource"
    resource: str = "ResourceArn"
    tags: str = "Tags"
    keys: str = "TagKeys"
    key_value_names: tuple[str, str] = ("Key", "Value")
    constant_arguments: Mapping[str, str] = field(default_factory=dict)

    def to_list(self, tags: Mapping[str, str]) -> list[dict[str, str]]:
        """Convert a map of tags to the service's list format."""
        return [dict(zip(self.key_value_names, tag, strict=True)) for tag in tags.items()]


_DEFAULT_OPERATIONS = TagOperations()

TAG_OPERATIONS: dict[str, TagOperations] = {
    "acm": TagOperations("add_tags_to_certificate", "remove_tags_from_certificate", "CertificateArn", keys="Tags"),
    "apigateway": _DEFAULT_OPERATIONS,
    "cloudwatch": TagOperations(resource="ResourceARN"),
    "ec2": TagOperations("create_tags", "delete_tags", "Resources", keys="Tags"),
    "ecr": _DEFAULT_OPERATIONS,
    "ecs": _DEFAULT_OPERATIONS,
    "elasticache": TagOperations("add_tags_to_resource", "remove_tags_from_resource", "ResourceName"),
    "elbv2": TagOperations("add_tags", "remove_tags", "ResourceArns"),
    "iam": TagOperations("tag_role", "untag_role", "RoleName"),  # the only type with tags here
    "kms": TagOperations(resource="KeyId", key_value_names=("TagKey", "TagValue")),
    "logs": _DEFAULT_OPERATIONS,
    "secretsmanager": TagOperations(resource="SecretId"),
    "sns": _DEFAULT_OPERATIONS,
    "ssm": TagOperations(
        "add_tags_to_resource",
        "remove_tags_from_resource",
        "ResourceId",
        constant_arguments={"ResourceType": "Parameter"},
    ),
    "wafv2": TagOperations(resource="ResourceARN"),
}
"""Tag operations by the boto3 name for the service. For other services, tags are ordinary properties."""
