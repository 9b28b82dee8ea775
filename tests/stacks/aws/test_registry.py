"""Image repositories and the bucket for artifacts."""

from tests.synthesized import shipped


def test_the_artifact_bucket_is_private_encrypted_and_retained() -> None:
    registry = shipped("production-us-east-1")["registry"]
    ((name, bucket),) = registry.of_type("S3::Bucket").items()
    (default,) = bucket["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert default["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
    assert bucket["Properties"]["VersioningConfiguration"] == {"Status": "Enabled"}
    assert all(bucket["Properties"]["PublicAccessBlockConfiguration"].values())
    (rule,) = bucket["Properties"]["LifecycleConfiguration"]["Rules"]
    assert rule["NoncurrentVersionExpiration"]["NoncurrentDays"] == 30
    assert rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"] == 7
    assert bucket["DeletionPolicy"] == "RetainExceptOnCreate"
    (policy,) = registry.properties("S3::BucketPolicy")
    assert policy["Bucket"] == {"Ref": name}
    denied = [each for each in policy["PolicyDocument"]["Statement"] if each["Effect"] == "Deny"]
    assert [each["Condition"] for each in denied] == [{"Bool": {"aws:SecureTransport": "false"}}]


def test_hosts_reach_the_artifact_bucket_through_a_gateway_endpoint() -> None:
    endpoints = shipped("production-us-east-1")["network"].properties("EC2::VPCEndpoint")
    (s3,) = [each for each in endpoints if each.get("VpcEndpointType") == "Gateway"]
    assert "s3" in str(s3["ServiceName"])
    assert len(s3["RouteTableIds"]) == 9  # of every subnet
