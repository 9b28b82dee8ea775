"""Stacks behave like in AWS: events, rollback, replacement, retention, exports and protection."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sandbox.aws.samples import ARM_IMAGE, ZONE, att, ref, resource, vpc
from tests.sandbox.aws.samples.parts import POLICY
from tests.sandbox.aws.stacks import Deployed
from voice_ops.aws.deletion import DeletionError, delete_stacks, sort_stacks_for_deletion
from voice_sandbox.aws.process import LocalAws

PARAMETER = resource("SSM::Parameter", Type="String", Value="one")


def parameter(name: str, value: object = "x") -> dict[str, Any]:
    return resource("SSM::Parameter", Name=name, Type="String", Value=value)


def test_an_unknown_type_is_refused_with_type_and_logical_id(stack: Deployed) -> None:
    with pytest.raises(ClientError, match=r"Unrecognized resource types: \[AWS::Voice::Fleet \(Choir\)\]"):
        stack.try_create({"Choir": resource("Voice::Fleet"), "P": PARAMETER})
    assert not stack.exists


@pytest.mark.parametrize("kind", ["CloudFormation::CustomResource", "CloudFormation::Stack"])
def test_unsupported_templates_are_refused(stack: Deployed, kind: str) -> None:
    with pytest.raises(ClientError, match=kind):
        stack.try_create({"Custom": resource(kind)})


def test_a_property_unknown_to_the_service_fails_the_deployment(stack: Deployed) -> None:
    assert stack.try_create({"Topic": resource("SNS::Subscription", TopicArm="x")}) == "ROLLBACK_COMPLETE"
    assert "Topic" in stack.reasons[0]
    wrong = {"Alarm": resource("CloudWatch::Alarm", EvaluationPeriods=1, Treshold=1)}
    stack.delete()
    assert stack.try_create(wrong) == "ROLLBACK_COMPLETE"
    assert "AWS::CloudWatch::Alarm: unknown property Treshold" in stack.reasons[0]


def test_a_failed_creation_rolls_everything_back(stack: Deployed) -> None:
    sharing = vpc() | {"Overlap": resource("EC2::Subnet", VpcId=ref("Vpc"), CidrBlock="10.0.0.0/24")}
    assert stack.try_create(sharing) == "ROLLBACK_COMPLETE"
    assert any("Overlap" in reason and "InvalidSubnet.Conflict" in reason for reason in stack.reasons)
    assert all(item["IsDefault"] for item in stack.client("ec2").describe_vpcs()["Vpcs"])


def test_events_describe_the_progress_of_a_deployment(stack: Deployed) -> None:
    stack.create({"P": PARAMETER})
    events = stack.cloudformation.describe_stack_events(StackName=stack.name)["StackEvents"]
    assert [(item["LogicalResourceId"], item["ResourceStatus"]) for item in reversed(events)] == [
        (stack.name, "CREATE_IN_PROGRESS"),
        ("P", "CREATE_IN_PROGRESS"),
        ("P", "CREATE_COMPLETE"),
        (stack.name, "CREATE_COMPLETE"),
    ]


def test_an_update_changes_in_place_and_keeps_the_name(stack: Deployed) -> None:
    stack.create({"P": PARAMETER})
    before = stack["P"]
    stack.update({"P": resource("SSM::Parameter", Type="String", Value="two")})
    assert stack["P"] == before
    assert stack.client("ssm").get_parameter(Name=before)["Parameter"]["Value"] == "two"


def test_unchanged_resources_are_not_updated(stack: Deployed) -> None:
    topic = resource("SNS::Topic")
    stack.create({"Topic": topic, "P": PARAMETER})
    before = stack["Topic"]
    stack.update({"Topic": topic, "P": resource("SSM::Parameter", Type="String", Value="two")})
    assert stack["Topic"] == before


def test_references_use_the_replacement_and_the_old_resource_is_deleted_last(stack: Deployed) -> None:
    def template(text: str) -> dict[str, Any]:
        group = resource("EC2::SecurityGroup", GroupDescription=text, VpcId=ref("Vpc"))
        return vpc() | {"Group": group, "P": resource("SSM::Parameter", Type="String", Value=ref("Group"))}

    stack.create(template("first"))
    old = stack["Group"]
    stack.update(template("second"))
    new = stack["Group"]
    assert new != old
    assert stack.client("ssm").get_parameter(Name=stack["P"])["Parameter"]["Value"] == new
    groups = [item["GroupId"] for item in stack.client("ec2").describe_security_groups()["SecurityGroups"]]
    assert new in groups
    assert old not in groups


def test_a_resource_with_an_explicit_name_cannot_be_replaced(stack: Deployed) -> None:
    def group(text: str) -> dict[str, Any]:
        return resource("EC2::SecurityGroup", GroupName="mine", GroupDescription=text, VpcId=ref("Vpc"))

    stack.create(vpc() | {"Group": group("first")})
    assert stack.try_update(vpc() | {"Group": group("second")}) == "UPDATE_ROLLBACK_COMPLETE"
    assert any("custom-named resource requires replacing. Rename mine" in reason for reason in stack.reasons)


def alarm(name: str, **properties: object) -> dict[str, Any]:
    given = {"Namespace": "voice", "MetricName": "m", "Period": 60, "Statistic": "Sum", "Threshold": 1} | properties
    comparison = "GreaterThanThreshold"
    return resource("CloudWatch::Alarm", AlarmName=name, ComparisonOperator=comparison, EvaluationPeriods=1, **given)


NAMED = {
    "Alarm": alarm("taken"),
    "Composite": resource("CloudWatch::CompositeAlarm", AlarmName="taken", AlarmRule="FALSE"),
    "Dashboard": resource("CloudWatch::Dashboard", DashboardName="taken", DashboardBody="{}"),
    "Topic": resource("SNS::Topic", TopicName="taken"),
    "Cluster": resource("ECS::Cluster", ClusterName="taken"),
    "Bucket": resource("S3::Bucket", BucketName="taken"),
    "Filter": resource(
        "Logs::MetricFilter",
        LogGroupName=ref("Logs"),
        FilterName="taken",
        FilterPattern="x",
        MetricTransformations=[{"MetricName": "m", "MetricNamespace": "n", "MetricValue": "1"}],
    ),
    "Component": resource("ImageBuilder::Component", Name="taken", Version="1.0.0", Platform="Linux", Data="x"),
}
LOGS = {"Logs": resource("Logs::LogGroup")}


@pytest.mark.parametrize("name", NAMED)
def test_a_name_in_use_fails_the_update_and_keeps_its_owner(stack: Deployed, name: str) -> None:
    """Many calls overwrite or return an existing resource, which the cleanup would then delete."""
    stack.create(LOGS | {"A": NAMED[name]})
    assert stack.try_update(LOGS | {"B": NAMED[name]}) == "UPDATE_ROLLBACK_COMPLETE"
    assert any(f"taken{'/1.0.0/1' * (name == 'Component')} already exists in stack arn:" in it for it in stack.reasons)
    if name == "Alarm":
        assert stack.client("cloudwatch").describe_alarms(AlarmNames=["taken"])["MetricAlarms"]
    stack.update(LOGS)
    stack.update(LOGS | {"B": NAMED[name]})


def test_an_alarm_of_another_type_cannot_have_the_same_name(stack: Deployed) -> None:
    stack.create({"A": alarm("taken")})
    assert stack.try_update({"B": NAMED["Composite"]}) == "UPDATE_ROLLBACK_COMPLETE"
    assert stack.client("cloudwatch").describe_alarms(AlarmNames=["taken"])["MetricAlarms"]


def test_a_changed_type_is_refused_before_any_change(stack: Deployed) -> None:
    stack.create({"X": PARAMETER, "Y": PARAMETER})
    topics = {"X": resource("SNS::Topic"), "Y": resource("SNS::Topic"), "Z": resource("SNS::Topic")}
    words = (
        r"Update of resource type is not permitted\. "
        r"The new template modifies resource type of the following resources: \[X, Y\]"
    )
    for change in (stack.try_update, stack.plan):
        with pytest.raises(ClientError, match=words):
            change(topics)
        assert stack.status == "CREATE_COMPLETE"
    stack.update({"Y": PARAMETER, "Z": resource("SNS::Topic")})


def test_two_stacks_cannot_have_a_resource_of_the_same_name(stack: Deployed, aws: LocalAws) -> None:
    other = Deployed(aws, "second-owner")
    stack.create({"A": NAMED["Topic"]})
    assert other.try_create({"A": NAMED["Topic"]}) == "ROLLBACK_COMPLETE"
    assert any(
        f":taken already exists in stack arn:aws:cloudformation:us-east-1:{aws.account}:stack/{stack.name}/" in it
        for it in other.reasons
    )
    other.delete()
    assert stack["A"] in [each["TopicArn"] for each in stack.client("sns").list_topics()["Topics"]]


def test_a_renamed_resource_cannot_take_a_name_that_is_still_in_use(stack: Deployed) -> None:
    stack.create({"A": alarm("one"), "B": alarm("two")})
    assert stack.try_update({"A": alarm("two"), "B": alarm("one")}) == "UPDATE_ROLLBACK_COMPLETE"
    found = stack.client("cloudwatch").describe_alarms(AlarmNames=["one", "two"])["MetricAlarms"]
    assert {each["AlarmName"] for each in found} == {"one", "two"}


def test_records_of_one_name_and_filters_of_two_groups_coexist(stack: Deployed) -> None:
    """Their physical ids are equal, but not all the properties that identify them."""

    def record(kind: str, value: str) -> dict[str, Any]:
        return resource(
            "Route53::RecordSet",
            HostedZoneId=ZONE,
            Name="both.example.com",
            Type=kind,
            TTL="60",
            ResourceRecords=[value],
        )

    groups = {name: resource("Logs::LogGroup") for name in ("Logs", "Other")}
    second = {**NAMED["Filter"], "Properties": {**NAMED["Filter"]["Properties"], "LogGroupName": ref("Other")}}
    records = {"V4": record("A", "192.0.2.1"), "V6": record("AAAA", "2001:db8::1")}
    stack.create(groups | records | {"One": NAMED["Filter"], "Two": second})


@pytest.mark.parametrize("kind", ["Component", "ImageRecipe"])
def test_a_component_or_recipe_cannot_be_replaced_under_its_version(stack: Deployed, kind: str) -> None:
    def image_part(value: str, version: str) -> dict[str, Any]:
        own = {"Component": {"Platform": "Linux", "Data": value}, "ImageRecipe": {"ParentImage": value}}[kind]
        return {"Part": resource(f"ImageBuilder::{kind}", Name="bake", Version=version, **own)}

    stack.create(image_part("first", "1.0.0"))
    assert stack.try_update(image_part("second", "1.0.0")) == "UPDATE_ROLLBACK_COMPLETE"
    assert any("/bake/1.0.0" in reason and "already exists" in reason for reason in stack.reasons)
    stack.update(image_part("second", "1.0.1"))


def test_a_failed_update_restores_the_previous_state(stack: Deployed) -> None:
    stack.create(vpc() | {"P": PARAMETER})
    old = stack["Group"]
    broken = vpc() | {
        "Group": resource("EC2::SecurityGroup", GroupDescription="another", VpcId=ref("Vpc")),
        "P": resource("SSM::Parameter", Type="String", Value="two"),
        "New": parameter("/new"),
        "Overlap": resource("EC2::Subnet", ["New", "P", "Group"], VpcId=ref("Vpc"), CidrBlock="10.0.0.0/24"),
    }
    assert stack.try_update(broken) == "UPDATE_ROLLBACK_COMPLETE"
    assert stack["Group"] == old
    ssm = stack.client("ssm")
    assert ssm.get_parameter(Name=stack["P"])["Parameter"]["Value"] == "one"
    with pytest.raises(ClientError, match="ParameterNotFound"):
        ssm.get_parameter(Name="/new")
    groups = stack.client("ec2").describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [stack["Vpc"]]}])
    assert {item["Description"] for item in groups["SecurityGroups"]} == {"default VPC security group", "test"}


def test_an_update_that_fails_midway_is_rolled_back_completely(stack: Deployed) -> None:
    role = resource("IAM::Role", Description="first", AssumeRolePolicyDocument=POLICY)
    stack.create({"Role": role})
    broken = resource("IAM::Role", Description="second", AssumeRolePolicyDocument={"Version": "never"})
    assert stack.try_update({"Role": broken}) == "UPDATE_ROLLBACK_COMPLETE"
    shown = stack.client("iam").get_role(RoleName=stack["Role"])["Role"]
    assert (shown["Description"], shown["AssumeRolePolicyDocument"]) == ("first", POLICY)


def add_launch_template(stack: Deployed, name: str) -> None:
    """Create a launch template that belongs to no stack."""
    stack.client("ec2").create_launch_template(LaunchTemplateName=name, LaunchTemplateData={"ImageId": "ami-12c6146b"})


@pytest.fixture
def stuck(stack: Deployed) -> Iterator[tuple[Deployed, dict[str, Any]]]:
    """Return a stack whose rollback has failed, since the launch template to return to is gone, and its template."""
    ec2 = stack.client("ec2")
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]

    def group(template: str) -> dict[str, Any]:
        version = {"LaunchTemplateName": template, "Version": "1"}
        return resource(
            "AutoScaling::AutoScalingGroup",
            MinSize="0",
            MaxSize="0",
            VPCZoneIdentifier=[subnet],
            LaunchTemplate=version,
        )

    for name in ("old", "new"):
        add_launch_template(stack, name)
    before = {"P": PARAMETER, "Group": group("old")}
    stack.create(before)
    ec2.delete_launch_template(LaunchTemplateName="old")
    kept = parameter("/of-the-update/kept") | {"DeletionPolicy": "Retain"}
    bad = resource("SSM::Parameter", ["Group", "New", "Kept"], Type="None", Value="x")
    after = before | {"Group": group("new"), "New": parameter("/of-the-update/new"), "Kept": kept, "Bad": bad}
    assert stack.try_update(after) == "UPDATE_ROLLBACK_FAILED"
    yield stack, before
    for each in ec2.describe_launch_templates()["LaunchTemplates"]:
        ec2.delete_launch_template(LaunchTemplateId=each["LaunchTemplateId"])
    with suppress(ClientError):
        stack.client("ssm").delete_parameter(Name="/of-the-update/kept")


def parameters_of_the_update(stack: Deployed) -> set[str]:
    found = stack.client("ssm").describe_parameters()["Parameters"]
    return {each["Name"] for each in found if each["Name"].startswith("/of-the-update/")}


def test_a_stack_whose_rollback_failed_is_not_updated(stuck: tuple[Deployed, dict[str, Any]]) -> None:
    stack, before = stuck
    words = "is in UPDATE_ROLLBACK_FAILED state and can not be updated"
    with pytest.raises(ClientError, match=words):
        stack.try_update(before | {"Another": PARAMETER})
    stack.plan(before | {"Another": PARAMETER})
    with pytest.raises(ClientError, match=words):
        stack.cloudformation.execute_change_set(StackName=stack.name, ChangeSetName="plan")
    stack.delete()
    assert parameters_of_the_update(stack) == {"/of-the-update/kept"}, "the others belong to the stack"


def test_a_failed_rollback_continues_when_its_cause_is_fixed(stuck: tuple[Deployed, dict[str, Any]]) -> None:
    stack, before = stuck
    stack.cloudformation.continue_update_rollback(StackName=stack.name)
    assert stack.status == "UPDATE_ROLLBACK_FAILED"
    add_launch_template(stack, "old")
    stack.cloudformation.continue_update_rollback(StackName=stack.name)
    assert stack.status == "UPDATE_ROLLBACK_COMPLETE", stack.reasons
    assert parameters_of_the_update(stack) == {"/of-the-update/kept"}
    with pytest.raises(ClientError, match="cannot be called from current stack status: UPDATE_ROLLBACK_COM"):
        stack.cloudformation.continue_update_rollback(StackName=stack.name)
    stack.update(before | {"Another": PARAMETER})


def test_a_failed_update_deletes_the_replacement_of_a_retained_resource(stack: Deployed) -> None:
    def group(text: str) -> dict[str, Any]:
        return resource("EC2::SecurityGroup", GroupDescription=text, VpcId=ref("Vpc")) | {"DeletionPolicy": "Retain"}

    stack.create(vpc() | {"Own": group("first")})
    bad = resource("SSM::Parameter", ["Own"], Type="None", Value="x")
    assert stack.try_update(vpc() | {"Own": group("second"), "Bad": bad}) == "UPDATE_ROLLBACK_COMPLETE"
    found = stack.client("ec2").describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [stack["Vpc"]]}])
    assert "second" not in {each["Description"] for each in found["SecurityGroups"]}
    stack.client("ec2").delete_security_group(GroupId=stack["Own"])


@pytest.mark.parametrize(("policy", "stays"), [("Retain", True), ("RetainExceptOnCreate", False)])
def test_retained_resources_of_a_failed_update_block_the_next(stack: Deployed, policy: str, stays: bool) -> None:
    kept = parameter("/kept") | {"DeletionPolicy": policy}
    bad = resource("SSM::Parameter", ["Kept"], Type="None", Value="x")
    stack.create({"P": PARAMETER})
    assert stack.try_update({"P": PARAMETER, "Kept": kept, "Bad": bad}) == "UPDATE_ROLLBACK_COMPLETE"
    again = stack.try_update({"P": PARAMETER, "Kept": kept})
    assert again == ("UPDATE_ROLLBACK_COMPLETE" if stays else "UPDATE_COMPLETE"), stack.reasons
    stack.delete()
    stack.client("ssm").delete_parameter(Name="/kept")


def test_an_update_without_changes_is_reported(stack: Deployed) -> None:
    stack.create({"P": PARAMETER})
    with pytest.raises(ClientError, match=r"No updates are to be performed\."):
        stack.try_update({"P": PARAMETER})


def test_a_retained_resource_is_not_deleted(stack: Deployed) -> None:
    stack.create({"Kept": parameter("/kept") | {"DeletionPolicy": "Retain"}, "Gone": parameter("/gone")})
    stack.delete()
    ssm = stack.client("ssm")
    assert ssm.get_parameter(Name="/kept")["Parameter"]["Value"] == "x"
    with pytest.raises(ClientError, match="ParameterNotFound"):
        ssm.get_parameter(Name="/gone")
    ssm.delete_parameter(Name="/kept")


@pytest.mark.parametrize(("policy", "stays"), [("Retain", True), ("RetainExceptOnCreate", False)])
def test_retained_resources_of_a_failed_create_block_the_next(stack: Deployed, policy: str, stays: bool) -> None:
    kept = parameter("/kept") | {"DeletionPolicy": policy}
    bad = resource("SSM::Parameter", Type="None", Value="x") | {"DependsOn": "Kept"}
    assert stack.try_create({"Kept": kept, "Bad": bad}) == "ROLLBACK_COMPLETE"
    stack.delete()
    again = stack.try_create({"Kept": kept})
    assert again == ("ROLLBACK_COMPLETE" if stays else "CREATE_COMPLETE"), stack.reasons
    stack.delete()
    stack.client("ssm").delete_parameter(Name="/kept")


def test_a_resource_removed_from_the_template_is_deleted_unless_retained(stack: Deployed) -> None:
    kept = parameter("/kept") | {"DeletionPolicy": "Retain"}
    stack.create({"P": PARAMETER, "Kept": kept, "Gone": parameter("/gone")})
    stack.update({"P": PARAMETER})
    ssm = stack.client("ssm")
    assert ssm.get_parameter(Name="/kept")["Parameter"]["Value"] == "x"
    with pytest.raises(ClientError, match="ParameterNotFound"):
        ssm.get_parameter(Name="/gone")
    ssm.delete_parameter(Name="/kept")


def test_undeletable_resources_fail_the_deletion_with_the_reason(stack: Deployed) -> None:
    stack.create({"Bucket": resource("S3::Bucket"), "P": PARAMETER})
    s3 = stack.client("s3")
    s3.put_object(Bucket=stack["Bucket"], Key="recording", Body=b"")
    stack.cloudformation.delete_stack(StackName=stack.name)
    assert stack.status == "DELETE_FAILED"
    assert any("Bucket" in reason and "not empty" in reason for reason in stack.reasons)
    s3.delete_object(Bucket=stack["Bucket"], Key="recording")
    stack.delete()


def test_a_resource_can_be_retained_after_a_failed_deletion(stack: Deployed) -> None:
    stack.create({"Bucket": resource("S3::Bucket")})
    bucket, s3 = stack["Bucket"], stack.client("s3")
    s3.put_object(Bucket=bucket, Key="recording", Body=b"")
    with pytest.raises(ClientError, match=r"RetainResources .* only for a stack in DELETE_FAILED, not CREATE_COMPLETE"):
        stack.cloudformation.delete_stack(StackName=stack.name, RetainResources=["Bucket"])
    assert stack["Bucket"] == bucket
    stack.cloudformation.delete_stack(StackName=stack.name)
    assert stack.status == "DELETE_FAILED"
    stack.cloudformation.delete_stack(StackName=stack.name, RetainResources=["Bucket"])
    assert not stack.exists
    s3.delete_object(Bucket=bucket, Key="recording")
    s3.delete_bucket(Bucket=bucket)


def test_a_protected_stack_is_not_deleted(stack: Deployed) -> None:
    stack.create({"P": PARAMETER})
    stack.cloudformation.update_termination_protection(StackName=stack.name, EnableTerminationProtection=True)
    with pytest.raises(ClientError, match="TerminationProtection is enabled"):
        stack.cloudformation.delete_stack(StackName=stack.name)
    assert stack.status == "CREATE_COMPLETE"


def test_exports_can_be_imported_and_cannot_be_removed_while_in_use(stack: Deployed, aws: LocalAws) -> None:
    def producer(value: str) -> dict[str, Any]:
        return {"Value": {"Value": value, "Export": {"Name": "voice-value"}}}

    reader = Deployed(aws, "reader")
    stack.create({"P": PARAMETER}, Outputs=producer("first"))
    reader.create({"P": parameter("/read", {"Fn::ImportValue": "voice-value"})})
    try:
        assert aws.client("ssm").get_parameter(Name="/read")["Parameter"]["Value"] == "first"
        assert stack.try_update({"P": PARAMETER}, Outputs=producer("second")) == "UPDATE_ROLLBACK_COMPLETE"
        stack.cloudformation.delete_stack(StackName=stack.name)
        assert stack.status == "UPDATE_ROLLBACK_COMPLETE", "the status before the deletion"
        shown = stack.cloudformation.describe_stacks(StackName=stack.name)["Stacks"][0]
        assert shown["StackStatusReason"] == "Export voice-value cannot be deleted as it is in use by reader"
        stack.update({"P": PARAMETER, "Another": PARAMETER}, Outputs=producer("first"))
    finally:
        reader.delete()
    stack.delete()
    assert "voice-value" not in [item["Name"] for item in stack.cloudformation.list_exports()["Exports"]]


def test_importers_are_deleted_first_and_a_refusal_is_reported(
    stack: Deployed, aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voice_ops.aws.deletion.POLL_INTERVAL_S", 0.05)
    reader, told = Deployed(aws, "a-reader"), list[str]()
    stack.create({"P": PARAMETER}, Outputs={"Value": {"Value": "x", "Export": {"Name": "of-order"}}})
    reader.create({"P": resource("SSM::Parameter", Type="String", Value={"Fn::ImportValue": "of-order"})})
    client = stack.cloudformation
    live = {each.name: client.get_template(StackName=each.name)["TemplateBody"] for each in (stack, reader)}
    with pytest.raises(DeletionError, match=f"{stack.name} was not deleted: Export of-order .* in use by a-reader"):
        delete_stacks(client, [stack.name], told.append)
    order = sort_stacks_for_deletion([stack.name, reader.name], live)
    assert order == (reader.name, stack.name)
    delete_stacks(client, order, told.append)
    assert told == [f"delete {name}" for name in (stack.name, reader.name, stack.name)]
    assert not stack.exists
    assert not reader.exists


def test_an_export_added_by_an_update_can_be_imported(stack: Deployed, aws: LocalAws) -> None:
    stack.create({"P": PARAMETER})
    stack.update({"P": PARAMETER}, Outputs={"Late": {"Value": "x", "Export": {"Name": "late"}}})
    reader = Deployed(aws, "late-reader")
    reader.create({"P": resource("SSM::Parameter", Type="String", Value={"Fn::ImportValue": "late"})})
    reader.delete()


RETAINED_LOG_GROUP = {"Type": "AWS::Logs::LogGroup", "DeletionPolicy": "RetainExceptOnCreate"}
NAMED_LOG_GROUP = {**RETAINED_LOG_GROUP, "Properties": {"LogGroupName": "/kept/named", "RetentionInDays": 7}}


def import_into(stack: Deployed, resources: dict[str, Any], kind: str = "CREATE") -> str:
    """Execute a change set that imports existing resources, and return the stack's final status."""
    body = json.dumps({"Resources": resources})
    named = {"StackName": stack.name, "ChangeSetName": "adopt"}
    stack.cloudformation.create_change_set(**named, TemplateBody=body, ChangeSetType=kind, ImportExistingResources=True)
    stack.cloudformation.execute_change_set(**named)
    return stack.status


