"""Drift detection reports exactly the changes made outside CloudFormation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sandbox.aws.samples import ALL, IMAGE_PARAMETER, ref, resource, vpc
from tests.sandbox.aws.samples.parts import POLICY, Resources
from tests.sandbox.aws.stacks import Deployed

DOCUMENT = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}]}


def detect(stack: Deployed) -> dict[str, dict[str, Any]]:
    """Run `aws cloudformation detect-stack-drift` and its two follow-up commands; return the drifts by logical id."""
    api = stack.cloudformation
    asked = api.detect_stack_drift(StackName=stack.name)["StackDriftDetectionId"]
    status = api.describe_stack_drift_detection_status(StackDriftDetectionId=asked)
    drifts = api.describe_stack_resource_drifts(StackName=stack.name)["StackResourceDrifts"]
    drifted = [item for item in drifts if item["StackResourceDriftStatus"] != "IN_SYNC"]
    assert status["DetectionStatus"] == "DETECTION_COMPLETE"
    assert status["DriftedStackResourceCount"] == len(drifted)
    assert status["StackDriftStatus"] == ("DRIFTED" if drifted else "IN_SYNC")
    shown = api.describe_stacks(StackName=stack.name)["Stacks"][0]
    assert shown["DriftInformation"]["StackDriftStatus"] == status["StackDriftStatus"]
    return {item["LogicalResourceId"]: item for item in drifts}


@pytest.mark.parametrize("sample", ALL)
def test_the_deployment_is_in_sync(stack: Deployed, sample: Any) -> None:  # noqa: ANN401
    body: Resources = sample()
    stack.create(body, **({"Parameters": IMAGE_PARAMETER} if "Template" in body else {}))
    found = detect(stack)
    assert found
    assert {name: item.get("PropertyDifferences") for name, item in found.items() if item["PropertyDifferences"]} == {}


def test_only_a_rule_that_was_added_manually_is_drift(stack: Deployed) -> None:
    own = resource("EC2::SecurityGroupIngress", GroupId=ref("Group"), IpProtocol="tcp", FromPort=443, ToPort=443)
    own["Properties"]["CidrIp"] = "10.0.0.0/8"
    stack.create(vpc() | {"Own": own})
    assert detect(stack)["Group"]["StackResourceDriftStatus"] == "IN_SYNC"
    by_hand = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "CidrIp": "0.0.0.0/0"}
    stack.client("ec2").authorize_security_group_ingress(GroupId=stack["Group"], **by_hand)
    found = detect(stack)["Group"]
    assert found["StackResourceDriftStatus"] == "MODIFIED"
    (difference,) = found["PropertyDifferences"]
    assert difference["PropertyPath"] == "/SecurityGroupIngress"
    assert (json.loads(difference["ExpectedValue"]), json.loads(difference["ActualValue"])) == ([], [by_hand])
    stack.client("ec2").revoke_security_group_ingress(GroupId=stack["Group"], **by_hand)
    assert detect(stack)["Group"]["StackResourceDriftStatus"] == "IN_SYNC"


def test_drift_of_properties_policies_and_deleted_resources_is_detected(stack: Deployed) -> None:
    stack.create(
        {
            "Value": resource("SSM::Parameter", Type="String", Value="one"),
            "Gone": resource("Logs::LogGroup", LogGroupName="/drift"),
            "Log": resource("Logs::LogGroup", LogGroupName="/drift/kept", RetentionInDays=30),
            "Role": resource("IAM::Role", AssumeRolePolicyDocument=POLICY),
            "Policy": resource("IAM::Policy", PolicyName="p", PolicyDocument=DOCUMENT, Roles=[ref("Role")]),
        }
    )
    stack.client("ssm").put_parameter(Name=stack["Value"], Value="two", Overwrite=True)
    stack.client("logs").delete_retention_policy(logGroupName=stack["Log"])
    stack.client("logs").delete_log_group(logGroupName=stack["Gone"])
    wider = json.loads(json.dumps(DOCUMENT).replace("GetObject", "*"))
    stack.client("iam").put_role_policy(RoleName=stack["Role"], PolicyName="p", PolicyDocument=json.dumps(wider))
    found = detect(stack)
    statuses = {name: item["StackResourceDriftStatus"] for name, item in found.items()}
    assert statuses == dict.fromkeys(["Value", "Log", "Policy"], "MODIFIED") | {"Gone": "DELETED", "Role": "IN_SYNC"}
    differences = {name: item.get("PropertyDifferences", []) for name, item in found.items()}
    assert {name: [each["PropertyPath"] for each in items] for name, items in differences.items()} == {
        "Value": ["/Value"],
        "Log": ["/RetentionInDays"],
        "Policy": ["/PolicyDocument"],
        "Gone": [],
        "Role": [],
    }
    assert differences["Log"][0]["DifferenceType"] == "REMOVE"
    only = stack.cloudformation.describe_stack_resource_drifts(
        StackName=stack.name, StackResourceDriftStatusFilters=["DELETED"]
    )["StackResourceDrifts"]
    assert [item["LogicalResourceId"] for item in only] == ["Gone"]
    one = stack.cloudformation.detect_stack_resource_drift(StackName=stack.name, LogicalResourceId="Value")
    assert one["StackResourceDrift"]["StackResourceDriftStatus"] == "MODIFIED"


def test_a_group_scaled_outside_its_bounds_is_drift_until_the_next_deployment(stack: Deployed) -> None:
    data = {"ImageId": "ami-03cf127a", "InstanceType": "c8g.large"}
    group = {"MinSize": "0", "MaxSize": "1", "VPCZoneIdentifier": [ref("SubnetA")]}
    hosts = {"LaunchTemplateId": ref("Template"), "Version": "1"}
    template = vpc() | {
        "Template": resource("EC2::LaunchTemplate", LaunchTemplateData=data),
        "Fleet": resource("AutoScaling::AutoScalingGroup", LaunchTemplate=hosts, **group),
    }
    stack.create(template)
    stack.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName=stack["Fleet"], MaxSize=9)
    found = detect(stack)["Fleet"]["PropertyDifferences"]
    assert found == [
        {"PropertyPath": "/MaxSize", "ExpectedValue": "1", "ActualValue": "9", "DifferenceType": "NOT_EQUAL"}
    ]
    template["Fleet"]["Properties"]["MaxSize"] = "2"
    stack.update(template)
    assert {item["StackResourceDriftStatus"] for item in detect(stack).values()} == {"IN_SYNC"}


def test_incomparable_inputs_are_refused(stack: Deployed) -> None:
    api = stack.cloudformation
    stack.create({"Topic": resource("SNS::Topic"), "P": resource("SSM::Parameter", Type="String", Value="one")})
    with pytest.raises(ClientError, match="does not support drift detection"):
        api.detect_stack_resource_drift(StackName=stack.name, LogicalResourceId="Topic")
    with pytest.raises(ClientError, match="do not exist"):
        api.detect_stack_drift(StackName=stack.name, LogicalResourceIds=["Nobody"])
    with pytest.raises(ClientError, match="does not exist"):
        api.describe_stack_drift_detection_status(StackDriftDetectionId="9ed8a0a5-0000-0000-0000-000000000000")
    stack.delete()
    assert stack.try_create({"P": resource("SSM::Parameter", Type="None", Value="x")}) == "ROLLBACK_COMPLETE"
    with pytest.raises(ClientError, match="in status ROLLBACK_COMPLETE"):
        api.detect_stack_drift(StackName=stack.name)
