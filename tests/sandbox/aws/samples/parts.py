"""Common parts of the samples."""

from __future__ import annotations

from typing import Any

Resources = dict[str, Any]
POLICY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
TAGS = [{"Key": "team", "Value": "voice"}]
ARM_IMAGE = "/aws/service/ecs/optimized-ami/amazon-linux-2023/arm64/recommended/image_id"
ZONE = "Z0123456789EXAMPLE"
IMAGE_PARAMETER = {"Image": {"Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>", "Default": ARM_IMAGE}}


def ref(name: str) -> dict[str, str]:
    return {"Ref": name}


def att(name: str, attribute: str) -> dict[str, list[str]]:
    return {"Fn::GetAtt": [name, attribute]}


def resource(kind: str, needs: list[str] | None = None, /, **properties: object) -> dict[str, Any]:
    return {"Type": f"AWS::{kind}", "Properties": properties} | ({"DependsOn": needs} if needs else {})


def vpc() -> Resources:
    """Return a VPC with two subnets and a security group."""
    zone = {"Fn::Select": [0, {"Fn::GetAZs": ""}]}
    other = {"Fn::Select": [1, {"Fn::GetAZs": ""}]}
    return {
        "Vpc": resource("EC2::VPC", CidrBlock="10.0.0.0/16", EnableDnsHostnames=True, Tags=TAGS),
        "SubnetA": resource("EC2::Subnet", VpcId=ref("Vpc"), CidrBlock="10.0.0.0/20", AvailabilityZone=zone),
        "SubnetB": resource("EC2::Subnet", VpcId=ref("Vpc"), CidrBlock="10.0.16.0/20", AvailabilityZone=other),
        "Group": resource("EC2::SecurityGroup", GroupDescription="test", VpcId=ref("Vpc")),
    }