def resource_status(stack: Deployed, logical_id: str) -> str:
    found = stack.cloudformation.describe_stack_resource(StackName=stack.name, LogicalResourceId=logical_id)
    return str(found["StackResourceDetail"]["ResourceStatus"])


def test_retained_resources_are_imported_by_name_or_conflict(stack: Deployed) -> None:
    logs = stack.client("logs")
    stack.create({"Logs": NAMED_LOG_GROUP})
    logs.create_log_stream(logGroupName="/kept/named", logStreamName="of-the-first-life")
    stack.delete()
    assert stack.try_create({"Logs": NAMED_LOG_GROUP}) == "ROLLBACK_COMPLETE"
    stack.delete()
    # The failure of another resource in the same operation does not remove an existing one.
    bad = resource("SSM::Parameter", Type="String", Value={"Fn::ImportValue": "nothing"})
    assert import_into(stack, {"Logs": NAMED_LOG_GROUP, "Z": bad}) == "ROLLBACK_COMPLETE"
    assert logs.describe_log_streams(logGroupName="/kept/named")["logStreams"]
    stack.delete()
    assert import_into(stack, {"Logs": NAMED_LOG_GROUP}) == "CREATE_COMPLETE", stack.reasons
    assert (stack["Logs"], resource_status(stack, "Logs")) == ("/kept/named", "IMPORT_COMPLETE")
    assert logs.describe_log_streams(logGroupName="/kept/named")["logStreams"]
    stack.delete()
    logs.delete_log_group(logGroupName="/kept/named")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({**NAMED_LOG_GROUP, "DeletionPolicy": "Delete"}, "its policy would delete it"),
        (
            {**NAMED_LOG_GROUP, "Properties": {"LogGroupName": {"Fn::Join": ["", ["/kept/", "named"]]}}},
            "its name is no literal",
        ),
    ],
)
def test_automatic_import_requires_literal_names_and_a_retaining_policy(
    stack: Deployed, body: dict[str, Any], reason: str
) -> None:
    logs = stack.client("logs")
    logs.create_log_group(logGroupName="/kept/named")
    assert import_into(stack, {"Logs": body}) == "ROLLBACK_COMPLETE", reason
    logs.delete_log_group(logGroupName="/kept/named")


