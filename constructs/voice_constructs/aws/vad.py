"""The packet tier: Graviton4 hosts that drop silence."""

from dataclasses import replace
from itertools import pairwise
from pathlib import PurePosixPath

from aws_cdk import Duration
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from constructs import Construct

import voice_userdata
from voice_blueprint import catalog
from voice_blueprint.aws import names
from voice_blueprint.capacity.bounds import calculate_vad_host_call_bounds, find_limiting_bound
from voice_blueprint.contract.environment import (
    CHUNK_KIND,
    CHUNK_PORT,
    DRAIN_TIMEOUT_S,
    HEALTH_PORT,
    MAX_SESSIONS,
    RTP_PORT,
)
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.metrics import CONTROL_SOCKET
from voice_blueprint.contract.network import CHUNK, RTP, VAD_HEALTH, Tier
from voice_blueprint.engines.launch.coldstart import calculate_start_timeouts
from voice_blueprint.file.model.aws import DataPathMode, Engine, OnDemand
from voice_blueprint.hosts import VAD_IMAGES
from voice_blueprint.observability.aws.rollouts import list_rollback_alarms
from voice_constructs.aws.fleet import FleetContext
from voice_constructs.aws.host import (
    HostGroupProps,
    HostRole,
    HostTemplateProps,
    create_host_group,
    create_host_template,
    create_lifecycle_hooks,
)
from voice_constructs.aws.scaling import create_fleet_scaling

CONTROL_DIR = str(PurePosixPath(CONTROL_SOCKET).parent)
DATAPLANE_CAPABILITIES = ("NET_ADMIN", "NET_RAW", "BPF", "PERFMON", "IPC_LOCK", "SYS_ADMIN", "SYS_NICE")
"""Capabilities for attaching an XDP program and opening AF_XDP sockets through DPDK 22.11, determined by experiment.
``SYS_NICE`` is required by Docker's seccomp profile for ``set_mempolicy``, which DPDK calls for its huge pages."""
VFIO_CAPABILITIES = ("IPC_LOCK", "SYS_ADMIN", "SYS_RAWIO", "SYS_NICE")
"""Capabilities for DPDK on a host without an IOMMU: the kernel opens such a vfio group only with ``SYS_RAWIO``, and
shows physical addresses (``/proc/self/pagemap``) only with ``SYS_ADMIN``. They were determined from the sources, since
no such host was available."""


