"""The packet tier: Graviton4 hosts that drop silence."""

from dataclasses import replace
from itertools import pairwise
from pathlib import PurePosixPath

from aws_cdk import Duration, Stack
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from constructs import Construct

import userdata
from blueprint import catalog
from blueprint.aws import names
from blueprint.aws.rollouts import guards
from blueprint.capacity import least, vad_host
from blueprint.contract.environment import (
    CHUNK_KIND,
    CHUNK_PORT,
    DRAIN_TIMEOUT_S,
    HEALTH_PORT,
    MAX_SESSIONS,
    RTP_PORT,
)
from blueprint.contract.images import Image
from blueprint.contract.metrics import CONTROL_SOCKET
from blueprint.contract.network import CHUNK, RTP, VAD_HEALTH, Tier
from blueprint.engines.launch.coldstart import start_budget
from blueprint.file.model.aws import DataPathMode, Engine, OnDemand
from blueprint.hosts import VAD_IMAGES
from voice_constructs.aws.fleet import FleetContext
from voice_constructs.aws.host import (
    HostGroupProps,
    HostRole,
    HostTemplateProps,
    host_group,
    host_template,
    lifecycle_hooks,
)
from voice_constructs.aws.scaling import fleet_scaling

CONTROL_DIR = str(PurePosixPath(CONTROL_SOCKET).parent)
DATAPLANE_CAPABILITIES = ("NET_ADMIN", "NET_RAW", "BPF", "PERFMON", "IPC_LOCK", "SYS_ADMIN", "SYS_NICE")
"""What attaching an XDP program and opening AF_XDP sockets through DPDK 22.11 takes; tried one by one. ``SYS_NICE`` is
for Docker's seccomp profile, which lets nobody else call ``set_mempolicy``, as DPDK does for its huge pages."""
VFIO_CAPABILITIES = ("IPC_LOCK", "SYS_ADMIN", "SYS_RAWIO", "SYS_NICE")
"""What DPDK takes on a host without an IOMMU: the kernel opens such a vfio group for ``SYS_RAWIO`` alone, and shows
physical addresses (``/proc/self/pagemap``) to ``SYS_ADMIN``. From their sources: no such host here."""