def test_a_resource_of_another_stack_is_not_imported(stack: Deployed, aws: LocalAws) -> None:
    other = Deployed(aws, "owner")
    other.create({"Logs": NAMED_LOG_GROUP})
    assert import_into(stack, {"Logs": NAMED_LOG_GROUP}) == "ROLLBACK_COMPLETE"
    other.delete()
    stack.client("logs").delete_log_group(logGroupName="/kept/named")


def test_a_nonexistent_export_fails_the_deployment(stack: Deployed) -> None:
    assert stack.try_create({"P": parameter("/p", {"Fn::ImportValue": "nothing"})}) == "ROLLBACK_COMPLETE"
    assert stack.reasons == ["P: No export named nothing found."]


def test_parameters_come_from_the_caller_the_default_or_the_parameter_store(stack: Deployed) -> None:
    template = {
        "Parameters": {
            "Given": {"Type": "Number"},
            "Usual": {"Type": "String", "Default": "usual", "AllowedValues": ["usual", "rare"]},
            "Image": {"Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>", "Default": ARM_IMAGE},
        },
        "Resources": {"P": PARAMETER},
        "Outputs": {name: {"Value": ref(name)} for name in ("Given", "Usual", "Image")},
    }
    arguments: dict[str, Any] = {"StackName": stack.name, "TemplateBody": json.dumps(template)}
    given = [{"ParameterKey": "Given", "ParameterValue": "3"}]
    stack.cloudformation.create_stack(**arguments, Parameters=given)
    assert stack.outputs["Given"] == "3"
    assert stack.outputs["Usual"] == "usual"
    image = stack.client("ec2").describe_images(ImageIds=[stack.outputs["Image"]])["Images"][0]
    assert image["Architecture"] == "arm64"
    wrong = [*given, {"ParameterKey": "Usual", "ParameterValue": "never"}]
    with pytest.raises(ClientError, match=r"Parameter 'Usual' is 'never', but must be one of \['usual', 'rare'\]"):
        stack.cloudformation.update_stack(**arguments, Parameters=wrong)
    previous = [{"ParameterKey": "Given", "UsePreviousValue": True}]
    with pytest.raises(ClientError, match="No updates are to be performed"):
        stack.cloudformation.update_stack(**arguments, Parameters=previous)