class VadFleet(Construct):
    """An Auto Scaling group in each zone, with one UDP target group.

    One group per zone makes "+2 in every zone" exact, since a group that spans several zones only balances them on a
    best-effort basis.

    Attributes:
        groups: Auto Scaling groups in zone order.
        instance_targets: UDP target group for RTP in which Auto Scaling registers hosts.
        address_targets: UDP target group for RTP in which vfio hosts register themselves.
        target_group: The target group that the configured data path uses; the public load balancer's listener forwards
            to it.
        scaling: One scaling construct per rule.
    """

    def __init__(self, scope: Construct, id_: str, *, context: FleetContext) -> None:
        super().__init__(scope, id_)
        self._context = context
        self._deployment = context.deployment
        self._fleet = context.deployment.aws.vad
        self._vfio = self._fleet.data_path.mode is DataPathMode.VFIO
        # Both groups are created and imported by other stacks in either mode, so that a fleet can change its data path.
        self.instance_targets = self._build_target_group("Targets", elbv2.TargetType.INSTANCE)
        self.address_targets = self._build_target_group("AddressTargets", elbv2.TargetType.IP)
        self.target_group = self.address_targets if self._vfio else self.instance_targets
        role = context.create_role(
            self, "Role", groups=names.list_vad_group_names(self._deployment), tier=Tier.VAD, images=VAD_IMAGES
        )
        if self._vfio:
            role.allow_target_registration(self.target_group.target_group_arn)
        self.groups = [self._build_group(zone, role) for zone in self._deployment.aws.availability_zones]
        # Zones are updated one after another, so that a fault of new hosts appears in one zone first.
        for before, after in pairwise(self.groups):
            after.node.add_dependency(before)
        self.scaling = create_fleet_scaling(self, self._deployment, names.VAD_FLEET, self._fleet.scaling, self.groups)

    def _build_target_group(self, id_: str, kind: elbv2.TargetType) -> elbv2.NetworkTargetGroup:
        """Create a target group. Auto Scaling registers instances; a vfio host registers its own address."""
        targets = elbv2.NetworkTargetGroup(
            self,
            id_,
            vpc=self._context.network.vpc,
            port=RTP.number,
            protocol=elbv2.Protocol.UDP,
            target_type=kind,
            health_check=elbv2.HealthCheck(
                protocol=elbv2.Protocol.TCP, port=str(VAD_HEALTH.number), interval=Duration.seconds(10)
            ),
            # The lifecycle hook controls draining; UDP flows of a deregistered host move to other hosts immediately.
            deregistration_delay=Duration.seconds(0),
            connection_termination=True,
        )
        # The hash of a flow includes its source port: if a NAT changed a caller's port, the caller would reach another
        # host.
        targets.set_attribute("stickiness.enabled", "true")
        targets.set_attribute("stickiness.type", "source_ip")
        return targets

    def _build_group(self, zone: str, role: HostRole) -> autoscaling.AutoScalingGroup:
        suffix = zone.removeprefix(self._deployment.aws.region).upper()
        name = names.build_group_name(self._deployment, names.VAD_FLEET, zone)
        express = self._fleet.ena_express
        template = create_host_template(
            self,
            f"Template{suffix}",
            props=HostTemplateProps(
                instance_type=catalog.instance_types()[self._fleet.instance_type],
                role=role,
                security_group=self._context.get_security_group(Tier.VAD),
                volume_key=self._context.key,
                root_volume_gib=self._fleet.root_volume_gib,
                root_volume_mib_per_s=self._fleet.root_volume_mib_per_s,
                user_data=voice_userdata.render_user_data(self._create_host_boot(name)),
                purchase=OnDemand(),
                has_secondary_interface=self._vfio,
                uses_ena_express_udp=express.udp if express.enabled else None,
                machine_image=self._fleet.machine_image,
            ),
        )
        bounds = self._fleet.hosts_per_zone
        group = create_host_group(
            self,
            f"Group{suffix}",
            props=HostGroupProps(
                name=name,
                vpc=self._context.network.vpc,
                subnets=self._context.network.select_private_subnets((zone,)),
                template=template,
                start_timeouts=calculate_start_timeouts(VAD_IMAGES),
                min_hosts=self._context.calculate_min_hosts(bounds.min, VAD_IMAGES),
                max_hosts=bounds.max,
                warm_up_s=self._fleet.warm_up_s,
                rollout=self._deployment.aws.rollout,
                rollback_alarm_names=list_rollback_alarms(self._deployment, Tier.VAD, names.VAD_FLEET),
                purchase=OnDemand(),
                is_behind_load_balancer=not self._vfio,
            ),
        )
        # The target group is also attached in vfio mode, since detaching it would immediately deregister hosts of the
        # previous mode.
        group.attach_to_network_target_group(self.instance_targets)
        return group

    def _create_host_boot(self, group: str) -> voice_userdata.HostUserDataConfig:
        fleet, path, context = self._fleet, self._fleet.data_path, self._context
        return voice_userdata.HostUserDataConfig(
            deployment=self._deployment.name,
            fleet=names.VAD_FLEET,
            tier=Tier.VAD,
            region=self._deployment.aws.region,
            auto_scaling_group=group,
            hooks=create_lifecycle_hooks(calculate_start_timeouts(VAD_IMAGES), fleet.drain_timeout_s),
            containers=(self._create_dataplane_container(), self._create_telemetry_container()),
            log_group=context.log_group.log_group_name,
            environment=context.build_shared_environment(Tier.VAD),
            state=context.create_state_access(Tier.VAD),
            signing_key=self._deployment.signing_key,
            mtu=path.mtu,
            huge_pages=voice_userdata.HugePages(fleet.huge_pages.size_mib, fleet.huge_pages.count),
            ena_express=fleet.ena_express.enabled,
            data_path=voice_userdata.VfioDataPath(path.rx_queues, path.rx_ring_size, self.target_group.target_group_arn)
            if self._vfio
            else voice_userdata.AfXdpDataPath(path.rx_queues, path.rx_ring_size),
        )

    def _create_dataplane_container(self) -> voice_userdata.Container:
        return self._context.create_container(
            Image.VAD_DATAPLANE,
            {
                RTP_PORT: str(RTP.number),
                CHUNK_PORT: str(CHUNK.number),
                CHUNK_KIND: self._select_chunk_kind(),
                HEALTH_PORT: str(VAD_HEALTH.number),
                DRAIN_TIMEOUT_S: str(self._fleet.drain_timeout_s),
                MAX_SESSIONS: str(find_limiting_bound(calculate_vad_host_call_bounds(self._fleet)).calls),
            },
            voice_userdata.PortReadinessCheck(VAD_HEALTH.number),
            capabilities=VFIO_CAPABILITIES if self._vfio else DATAPLANE_CAPABILITIES,
            mounts=(voice_userdata.Mount(CONTROL_DIR, CONTROL_DIR, is_writable=True),),
            uses_hardware=True,
        )

    def _select_chunk_kind(self) -> str:
        """Return the kind of payload that all ASR fleets accept. Only the default model accepts features."""
        fleets = self._deployment.aws.asr
        return "pcm16" if any(fleet.engine is Engine.VLLM or fleet.model for fleet in fleets) else "log-mel"

    def _create_telemetry_container(self) -> voice_userdata.Container:
        """Return the container that publishes the fleet's metrics, with access to the data plane's socket."""
        return replace(
            self._context.create_telemetry_container(["dataplane", "nic"]),
            supplementary_group_ids=(self._create_dataplane_container().user_id,),
            mounts=(voice_userdata.Mount(CONTROL_DIR, CONTROL_DIR),),
        )
