"""Stacks live as in AWS: events, rollback, replacement, retention, exports, protection."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sandbox.aws.process import LocalAws
from tests.sandbox.aws.samples import ARM_IMAGE, ref, resource, vpc
from tests.sandbox.aws.samples.parts import POLICY
from tests.sandbox.aws.stacks import Deployed

PARAMETER = resource("SSM::Parameter", Type="String", Value="one")


def parameter(name: str, value: object = "x") -> dict[str, Any]:
    return resource("SSM::Parameter", Name=name, Type="String", Value=value)


def test_an_unknown_type_is_refused_with_type_and_logical_id(stack: Deployed) -> None:
    with pytest.raises(ClientError, match=r"Unrecognized resource types: \[AWS::Voice::Fleet \(Choir\)\]"):
        stack.try_create({"Choir": resource("Voice::Fleet"), "P": PARAMETER})
    assert not stack.exists


@pytest.mark.parametrize("kind", ["CloudFormation::CustomResource", "CloudFormation::Stack"])
def test_what_the_sandbox_cannot_run_is_refused(stack: Deployed, kind: str) -> None:
    with pytest.raises(ClientError, match=kind):
        stack.try_create({"Custom": resource(kind)})


def test_a_property_that_the_service_does_not_know_fails_the_deployment(stack: Deployed) -> None:
    assert stack.try_create({"Topic": resource("SNS::Subscription", TopicArm="x")}) == "ROLLBACK_COMPLETE"
    assert "Topic" in stack.reasons[0]
    wrong = {"Alarm": resource("CloudWatch::Alarm", EvaluationPeriods=1, Treshold=1)}
    stack.delete()
    assert stack.try_create(wrong) == "ROLLBACK_COMPLETE"
    assert "AWS::CloudWatch::Alarm: unknown property Treshold" in stack.reasons[0]


def test_a_failed_creation_takes_everything_back(stack: Deployed) -> None:
    sharing = vpc() | {"Overlap": resource("EC2::Subnet", VpcId=ref("Vpc"), CidrBlock="10.0.0.0/24")}
    assert stack.try_create(sharing) == "ROLLBACK_COMPLETE"
    assert any("Overlap" in reason and "InvalidSubnet.Conflict" in reason for reason in stack.reasons)
    assert all(item["IsDefault"] for item in stack.client("ec2").describe_vpcs()["Vpcs"])


def test_events_tell_the_course_of_a_deployment(stack: Deployed) -> None:
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


def test_what_did_not_change_is_left_alone(stack: Deployed) -> None:
    topic = resource("SNS::Topic")
    stack.create({"Topic": topic, "P": PARAMETER})
    before = stack["Topic"]
    stack.update({"Topic": topic, "P": resource("SSM::Parameter", Type="String", Value="two")})
    assert stack["Topic"] == before


def test_a_replacement_reaches_what_refers_to_it_and_goes_last(stack: Deployed) -> None:
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


def test_a_resource_with_a_name_of_its_own_cannot_be_replaced(stack: Deployed) -> None:
    def group(text: str) -> dict[str, Any]:
        return resource("EC2::SecurityGroup", GroupName="mine", GroupDescription=text, VpcId=ref("Vpc"))

    stack.create(vpc() | {"Group": group("first")})
    assert stack.try_update(vpc() | {"Group": group("second")}) == "UPDATE_ROLLBACK_COMPLETE"
    assert any("custom-named resource requires replacing. Rename mine" in reason for reason in stack.reasons)


def test_a_failed_update_goes_back_to_what_was_there(stack: Deployed) -> None:
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


def test_an_update_that_fails_half_way_leaves_nothing_of_itself(stack: Deployed) -> None:
    role = resource("IAM::Role", Description="first", AssumeRolePolicyDocument=POLICY)
    stack.create({"Role": role})
    broken = resource("IAM::Role", Description="second", AssumeRolePolicyDocument={"Version": "never"})
    assert stack.try_update({"Role": broken}) == "UPDATE_ROLLBACK_COMPLETE"
    shown = stack.client("iam").get_role(RoleName=stack["Role"])["Role"]
    assert (shown["Description"], shown["AssumeRolePolicyDocument"]) == ("first", POLICY)


def test_an_update_without_changes_says_so(stack: Deployed) -> None:
    stack.create({"P": PARAMETER})
    with pytest.raises(ClientError, match=r"No updates are to be performed\."):
        stack.try_update({"P": PARAMETER})


def test_a_retained_resource_stays(stack: Deployed) -> None:
    stack.create({"Kept": parameter("/kept") | {"DeletionPolicy": "Retain"}, "Gone": parameter("/gone")})
    stack.delete()
    ssm = stack.client("ssm")
    assert ssm.get_parameter(Name="/kept")["Parameter"]["Value"] == "x"
    with pytest.raises(ClientError, match="ParameterNotFound"):
        ssm.get_parameter(Name="/gone")
    ssm.delete_parameter(Name="/kept")


@pytest.mark.parametrize(("policy", "stays"), [("Retain", True), ("RetainExceptOnCreate", False)])
def test_what_a_failed_create_retains_is_in_the_way_of_the_next(stack: Deployed, policy: str, stays: bool) -> None:
    kept = parameter("/kept") | {"DeletionPolicy": policy}
    bad = resource("SSM::Parameter", Type="None", Value="x") | {"DependsOn": "Kept"}
    assert stack.try_create({"Kept": kept, "Bad": bad}) == "ROLLBACK_COMPLETE"
    stack.delete()
    again = stack.try_create({"Kept": kept})
    assert again == ("ROLLBACK_COMPLETE" if stays else "CREATE_COMPLETE"), stack.reasons
    stack.delete()
    stack.client("ssm").delete_parameter(Name="/kept")


def test_a_resource_that_leaves_the_template_is_deleted_unless_retained(stack: Deployed) -> None:
    kept = parameter("/kept") | {"DeletionPolicy": "Retain"}
    stack.create({"P": PARAMETER, "Kept": kept, "Gone": parameter("/gone")})
    stack.update({"P": PARAMETER})
    ssm = stack.client("ssm")
    assert ssm.get_parameter(Name="/kept")["Parameter"]["Value"] == "x"
    with pytest.raises(ClientError, match="ParameterNotFound"):
        ssm.get_parameter(Name="/gone")
    ssm.delete_parameter(Name="/kept")


def test_what_cannot_be_deleted_fails_the_deletion_with_the_reason(stack: Deployed) -> None:
    stack.create({"Bucket": resource("S3::Bucket"), "P": PARAMETER})
    s3 = stack.client("s3")
    s3.put_object(Bucket=stack["Bucket"], Key="recording", Body=b"")
    stack.cloudformation.delete_stack(StackName=stack.name)
    assert stack.status == "DELETE_FAILED"
    assert any("Bucket" in reason and "not empty" in reason for reason in stack.reasons)
    s3.delete_object(Bucket=stack["Bucket"], Key="recording")
    stack.delete()


def test_a_resource_to_leave_behind_can_be_named(stack: Deployed) -> None:
    stack.create({"P": parameter("/left")})
    stack.cloudformation.delete_stack(StackName=stack.name, RetainResources=["P"])
    assert not stack.exists
    stack.client("ssm").delete_parameter(Name="/left")


def test_a_protected_stack_stays(stack: Deployed) -> None:
    stack.create({"P": PARAMETER})
    stack.cloudformation.update_termination_protection(StackName=stack.name, EnableTerminationProtection=True)
    with pytest.raises(ClientError, match="TerminationProtection is enabled"):
        stack.cloudformation.delete_stack(StackName=stack.name)
    assert stack.status == "CREATE_COMPLETE"


def test_exports_reach_other_stacks_and_are_kept_while_they_are_read(stack: Deployed, aws: LocalAws) -> None:
    def producer(value: str) -> dict[str, Any]:
        return {"Value": {"Value": value, "Export": {"Name": "voice-value"}}}

    reader = Deployed(aws, "reader")
    stack.create({"P": PARAMETER}, Outputs=producer("first"))
    reader.create({"P": parameter("/read", {"Fn::ImportValue": "voice-value"})})
    try:
        assert aws.client("ssm").get_parameter(Name="/read")["Parameter"]["Value"] == "first"
        assert stack.try_update({"P": PARAMETER}, Outputs=producer("second")) == "UPDATE_ROLLBACK_COMPLETE"
        stack.cloudformation.delete_stack(StackName=stack.name)
        assert stack.status == "DELETE_FAILED"
        shown = stack.cloudformation.describe_stacks(StackName=stack.name)["Stacks"][0]
        assert shown["StackStatusReason"] == "Export voice-value cannot be deleted as it is in use by reader"
    finally:
        reader.delete()
    stack.delete()
    assert "voice-value" not in [item["Name"] for item in stack.cloudformation.list_exports()["Exports"]]


def test_an_export_that_comes_with_an_update_can_be_imported(stack: Deployed, aws: LocalAws) -> None:
    stack.create({"P": PARAMETER})
    stack.update({"P": PARAMETER}, Outputs={"Late": {"Value": "x", "Export": {"Name": "late"}}})
    reader = Deployed(aws, "late-reader")
    reader.create({"P": resource("SSM::Parameter", Type="String", Value={"Fn::ImportValue": "late"})})
    reader.delete()


def test_an_export_that_does_not_exist_fails_the_deployment(stack: Deployed) -> None:
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


def test_a_condition_leaves_resources_out(stack: Deployed) -> None:
    off = parameter("/off") | {"Condition": "Never"}
    stack.create({"P": PARAMETER, "Off": off}, Conditions={"Never": {"Fn::Equals": [1, 2]}})
    resources = stack.cloudformation.describe_stack_resources(StackName=stack.name)["StackResources"]
    assert [item["LogicalResourceId"] for item in resources] == ["P"]


def test_change_sets_plan_before_they_change(stack: Deployed) -> None:
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


def test_an_attribute_that_a_type_lacks_is_named(stack: Deployed) -> None:
    wrong = {"Wrong": {"Value": {"Fn::GetAtt": ["P", "Colour"]}}}
    stack.try_create({"P": PARAMETER}, Outputs=wrong)
    shown = stack.cloudformation.describe_stack_events(StackName=stack.name)["StackEvents"]
    assert any("P (AWS::SSM::Parameter) does not support attribute type Colour" in str(item) for item in shown)


def test_a_change_set_without_a_type_updates_by_the_template_that_is_there(stack: Deployed) -> None:
    """As `aws cloudformation create-change-set --use-previous-template` asks."""
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


def test_a_change_set_that_is_gone_is_told_by_the_code_that_tools_wait_for(stack: Deployed) -> None:
    """The CDK deletes an old change set before each update, and looks until it is not found."""
    stack.create({"P": PARAMETER})
    with pytest.raises(stack.cloudformation.exceptions.ChangeSetNotFoundException):
        stack.cloudformation.describe_change_set(StackName=stack.name, ChangeSetName="gone")