def test_a_false_condition_omits_resources(stack: Deployed) -> None:
    off = parameter("/off") | {"Condition": "Never"}
    stack.create({"P": PARAMETER, "Off": off}, Conditions={"Never": {"Fn::Equals": [1, 2]}})
    resources = stack.cloudformation.describe_stack_resources(StackName=stack.name)["StackResources"]
    assert [item["LogicalResourceId"] for item in resources] == ["P"]


NEVER = {"Never": {"Fn::Equals": [1, 2]}}


@pytest.mark.parametrize(
    "use", [ref("A"), att("A", "Value"), {"Fn::Sub": "${A}"}, {"Fn::Sub": ["${x}", {"x": ref("A")}]}]
)
def test_a_reference_to_a_missing_resource_is_refused_before_any_change(stack: Deployed, use: dict[str, Any]) -> None:
    stack.create({"A": PARAMETER, "B": parameter("/b", use)}, Outputs={"Out": {"Value": use}})
    words = r"Template format error: Unresolved resource dependencies \[A\] in the Resources block of the template"
    for change in (stack.try_update, stack.plan):
        with pytest.raises(ClientError, match=words):
            change({"B": parameter("/b", use)})
    with pytest.raises(ClientError, match=words.replace("Resources block", "Outputs block")):
        stack.try_update({"B": parameter("/b")}, Outputs={"Out": {"Value": use}})
    assert stack.status == "CREATE_COMPLETE"
    off = {"A": PARAMETER | {"Condition": "Never"}}
    assert stack.try_update(off | {"B": parameter("/b", use)}, Conditions=NEVER) == "UPDATE_ROLLBACK_COMPLETE"
    assert any("Unresolved resource dependencies [A]" in reason for reason in stack.reasons)
    chosen = {"Fn::If": ["Never", use, "x"]}
    stack.update(off | {"B": parameter("/b", chosen) | {"DependsOn": "A"}}, Conditions=NEVER)


