"""Sample of a network."""

from __future__ import annotations

from tests.sandbox.aws.samples.parts import POLICY, TAGS, Resources, att, ref, resource, vpc


def network() -> Resources:
    """Return a VPC with every kind of resource that can prevent its deletion."""
    return vpc() | {
        "Gateway": resource("EC2::InternetGateway", Tags=TAGS),
        "Attachment": resource("EC2::VPCGatewayAttachment", VpcId=ref("Vpc"), InternetGatewayId=ref("Gateway")),
        "Table": resource("EC2::RouteTable", VpcId=ref("Vpc")),
        "Association": resource("EC2::SubnetRouteTableAssociation", SubnetId=ref("SubnetA"), RouteTableId=ref("Table")),
        "Default": resource(
            "EC2::Route",
            ["Attachment"],
            RouteTableId=ref("Table"),
            DestinationCidrBlock="0.0.0.0/0",
            GatewayId=ref("Gateway"),
        ),
        "Address": resource("EC2::EIP", ["Attachment"], Domain="vpc"),
        "Nat": resource(
            "EC2::NatGateway", ["Default"], SubnetId=ref("SubnetA"), AllocationId=att("Address", "AllocationId")
        ),
        "Storage": resource(
            "EC2::VPCEndpoint",
            VpcId=ref("Vpc"),
            ServiceName={"Fn::Sub": "com.amazonaws.${AWS::Region}.s3"},
            VpcEndpointType="Gateway",
            RouteTableIds=[ref("Table")],
        ),
        "Logs": resource(
            "EC2::VPCEndpoint",
            VpcId=ref("Vpc"),
            ServiceName={"Fn::Sub": "com.amazonaws.${AWS::Region}.logs"},
            VpcEndpointType="Interface",
            SubnetIds=[ref("SubnetA"), ref("SubnetB")],
            SecurityGroupIds=[ref("Group")],
            PrivateDnsEnabled=True,
        ),
        "Other": resource(
            "EC2::SecurityGroup",
            GroupDescription="test",
            VpcId=ref("Vpc"),
            SecurityGroupEgress=[{"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "CidrIp": "0.0.0.0/0"}],
        ),
        "In": resource(
            "EC2::SecurityGroupIngress",
            GroupId=att("Group", "GroupId"),
            IpProtocol="udp",
            FromPort=5004,
            ToPort=5004,
            SourceSecurityGroupId=ref("Other"),
            Description="audio",
        ),
        "Out": resource(
            "EC2::SecurityGroupEgress",
            GroupId=ref("Other"),
            IpProtocol="udp",
            FromPort=5004,
            ToPort=5004,
            DestinationSecurityGroupId=ref("Group"),
        ),
        "LogRole": resource("IAM::Role", AssumeRolePolicyDocument=POLICY),
        "LogGroup": resource("Logs::LogGroup", RetentionInDays=7),
        "Flow": resource(
            "EC2::FlowLog",
            ResourceId=ref("Vpc"),
            ResourceType="VPC",
            TrafficType="REJECT",
            LogGroupName=ref("LogGroup"),
            DeliverLogsPermissionArn=att("LogRole", "Arn"),
        ),
    }