class VadFleet(Construct):
    """One Auto Scaling group in each zone, behind one UDP target group.

    One group per zone makes "+2 in every zone" exact: a group over several zones only balances as best it can.

    Attributes:
        groups: Auto Scaling groups in zone order.
        target_group: UDP target group for RTP that the data path in use fills; the public load balancer's listener
            forwards to it.
        scaling: One for each scaling rule.
    """

    def __init__(self, scope: Construct, id_: str, *, context: FleetContext) -> None:
        super().__init__(scope, id_)
        self._context = context
        self._deployment = context.deployment
        self._fleet = context.deployment.aws.vad
        self._vfio = self._fleet.data_path.mode is DataPathMode.VFIO
        # Both stand and are exported whatever the mode is: the other stacks may use either, so a fleet can change over.
        self._by_instance = self._build_target_group("Targets", elbv2.TargetType.INSTANCE)
        by_address = self._build_target_group("AddressTargets", elbv2.TargetType.IP)
        self.target_group = by_address if self._vfio else self._by_instance
        role = context.role(self, "Role", groups=names.vad_groups(self._deployment), tier=Tier.VAD, images=VAD_IMAGES)
        if self._vfio:
            role.allow_target_registration(self.target_group.target_group_arn)
        self.groups = [self._build_group(zone, role) for zone in self._deployment.aws.availability_zones]
        # One zone after the other: what is wrong with new hosts is seen in one zone first.
        for before, after in pairwise(self.groups):
            after.node.add_dependency(before)
        self.scaling = fleet_scaling(self, self._deployment, names.VAD_FLEET, self._fleet.scaling, self.groups)

    def _build_target_group(self, id_: str, kind: elbv2.TargetType) -> elbv2.NetworkTargetGroup:
        """Make a target group: Auto Scaling fills one of instances, a vfio host itself one of addresses."""
        group = elbv2.NetworkTargetGroup(
            self,
            id_,
            vpc=self._context.network.vpc,
            port=RTP.number,
            protocol=elbv2.Protocol.UDP,
            target_type=kind,
            health_check=elbv2.HealthCheck(
                protocol=elbv2.Protocol.TCP, port=str(VAD_HEALTH.number), interval=Duration.seconds(10)
            ),
            # Draining is the lifecycle hook's work; UDP flows of a host that left are moved at once.
            deregistration_delay=Duration.seconds(0),
            connection_termination=True,
        )
        stack = Stack.of(self)
        stack.export_value(group.target_group_arn)
        stack.export_value(group.target_group_full_name)
        return group

    def _build_group(self, zone: str, role: HostRole) -> autoscaling.AutoScalingGroup:
        suffix = zone.removeprefix(self._deployment.aws.region).upper()
        name = names.group(self._deployment, names.VAD_FLEET, zone)
        express = self._fleet.ena_express
        template = host_template(
            self,
            f"Template{suffix}",
            props=HostTemplateProps(
                instance_type=catalog.instance_types()[self._fleet.instance_type],
                role=role,
                security_group=self._context.security_group(Tier.VAD),
                volume_key=self._context.key,
                root_volume_gib=self._fleet.root_volume_gib,
                root_volume_mib_per_s=self._fleet.root_volume_mib_per_s,
                user_data=userdata.render(self._boot(name)),
                purchase=OnDemand(),
                secondary_interface=self._vfio,
                ena_express_udp=express.udp if express.enabled else None,
                machine_image=self._fleet.machine_image,
            ),
        )
        bounds = self._fleet.hosts_per_zone
        group = host_group(
            self,
            f"Group{suffix}",
            props=HostGroupProps(
                name=name,
                vpc=self._context.network.vpc,
                subnets=self._context.network.private_subnets((zone,)),
                template=template,
                start=start_budget(VAD_IMAGES),
                min_hosts=self._context.min_hosts(bounds.min, VAD_IMAGES),
                max_hosts=bounds.max,
                warm_up_s=self._fleet.warm_up_s,
                rollout=self._deployment.aws.rollout,
                guards=guards(self._deployment, Tier.VAD, names.VAD_FLEET),
                purchase=OnDemand(),
                behind_load_balancer=not self._vfio,
            ),
        )
        # With vfio too: a group that is detached takes its hosts of the mode before from callers at once.
        group.attach_to_network_target_group(self._by_instance)
        return group

    def _boot(self, group: str) -> userdata.HostBoot:
        fleet, path, context = self._fleet, self._fleet.data_path, self._context
        return userdata.HostBoot(
            deployment=self._deployment.name,
            fleet=names.VAD_FLEET,
            tier=Tier.VAD,
            region=self._deployment.aws.region,
            auto_scaling_group=group,
            hooks=lifecycle_hooks(start_budget(VAD_IMAGES), fleet.drain_timeout_s),
            containers=(self._dataplane(), self._telemetry()),
            log_group=context.log_group.log_group_name,
            environment=context.shared_environment(Tier.VAD),
            state=context.state_access(Tier.VAD),
            signing_key=self._deployment.signing_key,
            mtu=path.mtu,
            huge_pages=userdata.HugePages(fleet.huge_pages.size_mib, fleet.huge_pages.count),
            ena_express=fleet.ena_express.enabled,
            data_path=userdata.Vfio(path.rx_queues, path.rx_ring_size, self.target_group.target_group_arn)
            if self._vfio
            else userdata.AfXdp(path.rx_queues, path.rx_ring_size),
        )

    def _dataplane(self) -> userdata.Container:
        return self._context.container(
            Image.VAD_DATAPLANE,
            {
                RTP_PORT: str(RTP.number),
                CHUNK_PORT: str(CHUNK.number),
                CHUNK_KIND: self._chunk_kind(),
                HEALTH_PORT: str(VAD_HEALTH.number),
                DRAIN_TIMEOUT_S: str(self._fleet.drain_timeout_s),
                MAX_SESSIONS: str(least(vad_host(self._fleet)).calls),
            },
            userdata.HealthPort(VAD_HEALTH.number),
            capabilities=VFIO_CAPABILITIES if self._vfio else DATAPLANE_CAPABILITIES,
            mounts=(userdata.Mount(CONTROL_DIR, CONTROL_DIR, writable=True),),
            hardware=True,
        )

    def _chunk_kind(self) -> str:
        """Return what every ASR fleet takes: features fit the model that our engine has by default, samples any."""
        fleets = self._deployment.aws.asr
        return "pcm16" if any(fleet.engine is Engine.VLLM or fleet.model for fleet in fleets) else "log-mel"

    def _telemetry(self) -> userdata.Container:
        """Return the publisher of the fleet's metrics, in the group that the data plane's socket belongs to."""
        return replace(
            self._context.telemetry(["dataplane", "nic"]),
            groups=(self._dataplane().user_id,),
            mounts=(userdata.Mount(CONTROL_DIR, CONTROL_DIR),),
        )