def test_a_dependency_on_a_missing_resource_is_refused(stack: Deployed) -> None:
    for wrong in ({"DependsOn": "None"}, {"DependsOn": ["P", "None"]}, {"UpdatePolicy": {"Group": ref("None")}}):
        with pytest.raises(ClientError, match=r"Unresolved resource dependencies \[None\] in the Resources block"):
            stack.try_create({"P": PARAMETER, "B": PARAMETER | wrong})
    with pytest.raises(ClientError, match=r"Unresolved resource dependencies \[AWS::Regoin\]"):
        stack.try_create({"B": parameter("/b", ref("AWS::Regoin"))})
    assert not stack.exists
    text = {"Fn::Sub": ["${own} ${!Literal} ${AWS::Region} ${Given}", {"own": "x"}]}
    stack.create({"B": parameter("/b", text)}, Parameters={"Given": {"Type": "String", "Default": "y"}})
    assert stack.client("ssm").get_parameter(Name="/b")["Parameter"]["Value"] == "x ${Literal} us-east-1 y"


@pytest.mark.parametrize("function", [{"Fn::Length": ["x"]}, {"Fn::ToJsonString": {"x": 1}}])
def test_functions_of_a_transform_are_refused_without_it(stack: Deployed, function: dict[str, Any]) -> None:
    """The transform AWS::LanguageExtensions is refused as well."""
    assert stack.try_create({"P": parameter("/p", function)}) == "ROLLBACK_COMPLETE"
    assert any(f"does not support {next(iter(function))}" in reason for reason in stack.reasons)


