"""The network adapters, and a VPC that is deleted completely."""

from __future__ import annotations

from tests.sandbox.aws.samples import att, network, ref, resource, vpc
from tests.sandbox.aws.stacks import Deployed


def test_the_network_matches_the_template(stack: Deployed) -> None:
    stack.create(network(), Outputs={"Default": {"Value": att("Vpc", "DefaultSecurityGroup")}})
    ec2 = stack.client("ec2")
    names = ec2.describe_vpc_attribute(VpcId=stack["Vpc"], Attribute="enableDnsHostnames")
    assert names["EnableDnsHostnames"]["Value"] is True
    assert ec2.describe_vpcs(VpcIds=[stack["Vpc"]])["Vpcs"][0]["Tags"] == [{"Key": "team", "Value": "voice"}]
    zones = ec2.describe_subnets(SubnetIds=[stack["SubnetA"], stack["SubnetB"]])["Subnets"]
    assert [item["AvailabilityZone"] for item in zones] == ["us-east-1a", "us-east-1b"]
    table = ec2.describe_route_tables(RouteTableIds=[stack["Table"]])["RouteTables"][0]
    assert [item["SubnetId"] for item in table["Associations"]] == [stack["SubnetA"]]
    assert {"0.0.0.0/0": stack["Gateway"]}.items() <= {
        item.get("DestinationCidrBlock"): item.get("GatewayId") for item in table["Routes"]
    }.items()
    nat = ec2.describe_nat_gateways(NatGatewayIds=[stack["Nat"]])["NatGateways"][0]
    assert nat["NatGatewayAddresses"][0]["PublicIp"] == stack["Address"]
    flow = ec2.describe_flow_logs(FlowLogIds=[stack["Flow"]])["FlowLogs"][0]
    assert (flow["TrafficType"], flow["LogGroupName"]) == ("REJECT", stack["LogGroup"])
    assert stack.outputs["Default"].startswith("sg-")


def test_interface_endpoints_have_their_security_groups(stack: Deployed) -> None:
    stack.create(network())
    ec2 = stack.client("ec2")
    endpoint = ec2.describe_vpc_endpoints(VpcEndpointIds=[stack["Logs"]])["VpcEndpoints"][0]
    interfaces = ec2.describe_network_interfaces(NetworkInterfaceIds=endpoint["NetworkInterfaceIds"])
    groups = [[group["GroupId"] for group in item["Groups"]] for item in interfaces["NetworkInterfaces"]]
    assert groups == [[stack["Group"]]] * 2


def test_rules_between_groups_and_restricted_egress_are_created(stack: Deployed) -> None:
    template = network()
    stack.create(template)
    ec2 = stack.client("ec2")

    def rules(name: str) -> dict[str, list[dict[str, object]]]:
        group = ec2.describe_security_groups(GroupIds=[stack[name]])["SecurityGroups"][0]
        return {"in": group["IpPermissions"], "out": group["IpPermissionsEgress"]}

    (audio,) = rules("Group")["in"]
    assert audio["UserIdGroupPairs"][0]["GroupId"] == stack["Other"]  # type: ignore[index]
    assert {item.get("FromPort") for item in rules("Other")["out"]} == {443, 5004}
    template["Other"]["Properties"]["SecurityGroupEgress"][0] |= {"FromPort": 80, "ToPort": 80}
    template["In"]["Properties"]["Description"] = "calls"
    stack.update(template)
    assert rules("Group")["in"][0]["UserIdGroupPairs"][0]["Description"] == "calls"  # type: ignore[index]
    assert {item.get("FromPort") for item in rules("Other")["out"]} == {80, 5004}


def test_routes_and_attributes_change_in_place(stack: Deployed) -> None:
    template = network()
    stack.create(template)
    vpc, route = stack["Vpc"], stack["Default"]
    template["Vpc"]["Properties"] |= {"EnableDnsHostnames": False, "Tags": [{"Key": "team", "Value": "asr"}]}
    template["SubnetB"]["Properties"]["MapPublicIpOnLaunch"] = True
    template["Private"] = resource(
        "EC2::Route", RouteTableId=ref("Table"), DestinationCidrBlock="192.0.2.0/24", NatGatewayId=ref("Nat")
    )
    stack.update(template)
    assert (stack["Vpc"], stack["Default"]) == (vpc, route)
    ec2 = stack.client("ec2")
    names = ec2.describe_vpc_attribute(VpcId=vpc, Attribute="enableDnsHostnames")
    assert names["EnableDnsHostnames"]["Value"] is False
    assert ec2.describe_vpcs(VpcIds=[vpc])["Vpcs"][0]["Tags"] == [{"Key": "team", "Value": "asr"}]
    assert ec2.describe_subnets(SubnetIds=[stack["SubnetB"]])["Subnets"][0]["MapPublicIpOnLaunch"] is True


def test_no_network_resource_remains(stack: Deployed) -> None:
    stack.create(network())
    ec2 = stack.client("ec2")
    mine = [{"Name": "vpc-id", "Values": [stack["Vpc"]]}]
    stack.delete()
    assert all(item["IsDefault"] for item in ec2.describe_vpcs()["Vpcs"])
    assert not ec2.describe_subnets(Filters=mine)["Subnets"]
    assert not ec2.describe_route_tables(Filters=mine)["RouteTables"]
    assert not ec2.describe_security_groups(Filters=mine)["SecurityGroups"]
    assert not ec2.describe_network_acls(Filters=mine)["NetworkAcls"]
    assert not ec2.describe_network_interfaces()["NetworkInterfaces"]
    assert not ec2.describe_internet_gateways()["InternetGateways"]
    assert not ec2.describe_vpc_endpoints()["VpcEndpoints"]
    assert not ec2.describe_addresses()["Addresses"]
    assert not ec2.describe_flow_logs()["FlowLogs"]
    assert {item["State"] for item in ec2.describe_nat_gateways()["NatGateways"]} == {"deleted"}


def test_a_response_without_a_resource_fails_the_deployment(stack: Deployed) -> None:
    flow = {
        "ResourceType": "VPC",
        "TrafficType": "ALL",
        "LogDestinationType": "s3",
        "LogDestination": "arn:aws:s3:::no",
    }
    # EC2 responds successfully, with an error instead of a flow log in the response.
    assert stack.try_create(vpc() | {"Flow": resource("EC2::FlowLog", ResourceId=ref("Vpc"), **flow)}) == (
        "ROLLBACK_COMPLETE"
    )
    assert any("create_flow_logs created no resource" in reason for reason in stack.reasons)
    assert any("LogDestination: no does not exist" in reason for reason in stack.reasons)
