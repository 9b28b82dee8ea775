"""The archive of transcripts: a bucket for the gateway's tasks."""

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from voice_blueprint.contract.session_api import ARCHIVE_INDEX_PREFIX, ARCHIVE_PREFIX, USAGE_PREFIX
from voice_constructs.aws.acknowledge import acknowledge
from voice_constructs.aws.encryption import EncryptionKey


class TranscriptArchive(Construct):
    """An encrypted bucket for transcripts. It has no versions, so that deletions are final.

    Attributes:
        bucket: The bucket.
    """

    def __init__(self, scope: Construct, id_: str, *, retention_days: int, removal_policy: RemovalPolicy) -> None:
        super().__init__(scope, id_)
        self._key = EncryptionKey(self, "Key", purpose="archived transcripts", removal_policy=removal_policy)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            encryption=s3.BucketEncryption.KMS,
            encryption_key=self._key,
            # With a bucket key, one KMS request covers many objects; otherwise each transcript requires one.
            bucket_key_enabled=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            # Small objects do not benefit from a colder storage class, whose minimum size is 128 KiB.
            lifecycle_rules=[s3.LifecycleRule(expiration=Duration.days(retention_days))],
            removal_policy=removal_policy,
        )
        acknowledge(
            self.bucket,
            "AwsSolutions-S1",
            "Callers read it through the gateway, and the API's access log records each of their requests",
        )

    @property
    def url(self) -> str:
        """URL of the archive in the gateway's configuration."""
        return f"https://{self.bucket.bucket_regional_domain_name}"

    def grant_access(self, role: iam.IRole, *, region: str) -> None:
        """Grant a role permission to write, read and delete transcripts by key, but not to list the bucket."""
        via_s3 = {"StringEquals": {"kms:ViaService": f"s3.{region}.amazonaws.com"}}
        prefixes = (ARCHIVE_PREFIX, ARCHIVE_INDEX_PREFIX, USAGE_PREFIX)
        transcripts, index, usage = (self.bucket.arn_for_objects(f"{each}*") for each in prefixes)
        for actions, resource, conditions in (
            (["s3:PutObject", "s3:GetObject", "s3:DeleteObject"], transcripts, None),
            (["s3:PutObject"], index, None),
            (["s3:PutObject"], usage, None),
            (["kms:Decrypt", "kms:GenerateDataKey"], self._key.key_arn, via_s3),
        ):
            role.add_to_principal_policy(
                iam.PolicyStatement(actions=actions, resources=[resource], conditions=conditions)
            )
        cfn_bucket = self.bucket.node.default_child
        assert isinstance(cfn_bucket, s3.CfnBucket)  # noqa: S101  the L2's own resource
        name = Stack.of(self).get_logical_id(cfn_bucket)
        for prefix in prefixes:
            rule = f"AwsSolutions-IAM5[Resource::<{name}.Arn>/{prefix}*]"
            acknowledge(role, rule, "A transcript's key contains its session id, and a report's key its day")