def test_creating_a_change_set_changes_nothing(stack: Deployed) -> None:
    cloudformation = stack.cloudformation
    arguments: dict[str, Any] = {"StackName": stack.name, "ChangeSetName": "plan"}

    def plan(value: str, kind: str) -> dict[str, Any]:
        body = json.dumps({"Resources": {"P": parameter("/planned", value)}})
        cloudformation.create_change_set(**arguments, ChangeSetType=kind, TemplateBody=body)
        shown: dict[str, Any] = cloudformation.describe_change_set(**arguments)
        return shown

    plan("one", "CREATE")
    assert stack.status == "REVIEW_IN_PROGRESS"
    cloudformation.execute_change_set(**arguments)
    assert stack.status == "CREATE_COMPLETE"
    assert plan("one", "UPDATE")["Status"] == "FAILED"
    cloudformation.delete_change_set(**arguments)
    planned = plan("two", "UPDATE")["Changes"]
    assert [item["ResourceChange"]["Action"] for item in planned] == ["Modify"]
    cloudformation.execute_change_set(**arguments)
    assert stack.client("ssm").get_parameter(Name="/planned")["Parameter"]["Value"] == "two"


def test_an_attribute_missing_from_its_type_is_reported(stack: Deployed) -> None:
    wrong = {"Wrong": {"Value": {"Fn::GetAtt": ["P", "Colour"]}}}
    stack.try_create({"P": PARAMETER}, Outputs=wrong)
    shown = stack.cloudformation.describe_stack_events(StackName=stack.name)["StackEvents"]
    assert any("P (AWS::SSM::Parameter) does not support attribute type Colour" in str(item) for item in shown)


