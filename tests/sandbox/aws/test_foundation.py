"""Alarms and their targets, keys, buckets, repositories and roles."""

from __future__ import annotations

import json

from tests.sandbox.aws.samples import att, foundation, observability
from tests.sandbox.aws.stacks import Deployed
from voice_sandbox.aws.process import LocalAws


def test_alarms_notify_the_topic(stack: Deployed) -> None:
    stack.create(observability(), Outputs={"Arn": {"Value": att("Alarm", "Arn")}})
    cloudwatch = stack.client("cloudwatch")
    (alarm,) = cloudwatch.describe_alarms()["MetricAlarms"]
    assert (alarm["AlarmName"], alarm["AlarmArn"]) == (stack["Alarm"], stack.outputs["Arn"])
    assert (alarm["Threshold"], alarm["DatapointsToAlarm"], alarm["TreatMissingData"]) == (205.0, 2, "notBreaching")
    assert alarm["Dimensions"] == [{"Name": "Fleet", "Value": "vad"}]
    assert alarm["AlarmActions"] == [stack["Topic"]]
    assert alarm["StateValue"] == "INSUFFICIENT_DATA"
    (composite,) = cloudwatch.describe_alarms(AlarmTypes=["CompositeAlarm"])["CompositeAlarms"]
    assert composite["AlarmRule"] == f'ALARM("{alarm["AlarmArn"]}")'
    assert (composite["ActionsSuppressor"], composite["ActionsSuppressorWaitPeriod"]) == (stack["Alarm"], 60)
    tags = cloudwatch.list_tags_for_resource(ResourceARN=alarm["AlarmArn"])["Tags"]
    assert tags == [{"Key": "team", "Value": "voice"}]


def test_the_topic_is_encrypted_and_notifies_its_subscribers(stack: Deployed) -> None:
    stack.create(observability())
    sns = stack.client("sns")
    attributes = sns.get_topic_attributes(TopicArn=stack["Topic"])["Attributes"]
    assert attributes["KmsMasterKeyId"] == "alias/aws/sns"
    assert json.loads(attributes["Policy"])["Statement"][0]["Sid"] == "alarms"
    endpoints = [item["Endpoint"] for item in sns.list_subscriptions_by_topic(TopicArn=stack["Topic"])["Subscriptions"]]
    assert endpoints == ["ops@example.com"]


def test_logs_are_retained_and_counted(stack: Deployed) -> None:
    stack.create(observability())
    logs = stack.client("logs")
    (shown,) = logs.describe_log_groups(logGroupNamePrefix=stack["LogGroup"])["logGroups"]
    assert shown["retentionInDays"] == 30
    (counted,) = logs.describe_metric_filters(logGroupName=stack["LogGroup"])["metricFilters"]
    assert counted["metricTransformations"][0]["dimensions"] == {"Host": "$.host"}


def test_a_budget_has_its_limit_and_its_subscribers(stack: Deployed) -> None:
    template = observability()
    stack.create(template)
    budgets = stack.client("budgets")
    place = {"AccountId": LocalAws.account, "BudgetName": stack["Budget"]}
    assert budgets.describe_budget(**place)["Budget"]["BudgetLimit"] == {"Amount": "1000", "Unit": "USD"}
    (notification,) = budgets.describe_notifications_for_budget(**place)["Notifications"]
    readers = budgets.describe_subscribers_for_notification(**place, Notification=notification)["Subscribers"]
    assert readers == [{"SubscriptionType": "EMAIL", "Address": "money@example.com"}]
    template["Budget"]["Properties"]["Budget"]["BudgetLimit"]["Amount"] = 500
    stack.update(template)
    assert budgets.describe_budget(**place)["Budget"]["BudgetLimit"]["Amount"] == "500"


