"""Weights and compiled programs: where hosts fetch them."""

from dataclasses import dataclass

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from voice_constructs.aws.acknowledge import acknowledge
from voice_constructs.aws.encryption import EncryptionKey

REPLACED_DAYS = 30
"""How long what a job has written over is kept: a rollback to it is a matter of days."""
UPLOAD_DAYS = 7
"""How long the parts of an upload that was broken off are kept."""


@dataclass(frozen=True)
class Artifacts:
    """The bucket and the key that it is encrypted with."""

    bucket: s3.Bucket
    key: EncryptionKey

    def url(self, name: str) -> str:
        return f"s3://{self.bucket.bucket_name}/{name}"

    def allow(self, role: iam.Role, name: str, *, region: str, write: bool = False) -> None:
        """Let a role of another stack read the objects below a name, or write them."""
        via_s3 = {"StringEquals": {"kms:ViaService": f"s3.{region}.amazonaws.com"}}
        below = {"StringLike": {"s3:prefix": f"{name}/*"}}
        for actions, resource, conditions in (
            (["s3:PutObject"] if write else ["s3:GetObject"], self.bucket.arn_for_objects(f"{name}/*"), None),
            (["s3:ListBucket"], self.bucket.bucket_arn, below),
            # An upload in parts is read again by S3 when it puts them together.
            (["kms:Decrypt", "kms:GenerateDataKey"] if write else ["kms:Decrypt"], self.key.key_arn, via_s3),
        ):
            role.add_to_policy(iam.PolicyStatement(actions=actions, resources=[resource], conditions=conditions))
        here = Stack.of(self.bucket)
        exported = here.resolve(here.export_value(self.bucket.bucket_arn))["Fn::ImportValue"]
        acknowledge(role, f"AwsSolutions-IAM5[Resource::{exported}/{name}/*]", "A model is many objects below one name")


def artifacts(scope: Construct, *, key: EncryptionKey, removal_policy: RemovalPolicy) -> Artifacts:
    """Make the bucket: encrypted, versioned, TLS only. Hosts reach it through the network's gateway endpoint."""
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
                noncurrent_version_expiration=Duration.days(REPLACED_DAYS),
                abort_incomplete_multipart_upload_after=Duration.days(UPLOAD_DAYS),
            )
        ],
        removal_policy=removal_policy,
    )
    acknowledge(bucket, "AwsSolutions-S1", "Hosts read public weights from it; CloudTrail has who wrote them")
    return Artifacts(bucket, key)
