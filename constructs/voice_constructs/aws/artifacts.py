"""Storage for weights and compiled programs that hosts download."""

from dataclasses import dataclass

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from voice_constructs.aws.acknowledge import acknowledge
from voice_constructs.aws.encryption import EncryptionKey

NONCURRENT_RETENTION_DAYS = 30
"""Retention of overwritten objects, for rollbacks within this time."""
INCOMPLETE_UPLOAD_DAYS = 7
"""Retention of the parts of an incomplete upload."""


@dataclass(frozen=True)
class ArtifactBucket:
    """The bucket and its encryption key."""

    bucket: s3.Bucket
    key: EncryptionKey

    def build_url(self, name: str) -> str:
        return f"s3://{self.bucket.bucket_name}/{name}"

    def grant_access(self, role: iam.Role, name: str, *, region: str, write: bool = False) -> None:
        """Grant a role in another stack read or write access to the objects with a prefix."""
        via_s3 = {"StringEquals": {"kms:ViaService": f"s3.{region}.amazonaws.com"}}
        prefix_condition = {"StringLike": {"s3:prefix": f"{name}/*"}}
        for actions, resource, conditions in (
            (["s3:PutObject"] if write else ["s3:GetObject"], self.bucket.arn_for_objects(f"{name}/*"), None),
            (["s3:ListBucket"], self.bucket.bucket_arn, prefix_condition),
            # S3 reads the parts of a multipart upload again when it assembles them.
            (["kms:Decrypt", "kms:GenerateDataKey"] if write else ["kms:Decrypt"], self.key.key_arn, via_s3),
        ):
            role.add_to_policy(iam.PolicyStatement(actions=actions, resources=[resource], conditions=conditions))
        stack = Stack.of(self.bucket)
        exported = stack.resolve(stack.export_value(self.bucket.bucket_arn))["Fn::ImportValue"]
        acknowledge(
            role,
            f"AwsSolutions-IAM5[Resource::{exported}/{name}/*]",
            "A model consists of many objects with one prefix",
        )


def create_artifact_bucket(scope: Construct, *, key: EncryptionKey, removal_policy: RemovalPolicy) -> ArtifactBucket:
    """Create an encrypted, versioned bucket that requires TLS.

    Hosts access the bucket through the network's gateway endpoint.
    """
    bucket = s3.Bucket(
        scope,
        "Artifacts",
        encryption=s3.BucketEncryption.KMS,
        encryption_key=key,
        bucket_key_enabled=True,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        enforce_ssl=True,
        versioned=True,
        lifecycle_rules=[
            s3.LifecycleRule(
                noncurrent_version_expiration=Duration.days(NONCURRENT_RETENTION_DAYS),
                abort_incomplete_multipart_upload_after=Duration.days(INCOMPLETE_UPLOAD_DAYS),
            )
        ],
        removal_policy=removal_policy,
    )
    acknowledge(bucket, "AwsSolutions-S1", "Hosts read public weights from it, and it keeps replaced versions")
    return ArtifactBucket(bucket, key)