def test_observability_changes_in_place(stack: Deployed) -> None:
    template = observability()
    stack.create(template)
    cloudwatch = stack.client("cloudwatch")
    cloudwatch.set_alarm_state(AlarmName=stack["Alarm"], StateValue="ALARM", StateReason="test")
    before = {name: stack[name] for name in template}
    template["Alarm"]["Properties"] |= {"Threshold": 230, "Tags": [{"Key": "team", "Value": "asr"}]}
    template["Topic"]["Properties"] |= {"DisplayName": "voice", "KmsMasterKeyId": "alias/voice"}
    template["LogGroup"]["Properties"] |= {"RetentionInDays": 60, "Tags": [{"Key": "team", "Value": "asr"}]}
    template["Dashboard"]["Properties"]["DashboardBody"] = '{"widgets": [], "start": "-PT1H"}'
    template["Errors"]["Properties"]["FilterPattern"] = "ERROR"
    stack.update(template)
    assert {name: stack[name] for name in template} == before
    (alarm,) = cloudwatch.describe_alarms()["MetricAlarms"]
    assert (alarm["Threshold"], alarm["StateValue"]) == (230.0, "ALARM")
    tags = cloudwatch.list_tags_for_resource(ResourceARN=alarm["AlarmArn"])["Tags"]
    assert tags == [{"Key": "team", "Value": "asr"}]
    attributes = stack.client("sns").get_topic_attributes(TopicArn=stack["Topic"])["Attributes"]
    assert (attributes["DisplayName"], attributes["KmsMasterKeyId"]) == ("voice", "alias/voice")
    logs = stack.client("logs")
    (group,) = logs.describe_log_groups(logGroupNamePrefix=stack["LogGroup"])["logGroups"]
    assert group["retentionInDays"] == 60
    assert logs.list_tags_for_resource(resourceArn=group["arn"].removesuffix(":*"))["tags"] == {"team": "asr"}
    assert "-PT1H" in cloudwatch.get_dashboard(DashboardName=stack["Dashboard"])["DashboardBody"]


def test_no_observability_resource_remains(stack: Deployed) -> None:
    stack.create(observability())
    group = stack["LogGroup"]
    stack.delete()
    alarms = stack.client("cloudwatch").describe_alarms(AlarmTypes=["MetricAlarm", "CompositeAlarm"])
    assert not alarms["MetricAlarms"] + alarms["CompositeAlarms"]
    assert not stack.client("cloudwatch").list_dashboards()["DashboardEntries"]
    assert not stack.client("sns").list_topics()["Topics"]
    assert not stack.client("sns").list_subscriptions()["Subscriptions"]
    assert not stack.client("logs").describe_log_groups(logGroupNamePrefix=group)["logGroups"]
    assert not stack.client("budgets").describe_budgets(AccountId=LocalAws.account).get("Budgets")


