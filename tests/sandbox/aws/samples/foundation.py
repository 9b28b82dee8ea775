"""Keys, buckets, repositories and roles."""

from __future__ import annotations

from tests.sandbox.aws.samples.parts import POLICY, TAGS, Resources, att, ref, resource


def foundation() -> Resources:
    """Return keys, buckets, repositories, parameters and roles."""
    statement = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": {"Fn::Sub": "${Bucket.Arn}/*"}}
    policy = {"Version": "2012-10-17", "Statement": [statement]}
    return {
        "Key": resource(
            "KMS::Key",
            Description="voice",
            EnableKeyRotation=True,
            KeyPolicy={
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Principal": {"AWS": {"Fn::Sub": "arn:aws:iam::${AWS::AccountId}:root"}},
                        "Action": "kms:*",
                        "Resource": "*",
                    }
                ],
            },
            Tags=TAGS,
        ),
        "Component": resource(
            "ImageBuilder::Component", Name="bake-1", Version="1.0.0", Platform="Linux", Data="schemaVersion: 1.0"
        ),
        "Recipe": resource(
            "ImageBuilder::ImageRecipe",
            Name="bake-1",
            Version="1.0.0",
            ParentImage="ssm:/aws/image",
            Components=[{"ComponentArn": att("Component", "Arn")}],
        ),
        "Builder": resource("ImageBuilder::InfrastructureConfiguration", Name="bake", InstanceProfileName="profile"),
        "Distribution": resource(
            "ImageBuilder::DistributionConfiguration", Name="bake", Distributions=[{"Region": "us-east-1"}]
        ),
        "Pipeline": resource(
            "ImageBuilder::ImagePipeline",
            Name="bake",
            ImageRecipeArn=att("Recipe", "Arn"),
            InfrastructureConfigurationArn=att("Builder", "Arn"),
            DistributionConfigurationArn=att("Distribution", "Arn"),
        ),
        "Alias": resource("KMS::Alias", AliasName="alias/voice", TargetKeyId=ref("Key")),
        "Bucket": resource(
            "S3::Bucket",
            BucketEncryption={
                "ServerSideEncryptionConfiguration": [
                    {
                        "BucketKeyEnabled": True,
                        "ServerSideEncryptionByDefault": {
                            "SSEAlgorithm": "aws:kms",
                            "KMSMasterKeyID": att("Key", "Arn"),
                        },
                    }
                ]
            },
            PublicAccessBlockConfiguration={
                "BlockPublicAcls": True,
                "BlockPublicPolicy": True,
                "IgnorePublicAcls": True,
                "RestrictPublicBuckets": True,
            },
            VersioningConfiguration={"Status": "Enabled"},
            OwnershipControls={"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]},
            LifecycleConfiguration={
                "Rules": [
                    {
                        "Id": "age",
                        "Status": "Enabled",
                        "ExpirationInDays": 30,
                        "NoncurrentVersionExpiration": {"NoncurrentDays": 3},
                        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
                        "Transitions": [{"StorageClass": "GLACIER", "TransitionInDays": 10}],
                    }
                ]
            },
            Tags=TAGS,
        ),
        "BucketPolicy": resource(
            "S3::BucketPolicy",
            Bucket=ref("Bucket"),
            PolicyDocument={
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Deny",
                        "Principal": {"AWS": "*"},
                        "Action": "s3:*",
                        "Resource": [att("Bucket", "Arn"), {"Fn::Sub": "${Bucket.Arn}/*"}],
                        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                    }
                ],
            },
        ),
        "Repository": resource(
            "ECR::Repository",
            ImageTagMutability="IMMUTABLE",
            ImageScanningConfiguration={"ScanOnPush": True},
            EncryptionConfiguration={"EncryptionType": "KMS", "KmsKey": att("Key", "Arn")},
            RepositoryPolicyText={
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Sid": "pull",
                        "Effect": "Allow",
                        "Principal": {"Service": "ecs-tasks.amazonaws.com"},
                        "Action": "ecr:BatchGetImage",
                    }
                ],
            },
            Tags=TAGS,
        ),
        "Parameter": resource("SSM::Parameter", Type="String", Value=att("Repository", "RepositoryUri")),
        "Role": resource(
            "IAM::Role",
            AssumeRolePolicyDocument=POLICY,
            ManagedPolicyArns=["arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"],
            Policies=[{"PolicyName": "inline", "PolicyDocument": policy}],
            Tags=TAGS,
        ),
        "Policy": resource("IAM::Policy", PolicyName="read", PolicyDocument=policy, Roles=[ref("Role")]),
        "Managed": resource("IAM::ManagedPolicy", PolicyDocument=policy, Roles=[ref("Role")]),
        "Profile": resource("IAM::InstanceProfile", Roles=[ref("Role")]),
    }
