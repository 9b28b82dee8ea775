"""The environment of a deployment's hosts: the local AWS under AWS's own names, metadata, registry and store."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from voice_blueprint.aws import names
from voice_blueprint.file.model.deployment import Deployment
from voice_sandbox.aws.process import LocalAws
from voice_sandbox.hosts.balancer import TargetGroupSettings, UdpLoadBalancer
from voice_sandbox.hosts.certificates import CertificateAuthority
from voice_sandbox.hosts.disk import Disk, HostRehearsalError, run_command
from voice_sandbox.hosts.front import TlsServer
from voice_sandbox.hosts.machine import DEFAULT_HARDWARE, Hardware, Machine, NetworkInterface
from voice_sandbox.hosts.metadata import InstanceMetadata, MetadataService, MetadataTree
from voice_sandbox.hosts.network import METADATA_ADDRESS, Network
from voice_sandbox.hosts.servers import REGISTRY_PORT, Registry, Store, StoreUser

ALL_INTERFACES = "0.0.0.0"  # noqa: S104  in a network namespace of its own
LAUNCH_WAIT_STATE = "Pending:Wait"
"""State of an instance that a launch hook delays."""
_REGISTRY_NAME_PART = ".dkr.ecr."
_POLL_INTERVAL_S = 1
_MAX_HOOK_TIMEOUT_S = 7200
"""Source: Auto Scaling API Reference, PutLifecycleHook, HeartbeatTimeout."""
_FINAL_STATE_BY_LIFECYCLE_STATE = {"Terminating": "Terminated", "Terminated": "Terminated"}
"""Final state of a host by the first part of its state in Auto Scaling. All other hosts end in service."""


@dataclass
class Host:
    """An instance of a group, and its virtual machine.

    Attributes:
        spot_notice: Spot interruption notice in the host's metadata; empty without one.
    """

    instance: str
    group: str
    address: str
    mac: str
    tap: str
    machine: Machine
    spot_notice: dict[str, str] = field(default_factory=dict)


class SimulatedCloud:
    """The environment of the hosts, in the calling thread's network namespace.

    It is a context manager.

    Args:
        aws: The local AWS with the deployment.
        registry: Folder of the registry with the deployment's images.
        folder: Folder of all logs and consoles.

    Attributes:
        disk: Disk of the machines.
        registry_refusals: Number of new connections to the registry that are closed immediately.
    """

    def __init__(self, deployment: Deployment, aws: LocalAws, *, disk: Disk, registry: Path, folder: Path) -> None:
        self.deployment = deployment
        self.aws = aws
        self.folder = folder
        self.disk = disk
        self._registry = registry
        self._stack = ExitStack()
        self.hosts: list[Host] = []
        self.registry_refusals = 0
        self.authority = disk.authority
        self._states: dict[str, str] = {}
        self._closing = threading.Event()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            vpc = self.deployment.aws.network.cidr
            self.network = Network(
                self.folder,
                IPv4Network(str(vpc)),
                self._describe_subnets(IPv4Network(str(vpc))),
                self._iter_private_names(),
            )
            stack.callback(self.network.close)
            self._metadata = MetadataService(METADATA_ADDRESS)
            stack.callback(self._metadata.close)
            front = TlsServer(ALL_INTERFACES, self.authority, self.folder, self._select_backend_port)
            stack.callback(front.close)
            stack.callback(Registry(self._registry, self.folder, self._get_registry_password()).close)
            self.store = self._start_store(self.authority)
            stack.callback(self.store.close)
            self.balancer = self._start_balancer()
            stack.callback(self.balancer.close)
            self._extend_hook_timeouts()
            follow_thread = threading.Thread(target=self._cache_states, daemon=True)
            follow_thread.start()
            stack.callback(follow_thread.join)
            stack.callback(self._closing.set)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for host in self.hosts:
            host.machine.stop()
        self._stack.close()

    def _select_backend_port(self, name: str) -> int:
        """Return the server port for a name, or raise an error if the registry must refuse the connection."""
        if _REGISTRY_NAME_PART not in name:
            return int(self.aws.endpoint.rpartition(":")[2])
        if self.registry_refusals:
            self.registry_refusals -= 1
            raise ConnectionRefusedError
        return REGISTRY_PORT

    def _describe_subnets(self, vpc: IPv4Network) -> dict[IPv4Network, bool]:
        """Return each subnet in the VPC, and whether its deployed route table has a route to the internet."""
        client = self.aws.client("ec2")
        routed_ids = {
            association.get("SubnetId")
            for table in client.describe_route_tables()["RouteTables"]
            for association in table["Associations"]
            if any(route.get("DestinationCidrBlock") == "0.0.0.0/0" for route in table["Routes"])
        }
        routes_by_subnet = {
            IPv4Network(each["CidrBlock"]): each["SubnetId"] in routed_ids
            for each in client.describe_subnets()["Subnets"]
        }
        return {subnet: has_route for subnet, has_route in routes_by_subnet.items() if subnet.subnet_of(vpc)}

    def _iter_private_names(self) -> Iterator[str]:
        """Yield the names that resolve to addresses in the VPC: those for the store and for VPC endpoints."""
        yield self._find_store_endpoint()[0]
        region = self.deployment.aws.region
        for endpoint in self.aws.client("ec2").describe_vpc_endpoints()["VpcEndpoints"]:
            if endpoint["VpcEndpointType"] == "Interface":
                service = endpoint["ServiceName"].removeprefix(f"com.amazonaws.{region}.").split(".")
                yield ".".join((*reversed(service), region, "amazonaws.com"))

    def _find_store_endpoint(self) -> tuple[str, int]:
        client = self.aws.client("elasticache")
        name = names.build_state_group_id(self.deployment)
        (group,) = client.describe_replication_groups(ReplicationGroupId=name)["ReplicationGroups"]
        endpoint = group["NodeGroups"][0]["PrimaryEndpoint"]
        return str(endpoint["Address"]), int(endpoint["Port"])

    def _get_registry_password(self) -> str:
        return f"{self.aws.account}-auth-token"

    def _start_store(self, authority: CertificateAuthority) -> Store:
        """Start the store with the users and passwords from the deployment."""
        passwords = self._read_passwords()
        users = [
            StoreUser(user["UserName"], user["AccessString"], passwords.get(user["UserName"]))
            for user in self.aws.client("elasticache").describe_users()["Users"]
            if user["UserGroupIds"]
        ]
        at = self._find_store_endpoint()
        return Store(self.network.services_address, at, users, authority=authority, folder=self.folder)

    def _start_balancer(self) -> UdpLoadBalancer:
        """Start the load balancer with the target group for its UDP listener and the hosts registered in that group."""
        client = self.aws.client("elbv2")
        listeners = [
            listener
            for balancer in client.describe_load_balancers()["LoadBalancers"]
            for listener in client.describe_listeners(LoadBalancerArn=balancer["LoadBalancerArn"])["Listeners"]
        ]
        (audio,) = [each for each in listeners if each["Protocol"] == "UDP"]
        arns = [audio["DefaultActions"][0]["TargetGroupArn"]]
        (group,) = client.describe_target_groups(TargetGroupArns=arns)["TargetGroups"]
        attributes = {
            each["Key"]: each["Value"]
            for each in client.describe_target_group_attributes(TargetGroupArn=group["TargetGroupArn"])["Attributes"]
        }
        rules = TargetGroupSettings(
            port=group["Port"],
            health_port=int(group["HealthCheckPort"]),
            interval_s=group["HealthCheckIntervalSeconds"],
            healthy_threshold=group["HealthyThresholdCount"],
            unhealthy_threshold=group["UnhealthyThresholdCount"],
            is_sticky=attributes.get("stickiness.enabled") == "true" and attributes["stickiness.type"] == "source_ip",
        )

        def list_registered_addresses() -> set[str]:
            answer = client.describe_target_health(TargetGroupArn=group["TargetGroupArn"])
            ids = {each["Target"]["Id"] for each in answer["TargetHealthDescriptions"]}
            return {host.address for host in self.hosts if host.instance in ids}

        return UdpLoadBalancer(self.network.public_address, rules, list_registered_addresses)

    def _read_passwords(self) -> dict[str, str]:
        """Return the passwords of the store users, by name."""
        client = self.aws.client("secretsmanager")
        values = {}
        for listed_secret in client.list_secrets()["SecretList"]:
            text = client.get_secret_value(SecretId=listed_secret["ARN"])["SecretString"]
            if text.startswith("{") and "username" in (secret := json.loads(text)):
                values[str(secret["username"])] = str(secret["password"])
        return values

    def build_container_environment(self, group: str, container: str, instance: str, address: str) -> dict[str, str]:
        """Return the environment variables that a host in a group would pass to a container.

        They are calculated by the functions of the group's own user data.
        """
        (group_state,) = self.aws.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])[
            "AutoScalingGroups"
        ]
        template = group_state["LaunchTemplate"]
        (version,) = self.aws.client("ec2").describe_launch_template_versions(
            LaunchTemplateId=template["LaunchTemplateId"], Versions=[template["Version"]]
        )["LaunchTemplateVersions"]
        script, _, _ = base64.b64decode(version["LaunchTemplateData"]["UserData"]).decode().rpartition("main ")
        facts = f"INSTANCE_ID={instance} HOST_ADDRESS={address} ZONE= INTERFACE=ens5"
        output = run_command(
            "env", f"VOICE_ROOT={self.folder / group}", "bash", "-c", f"{script}\n{facts}\nenvironment_of {container}"
        )
        return dict(line.split("=", 1) for line in output.splitlines())

    def list_instance_states(self, group: str) -> dict[str, str]:
        """Return the lifecycle states of the instances in a group, by id."""
        client = self.aws.client("autoscaling")
        (group_state,) = client.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
        return {instance["InstanceId"]: instance["LifecycleState"] for instance in group_state["Instances"]}

    def _extend_hook_timeouts(self) -> None:
        """Set each launch hook's timeout to the maximum. An emulated image pull alone exceeds the deployed timeout."""
        client = self.aws.client("autoscaling")
        for group in client.describe_auto_scaling_groups()["AutoScalingGroups"]:
            name = group["AutoScalingGroupName"]
            for hook in client.describe_lifecycle_hooks(AutoScalingGroupName=name)["LifecycleHooks"]:
                client.put_lifecycle_hook(
                    AutoScalingGroupName=name,
                    LifecycleHookName=hook["LifecycleHookName"],
                    LifecycleTransition=hook["LifecycleTransition"],
                    DefaultResult=hook["DefaultResult"],
                    HeartbeatTimeout=_MAX_HOOK_TIMEOUT_S,
                )

    def _cache_states(self) -> None:
        """Cache the states of all hosts, since hosts wait at most two seconds for metadata."""
        client = self.aws.client("autoscaling")
        while not self._closing.wait(_POLL_INTERVAL_S):
            groups = client.describe_auto_scaling_groups()["AutoScalingGroups"]
            self._states = {
                each["InstanceId"]: each["LifecycleState"] for group in groups for each in group["Instances"]
            }

    def find_or_launch_instance(self, group: str) -> str:
        """Return a group's newest instance that is waiting in its launch hook, or launch one if there is none."""
        client = self.aws.client("autoscaling")
        states = self.list_instance_states(group).values()
        if LAUNCH_WAIT_STATE not in states:
            client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=len(states) + 1)
        *_, instance = [name for name, state in self.list_instance_states(group).items() if state == LAUNCH_WAIT_STATE]
        return instance

    def boot(self, instance: str, group: str, hardware: Hardware = DEFAULT_HARDWARE, *, route: bool = True) -> Host:
        """Start the machine for an instance. Without a route, the machine cannot reach hosts outside its subnet."""
        described = self._describe_instance(instance)
        mac, address = described["NetworkInterfaces"][0]["MacAddress"], described["PrivateIpAddress"]
        tap = self.network.attach(mac, address, route=route)
        machine = Machine(instance, self.disk, hardware, link=NetworkInterface(tap, mac), folder=self.folder)
        host = Host(instance, group, address, mac, tap, machine)
        self.hosts.append(host)
        self._register_metadata(host, described)
        return host

    def reuse(self, host: Host, snapshot: str, instance: str) -> None:
        """Restore a machine to a snapshot, and use it as another instance in its group with the same address."""
        host.machine.restore_snapshot(snapshot)
        host.instance, host.spot_notice = instance, {}
        self._register_metadata(host, self._describe_instance(host.instance))

    def _describe_instance(self, instance: str) -> dict[str, Any]:
        (reservation,) = self.aws.client("ec2").describe_instances(InstanceIds=[instance])["Reservations"]
        described: Any = reservation["Instances"][0]
        return dict(described)

    def _register_metadata(self, host: Host, described: dict[str, Any]) -> None:
        """Register a machine's instance with the metadata service."""
        self._states = {**self._states, host.instance: LAUNCH_WAIT_STATE}
        attribute = self.aws.client("ec2").describe_instance_attribute(InstanceId=host.instance, Attribute="userData")
        facts = InstanceMetadata(
            user_data=_decode_user_data(attribute["UserData"]),
            hop_limit=described["MetadataOptions"]["HttpPutResponseHopLimit"],
            build_tree=lambda: self._build_metadata_tree(host, described),
        )
        self._metadata.add_host(host.address, facts)

    def power_off(self, host: Host) -> None:
        """Stop a machine, as EC2 does with a terminated instance."""
        host.machine.stop()
        self.network.detach(host.tap)
        self.hosts.remove(host)

    def _build_metadata_tree(self, host: Host, described: dict[str, Any]) -> MetadataTree:
        interface: MetadataTree = {"device-number": "0", "local-ipv4s": host.address, "mac": host.mac}
        zone = described["Placement"]["AvailabilityZone"]
        profile = described["IamInstanceProfile"]["Arn"].rpartition("/")[2]
        credentials = {
            "Code": "Success",
            "Type": "AWS-HMAC",
            "AccessKeyId": "REHEARSAL",
            "SecretAccessKey": "rehearsal",
            "Token": "rehearsal",
            "Expiration": "2100-01-01T00:00:00Z",
        }
        tree: MetadataTree = {
            "ami-id": described["ImageId"],
            "autoscaling": {"target-lifecycle-state": self._get_target_state(host)},
            "hostname": described["PrivateDnsName"],
            "iam": {"security-credentials": {profile: json.dumps(credentials)}},
            "instance-id": host.instance,
            "instance-type": described["InstanceType"],
            "local-hostname": described["PrivateDnsName"],
            "local-ipv4": host.address,
            "mac": host.mac,
            "network": {"interfaces": {"macs": {host.mac: interface}}},
            "placement": {"availability-zone": zone, "region": self.deployment.aws.region},
        }
        if host.spot_notice:
            tree["spot"] = {"instance-action": json.dumps(host.spot_notice)}
        return tree

    def _get_target_state(self, host: Host) -> str:
        state = self._states.get(host.instance, "Terminated")
        return _FINAL_STATE_BY_LIFECYCLE_STATE.get(state.partition(":")[0], "InService")

    def find_first_failure(self, host: Host) -> str | None:
        """Return the first failure that a host has logged, or None if there is none."""
        logs = self.aws.client("logs")
        for group in logs.describe_log_groups()["logGroups"]:
            events = logs.filter_log_events(logGroupName=group["logGroupName"], filterPattern="FAILED")["events"]
            for event in events:
                if event["logStreamName"].endswith(f"/host/{host.instance}"):
                    return str(event["message"]).removeprefix("FAILED ")
        return None


def _decode_user_data(attribute: dict[str, str]) -> bytes:
    """Return an instance's decoded user data."""
    if "Value" not in attribute:
        raise HostRehearsalError("the launch template has no user data")
    return base64.b64decode(attribute["Value"])