def test_the_key_rotates_and_encrypts_bucket_and_repository(stack: Deployed) -> None:
    stack.create(foundation(), Outputs={"Uri": {"Value": att("Parameter", "Value")}})
    kms = stack.client("kms")
    key = kms.describe_key(KeyId="alias/voice")["KeyMetadata"]
    assert key["KeyId"] == stack["Key"]
    assert kms.get_key_rotation_status(KeyId=stack["Key"])["KeyRotationEnabled"] is True
    s3 = stack.client("s3")
    (rule,) = s3.get_bucket_encryption(Bucket=stack["Bucket"])["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key["Arn"]}
    assert rule["BucketKeyEnabled"] is True
    (repository,) = stack.client("ecr").describe_repositories(repositoryNames=[stack["Repository"]])["repositories"]
    assert repository["encryptionConfiguration"] == {"encryptionType": "KMS", "kmsKey": key["Arn"]}
    assert repository["imageTagMutability"] == "IMMUTABLE"
    assert stack.outputs["Uri"] == repository["repositoryUri"]


def test_the_bucket_is_private_versioned_and_expires_objects(stack: Deployed) -> None:
    stack.create(foundation())
    s3, bucket = stack.client("s3"), stack["Bucket"]
    assert all(s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"].values())
    assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    (rule,) = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    assert (rule["Expiration"], rule["NoncurrentVersionExpiration"]) == ({"Days": 30}, {"NoncurrentDays": 3})
    assert rule["Transitions"] == [{"Days": 10, "StorageClass": "GLACIER"}]
    assert "aws:SecureTransport" in s3.get_bucket_policy(Bucket=bucket)["Policy"]
    s3.put_object(Bucket=bucket, Key="k", Body=b"a policy that denies plain transport is kept, not enforced")
    for version in s3.list_object_versions(Bucket=bucket)["Versions"]:
        s3.delete_object(Bucket=bucket, Key="k", VersionId=version["VersionId"])


def test_the_role_has_its_policies_and_the_profile_the_role(stack: Deployed) -> None:
    stack.create(foundation())
    iam, role = stack.client("iam"), stack["Role"]
    assert sorted(iam.list_role_policies(RoleName=role)["PolicyNames"]) == ["inline", "read"]
    attached = {item["PolicyArn"] for item in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]}
    assert attached == {"arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore", stack["Managed"]}
    profile = iam.get_instance_profile(InstanceProfileName=stack["Profile"])["InstanceProfile"]
    assert [item["RoleName"] for item in profile["Roles"]] == [role]


def test_the_foundation_changes_in_place(stack: Deployed) -> None:
    template = foundation()
    stack.create(template)
    before = {name: stack[name] for name in template}
    statement = template["Policy"]["Properties"]["PolicyDocument"]["Statement"][0]
    statement["Action"] = "s3:PutObject"
    template["Role"]["Properties"] |= {"ManagedPolicyArns": [], "Tags": [{"Key": "team", "Value": "asr"}]}
    template["Key"]["Properties"] |= {"Description": "changed", "EnableKeyRotation": False}
    del template["Bucket"]["Properties"]["LifecycleConfiguration"]
    template["Bucket"]["Properties"]["VersioningConfiguration"]["Status"] = "Suspended"
    template["Repository"]["Properties"]["ImageScanningConfiguration"]["ScanOnPush"] = False
    template["Profile"]["Properties"]["Roles"] = []
    stack.update(template)
    assert {name: stack[name] for name in template} == before
    iam, role = stack.client("iam"), stack["Role"]
    policy = iam.get_role_policy(RoleName=role, PolicyName="read")["PolicyDocument"]
    assert policy["Statement"][0]["Action"] == "s3:PutObject"
    version = iam.get_policy(PolicyArn=stack["Managed"])["Policy"]["DefaultVersionId"]
    assert version == "v2"
    assert iam.list_role_tags(RoleName=role)["Tags"] == [{"Key": "team", "Value": "asr"}]
    kms = stack.client("kms")
    assert kms.describe_key(KeyId=stack["Key"])["KeyMetadata"]["Description"] == "changed"
    assert kms.get_key_rotation_status(KeyId=stack["Key"])["KeyRotationEnabled"] is False
    assert stack.client("s3").get_bucket_versioning(Bucket=stack["Bucket"])["Status"] == "Suspended"
    (repository,) = stack.client("ecr").describe_repositories(repositoryNames=[stack["Repository"]])["repositories"]
    assert repository["imageScanningConfiguration"] == {"scanOnPush": False}


def test_only_the_key_pending_deletion_remains_of_the_foundation(stack: Deployed) -> None:
    stack.create(foundation())
    key, role = stack["Key"], stack["Role"]
    stack.delete()
    assert stack.client("kms").describe_key(KeyId=key)["KeyMetadata"]["KeyState"] == "PendingDeletion"
    assert "alias/voice" not in [item["AliasName"] for item in stack.client("kms").list_aliases()["Aliases"]]
    assert not stack.client("s3").list_buckets()["Buckets"]
    assert not stack.client("ecr").describe_repositories()["repositories"]
    assert role not in [item["RoleName"] for item in stack.client("iam").list_roles()["Roles"]]
    assert not stack.client("iam").list_policies(Scope="Local")["Policies"]
    assert not stack.client("iam").list_instance_profiles()["InstanceProfiles"]
