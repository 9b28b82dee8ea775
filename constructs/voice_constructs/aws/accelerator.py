"""ASR fleets on Neuron accelerators, on GPUs, and on the CPUs of Graviton hosts."""

from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

import voice_userdata
from voice_blueprint import catalog
from voice_blueprint.aws import names
from voice_blueprint.capacity.bounds import calculate_asr_host_call_bounds, find_limiting_bound
from voice_blueprint.contract.environment import CACHE_DIR, CHUNK_PORT, DRAIN_TIMEOUT_S, ENGINE, HEALTH_PORT, HOST_KIND
from voice_blueprint.contract.images import UNPRIVILEGED_UID, Image
from voice_blueprint.contract.metrics import NEURON_TOOLS_DIR, START_PHASES_FILE
from voice_blueprint.contract.network import CHUNK, ENGINE_HEALTH, VLLM, Tier
from voice_blueprint.contract.session_api import HEALTH_PATH
from voice_blueprint.engines.launch.coldstart import calculate_start_timeouts
from voice_blueprint.engines.launch.services import (
    HOST_CACHE_DIR,
    create_fleet_launcher,
    create_neuron_launcher,
    create_preparation_launcher,
)
from voice_blueprint.engines.launch.vllm import HEALTH_PATH as VLLM_HEALTH_PATH
from voice_blueprint.engines.launch.vllm import LOG_PREFIX_BY_START_PHASE
from voice_blueprint.engines.launch.whisper import create_whisper_engine, format_engine_variable
from voice_blueprint.file.model.aws import AsrFleet, Engine
from voice_blueprint.hosts import format_artifacts_name, lacks_digests, list_asr_images
from voice_blueprint.observability.aws.rollouts import list_rollback_alarms
from voice_constructs.aws.fleet import FleetContext
from voice_constructs.aws.host import (
    HostGroupProps,
    HostTemplateProps,
    create_host_group,
    create_host_template,
    create_lifecycle_hooks,
)
from voice_constructs.aws.scaling import create_fleet_scaling

INSTANCE_STORE_MOUNT_PATH = "/mnt/nvme"
START_PHASES_DIR = str(PurePosixPath(START_PHASES_FILE).parent)

SHARED_MEMORY_MIB = 16_384
"""Size of ``/dev/shm``. Docker's default is too small for vLLM and the Neuron runtime."""


@dataclass(frozen=True)
class AcceleratorFleetProps:
    """Properties of ``AcceleratorFleet``."""

    fleet: AsrFleet
    context: FleetContext


def create_accelerator_template(
    scope: Construct, id_: str, *, props: AcceleratorFleetProps, role: iam.Role, user_data: str
) -> ec2.LaunchTemplate:
    """Create the launch template of the fleet's hosts."""
    fleet, context = props.fleet, props.context
    return create_host_template(
        scope,
        id_,
        props=HostTemplateProps(
            instance_type=catalog.instance_types()[fleet.instance_type],
            role=role,
            security_group=context.get_security_group(Tier.ASR),
            volume_key=context.key,
            root_volume_gib=fleet.root_volume_gib,
            root_volume_mib_per_s=fleet.root_volume_mib_per_s,
            user_data=user_data,
            purchase=fleet.purchase,
            machine_image=fleet.machine_image,
        ),
    )


def get_cache_dir(fleet: AsrFleet, image: Image) -> str:
    """Return the host directory for the caches that an image's engine uses."""
    has_disks = catalog.instance_types()[fleet.instance_type].instance_store_disks
    return f"{INSTANCE_STORE_MOUNT_PATH if has_disks else HOST_CACHE_DIR}/{image}"


def create_fleet_artifacts(context: FleetContext, fleet: AsrFleet) -> voice_userdata.Artifacts:
    """Return the bucket prefix and the host directory for the fleet's weights and compiled programs."""
    name = format_artifacts_name(context.deployment, fleet)
    return voice_userdata.Artifacts(
        context.registry.artifacts.build_url(name),
        get_cache_dir(fleet, create_preparation_launcher(fleet).image),
        UNPRIVILEGED_UID,
    )