def test_a_change_set_without_a_type_updates_with_the_previous_template(stack: Deployed) -> None:
    """Like `aws cloudformation create-change-set --use-previous-template`."""
    wanted = {"Wanted": {"Type": "String", "Default": "one"}}
    stack.create({"P": parameter("/previous", ref("Wanted"))}, Parameters=wanted)
    arguments: dict[str, Any] = {"StackName": stack.name, "ChangeSetName": "plan"}
    given = [{"ParameterKey": "Wanted", "ParameterValue": "two"}]
    stack.cloudformation.create_change_set(**arguments, UsePreviousTemplate=True, Parameters=given)
    assert stack.cloudformation.describe_change_set(**arguments)["ExecutionStatus"] == "AVAILABLE"
    stack.cloudformation.execute_change_set(**arguments)
    assert stack.client("ssm").get_parameter(Name="/previous")["Parameter"]["Value"] == "two"
    given = [{"ParameterKey": "Wanted", "ParameterValue": "three"}]
    stack.cloudformation.update_stack(StackName=stack.name, UsePreviousTemplate=True, Parameters=given)
    assert stack.client("ssm").get_parameter(Name="/previous")["Parameter"]["Value"] == "three"

    tags = [{"Key": "team", "Value": "speech"}]
    stack.cloudformation.update_stack(StackName=stack.name, UsePreviousTemplate=True, Parameters=given, Tags=tags)
    stack.cloudformation.create_change_set(**arguments, UsePreviousTemplate=True, Parameters=given)
    nothing = stack.cloudformation.describe_change_set(**arguments)
    assert (nothing["Status"], "didn't contain changes" in nothing["StatusReason"]) == ("FAILED", True)
    given = [{"ParameterKey": "Wanted", "ParameterValue": "four"}]
    arguments["ChangeSetName"] = "another"
    stack.cloudformation.create_change_set(**arguments, UsePreviousTemplate=True, Parameters=given)
    stack.cloudformation.execute_change_set(**arguments)
    assert stack.cloudformation.describe_stacks(StackName=stack.name)["Stacks"][0]["Tags"] == tags


def test_a_deleted_change_set_is_not_found(stack: Deployed) -> None:
    """The CDK deletes an old change set before each update, and polls until it is not found."""
    stack.create({"P": PARAMETER})
    with pytest.raises(stack.cloudformation.exceptions.ChangeSetNotFoundException):
        stack.cloudformation.describe_change_set(StackName=stack.name, ChangeSetName="gone")