class AcceleratorFleet(Construct):
    """Hosts of one instance type in one Auto Scaling group.

    The hosts have no load balancer. The VAD tier assigns each session to a host of the host registry. It uses Neuron
    hosts first, and CPU hosts last.

    Attributes:
        group: The Auto Scaling group.
        scaling: One scaling construct per rule.
    """

    def __init__(self, scope: Construct, id_: str, *, props: AcceleratorFleetProps) -> None:
        super().__init__(scope, id_)
        self._context = props.context
        self._deployment = props.context.deployment
        self._fleet = props.fleet
        self._type = catalog.instance_types()[props.fleet.instance_type]
        self._images = list_asr_images(props.fleet)
        self._start = calculate_start_timeouts(self._images, artifacts=props.fleet.artifacts)
        self._name = names.build_group_name(self._deployment, props.fleet.name)
        self.group = self._build_group()
        self.scaling = create_fleet_scaling(self, self._deployment, props.fleet.name, props.fleet.scaling, [self.group])

    def _build_role(self) -> iam.Role:
        role = self._context.create_role(self, "Role", groups=[self._name], tier=Tier.ASR, images=self._images)
        if self._fleet.artifacts:
            name = format_artifacts_name(self._deployment, self._fleet)
            self._context.registry.artifacts.grant_access(role, name, region=self._deployment.aws.region)
        return role

    def _build_group(self) -> autoscaling.AutoScalingGroup:
        fleet, context = self._fleet, self._context
        template = create_accelerator_template(
            self,
            "Template",
            props=AcceleratorFleetProps(fleet=fleet, context=context),
            role=self._build_role(),
            user_data=voice_userdata.render_user_data(self._create_host_boot()),
        )
        group = create_host_group(
            self,
            "Group",
            props=HostGroupProps(
                name=self._name,
                vpc=context.network.vpc,
                subnets=context.network.select_private_subnets(fleet.availability_zones),
                template=template,
                start_timeouts=self._start,
                min_hosts=context.calculate_min_hosts(fleet.hosts.min, self._images),
                max_hosts=fleet.hosts.max,
                warm_up_s=fleet.warm_up_s,
                rollout=self._deployment.aws.rollout,
                rollback_alarm_names=list_rollback_alarms(self._deployment, Tier.ASR, fleet.name),
                purchase=fleet.purchase,
            ),
        )
        # A host without its image would boot, fail and be relaunched indefinitely.
        if fleet.warm_pool and not lacks_digests(self._deployment, self._images):
            size = fleet.warm_pool.size
            group.add_warm_pool(
                # Without both values, the pool fills up to the group's maximum.
                # https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_PutWarmPool.html
                min_size=size,
                max_group_prepared_capacity=size,
                pool_state=autoscaling.PoolState.STOPPED,
            )
        return group

    def _create_host_boot(self) -> voice_userdata.HostUserDataConfig:
        accelerator = self._type.accelerator
        return voice_userdata.HostUserDataConfig(
            deployment=self._deployment.name,
            fleet=self._fleet.name,
            tier=Tier.ASR,
            region=self._deployment.aws.region,
            auto_scaling_group=self._name,
            hooks=create_lifecycle_hooks(self._start, self._fleet.drain_timeout_s),
            containers=tuple(
                self._create_telemetry_container()
                if image is Image.TELEMETRY
                else self._create_recognizer_container(image)
                for image in self._images
            ),
            log_group=self._context.log_group.log_group_name,
            environment=self._context.build_shared_environment(Tier.ASR),
            state=self._context.create_state_access(Tier.ASR),
            signing_key=self._deployment.signing_key,
            instance_store_mount=INSTANCE_STORE_MOUNT_PATH if self._type.instance_store_disks else None,
            artifacts=create_fleet_artifacts(self._context, self._fleet) if self._fleet.artifacts else None,
            accelerator=accelerator.kind if accelerator else None,
        )

    def _create_telemetry_container(self) -> voice_userdata.Container:
        """Return the container that publishes the fleet's metrics, including those for the host's start-up phases."""
        kind = self._type.compute_kind
        directories = [START_PHASES_DIR, *([NEURON_TOOLS_DIR] if kind == "neuron" else [])]
        return replace(
            self._context.create_telemetry_container(["engine", *([] if kind == "cpu" else [kind])]),
            uses_hardware=kind != "cpu",
            mounts=tuple(voice_userdata.Mount(directory, directory) for directory in directories),
        )

    def _create_recognizer_container(self, image: Image) -> voice_userdata.Container:
        accelerated = self._type.compute_kind != "cpu"
        container = self._create_vllm_container() if image is Image.ASR_VLLM else self._create_engine_container(image)
        return replace(
            container,
            user_id=UNPRIVILEGED_UID,
            uses_hardware=accelerated,
            shared_memory_mib=SHARED_MEMORY_MIB if accelerated else None,
            mounts=(voice_userdata.Mount(get_cache_dir(self._fleet, image), HOST_CACHE_DIR, is_writable=True),),
        )

    def _create_vllm_container(self) -> voice_userdata.Container:
        launch = create_fleet_launcher(self._fleet)
        container = self._context.create_container(
            Image.ASR_VLLM, {}, voice_userdata.PortReadinessCheck(VLLM.number, VLLM_HEALTH_PATH)
        )
        return replace(
            container,
            environment=launch.build_environment(),
            arguments=launch.build_command(),
            start_log_prefix_by_phase=LOG_PREFIX_BY_START_PHASE,
        )

    def _create_engine_container(self, image: Image) -> voice_userdata.Container:
        kind = self._type.compute_kind
        container = self._context.create_container(
            image,
            {
                CACHE_DIR: HOST_CACHE_DIR,
                DRAIN_TIMEOUT_S: str(self._fleet.drain_timeout_s),
                CHUNK_PORT: str(CHUNK.number),
                HEALTH_PORT: str(ENGINE_HEALTH.number),
                HOST_KIND: kind,
                ENGINE: format_engine_variable(self._fleet),
            },
            voice_userdata.PortReadinessCheck(ENGINE_HEALTH.number, HEALTH_PATH),
        )
        runtime = create_neuron_launcher(self._fleet).build_environment() if kind == "neuron" else {}
        # On a host with vLLM, the start waits for vLLM.
        waits_for_vllm = kind == "gpu" and self._fleet.engine is Engine.VLLM
        engine = create_whisper_engine(
            self._fleet, find_limiting_bound(calculate_asr_host_call_bounds(self._fleet)).calls
        )
        offline = {"HF_HUB_OFFLINE": "1"} if self._fleet.artifacts else {}
        environment = {**container.environment, **engine.build_environment(), **runtime, **offline}
        return replace(container, environment=environment, start_log_prefix_by_phase=None if waits_for_vllm else {})
