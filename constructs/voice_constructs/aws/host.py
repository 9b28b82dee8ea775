"""Resources for every EC2 host in a fleet: role, launch template, Auto Scaling group."""

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import CfnDynamicReference, CfnDynamicReferenceService, Duration, Stack
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

import voice_userdata
from voice_blueprint.aws import machine_images
from voice_blueprint.catalog import InstanceType
from voice_blueprint.contract.metrics import NAMESPACE
from voice_blueprint.engines.launch.coldstart import StartTimeouts
from voice_blueprint.file.model.aws import CapacityBlock, CapacityReservation, PurchaseOption, Rollout, Spot
from voice_blueprint.observability.aws.rollouts import can_surge
from voice_constructs.aws.acknowledge import acknowledge
from voice_constructs.aws.pseudo import ACCOUNT_ID, PARTITION

ROOT_DEVICE = "/dev/xvda"
BASELINE_IOPS = 3000
IOPS_PER_MIB_S = 4
"""A gp3 volume provides at most a quarter of a MiB/s per IOPS, and includes 3,000 IOPS.
https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html"""


@dataclass(frozen=True)
class HostRoleProps:
    """Properties of ``HostRole``.

    Attributes:
        groups: Names of the Auto Scaling groups whose lifecycle actions the host completes.
        store_host_parameter_name: Name of the parameter with the state store's endpoint.
        secret: Secret of the tier's user of the state store, and its encryption key.
    """

    groups: Sequence[str]
    region: str
    repositories: Sequence[ecr.IRepository]
    log_group: logs.ILogGroup
    store_host_parameter_name: str
    secret: secretsmanager.ISecret
    secret_encryption_key: kms.IKey


class HostRole(iam.Role):
    """The minimal permissions of a host, for its images, logs, metrics, lifecycle hooks and secret."""

    def __init__(self, scope: Construct, id_: str, *, props: HostRoleProps) -> None:
        super().__init__(
            scope,
            id_,
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name("AmazonSSMManagedInstanceCore")],
        )
        acknowledge(
            self,
            "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/AmazonSSMManagedInstanceCore]",
            "Session Manager is the only way into a host (no SSH, no open port); AWS maintains its list of actions",
        )
        acknowledge(
            self,
            "AwsSolutions-IAM5[Resource::*]",
            "GetAuthorizationToken and PutMetricData do not support resources; metrics are limited to one namespace",
        )
        for repository in props.repositories:
            repository.grant_pull(self)
        props.log_group.grant_write(self)
        self._allow_actions(["cloudwatch:PutMetricData"], ["*"], {"StringEquals": {"cloudwatch:namespace": NAMESPACE}})
        self._allow_lifecycle_actions(props)
        parameter = f"arn:{PARTITION}:ssm:{props.region}:{ACCOUNT_ID}:parameter{props.store_host_parameter_name}"
        self._allow_actions(["ssm:GetParameter"], [parameter])
        self._allow_actions(["secretsmanager:GetSecretValue"], [props.secret.secret_arn])
        via_secrets_manager = {"StringEquals": {"kms:ViaService": f"secretsmanager.{props.region}.amazonaws.com"}}
        self._allow_actions(["kms:Decrypt"], [props.secret_encryption_key.key_arn], via_secrets_manager)

    def allow_target_registration(self, target_group_arn: str) -> None:
        """Grant a host permission to register its secondary interface as a target, and to deregister it."""
        self._allow_actions(
            ["elasticloadbalancing:RegisterTargets", "elasticloadbalancing:DeregisterTargets"], [target_group_arn]
        )

    def _allow_lifecycle_actions(self, props: HostRoleProps) -> None:
        groups = [f":autoScalingGroup:*:autoScalingGroupName/{name}" for name in props.groups]
        self._allow_actions(
            [action for action in voice_userdata.HOST_IAM_ACTIONS if action.startswith("autoscaling:")],
            [f"arn:{PARTITION}:autoscaling:{props.region}:{ACCOUNT_ID}{group}" for group in groups],
        )
        for group in groups:
            acknowledge(
                self,
                f"AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:autoscaling:{props.region}:<AWS::AccountId>{group}]",
                "EC2 Auto Scaling adds its own id before the group's name; the name itself is exact",
            )

    def _allow_actions(
        self, actions: list[str], resources: list[str], conditions: dict[str, dict[str, str]] | None = None
    ) -> None:
        self.add_to_policy(iam.PolicyStatement(actions=actions, resources=resources, conditions=conditions))


@dataclass(frozen=True)
class HostTemplateProps:
    """Properties of the launch template of a host.

    Attributes:
        has_secondary_interface: Whether the host gets a second network interface, for DPDK only.
        uses_ena_express_udp: ``None`` without ENA Express, otherwise whether UDP uses it as well.
        machine_image: Machine image as configured in the file; ``None`` for AWS's latest image.
    """

    instance_type: InstanceType
    role: iam.IRole
    security_group: ec2.ISecurityGroup
    volume_key: kms.IKey
    root_volume_gib: int
    root_volume_mib_per_s: int
    user_data: str
    purchase: PurchaseOption
    has_secondary_interface: bool = False
    uses_ena_express_udp: bool | None = None
    machine_image: str | None = None


def create_host_template(scope: Construct, id_: str, *, props: HostTemplateProps) -> ec2.LaunchTemplate:
    """Create a launch template with IMDSv2 only, an encrypted gp3 root volume, and no public address."""
    template = ec2.LaunchTemplate(
        scope,
        id_,
        instance_type=ec2.InstanceType(props.instance_type.name),
        machine_image=_select_machine_image(scope, props),
        role=props.role,
        security_group=props.security_group,
        user_data=ec2.UserData.custom(props.user_data),
        require_imdsv2=True,
        http_tokens=ec2.LaunchTemplateHttpTokens.REQUIRED,
        # Containers share the host's network, so one hop is sufficient.
        http_put_response_hop_limit=1,
        detailed_monitoring=True,
        ebs_optimized=True,
        # This makes the L2 construct add a NetworkInterfaces entry, which ENA Express and a second interface need.
        associate_public_ip_address=False,
        block_devices=[
            ec2.BlockDevice(
                device_name=ROOT_DEVICE,
                volume=ec2.BlockDeviceVolume.ebs(
                    props.root_volume_gib,
                    encrypted=True,
                    kms_key=props.volume_key,
                    volume_type=ec2.EbsDeviceVolumeType.GP3,
                    throughput=props.root_volume_mib_per_s,
                    iops=max(BASELINE_IOPS, IOPS_PER_MIB_S * props.root_volume_mib_per_s),
                    delete_on_termination=True,
                ),
            )
        ],
        spot_options=ec2.LaunchTemplateSpotOptions(request_type=ec2.SpotRequestType.ONE_TIME)
        if isinstance(props.purchase, Spot)
        else None,
    )
    cfn = template.node.default_child
    assert isinstance(cfn, ec2.CfnLaunchTemplate)  # noqa: S101  narrows jsii's IConstruct
    _configure_interfaces(cfn, props)
    _configure_reservation(cfn, props.purchase)
    return template


def _select_machine_image(scope: Construct, props: HostTemplateProps) -> ec2.IMachineImage:
    """Return a machine image that CloudFormation resolves.

    Each version of the launch template then contains an AMI id, which a rollback restores. A template parameter
    resolves to the latest version at each deployment; a dynamic reference resolves to the configured version.
    """
    chosen = props.machine_image or machine_images.get_public_image_parameter(props.instance_type)
    if machine_images.is_mutable_image(chosen):
        return ec2.MachineImage.from_ssm_parameter(chosen)
    if not machine_images.is_ami_id(chosen):
        chosen = CfnDynamicReference(CfnDynamicReferenceService.SSM, chosen).to_string()
    return ec2.MachineImage.generic_linux({Stack.of(scope).region: chosen})


def _configure_interfaces(cfn: ec2.CfnLaunchTemplate, props: HostTemplateProps) -> None:
    data = "LaunchTemplateData.NetworkInterfaces"
    if props.has_secondary_interface:
        cfn.add_property_override(
            f"{data}.1",
            {
                "DeviceIndex": 1,
                "AssociatePublicIpAddress": False,
                "DeleteOnTermination": True,
                "Groups": [props.security_group.security_group_id],
            },
        )
    if props.uses_ena_express_udp is not None:
        for index in range(2 if props.has_secondary_interface else 1):
            cfn.add_property_override(
                f"{data}.{index}.EnaSrdSpecification",
                {
                    "EnaSrdEnabled": True,
                    "EnaSrdUdpSpecification": {"EnaSrdUdpEnabled": props.uses_ena_express_udp},
                },
            )


def _configure_reservation(cfn: ec2.CfnLaunchTemplate, purchase: PurchaseOption) -> None:
    if isinstance(purchase, CapacityReservation | CapacityBlock):
        cfn.add_property_override(
            "LaunchTemplateData.CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId",
            purchase.reservation_id,
        )
    if isinstance(purchase, CapacityBlock):
        cfn.add_property_override("LaunchTemplateData.InstanceMarketOptions.MarketType", "capacity-block")


LAUNCH_HOOK_NAME = "ready"
TERMINATE_HOOK_NAME = "drain"


def create_lifecycle_hooks(start: StartTimeouts, drain_timeout_s: int) -> voice_userdata.LifecycleHooks:
    """Return the names and timeouts of the lifecycle hooks, for a host's user data."""
    return voice_userdata.LifecycleHooks(
        launch_hook_name=LAUNCH_HOOK_NAME,
        terminate_hook_name=TERMINATE_HOOK_NAME,
        heartbeat_timeout_s=start.heartbeat_timeout_s,
        ready_budget_s=start.ready_timeout_s,
        drain_budget_s=drain_timeout_s,
    )


@dataclass(frozen=True)
class HostGroupProps:
    """Properties of an Auto Scaling group of hosts.

    Attributes:
        name: Name of the group, which user data and policies refer to.
        start_timeouts: Start-up budget of a host, which is also the grace period of health checks.
        min_hosts: Minimum number of hosts, 0 while an image has no digest.
        rollout: Settings for the replacement of hosts during a deployment.
        rollback_alarm_names: Names of the alarms that stop the replacement.
    """

    name: str
    vpc: ec2.IVpc
    subnets: ec2.SubnetSelection
    template: ec2.LaunchTemplate
    start_timeouts: StartTimeouts
    min_hosts: int
    max_hosts: int
    warm_up_s: int
    rollout: Rollout
    rollback_alarm_names: Sequence[str]
    purchase: PurchaseOption
    is_behind_load_balancer: bool = False


def create_host_group(scope: Construct, id_: str, *, props: HostGroupProps) -> autoscaling.AutoScalingGroup:
    """Create an Auto Scaling group whose hosts join once they are ready, and drain before termination.

    The lifecycle hooks are part of the group, so that they apply to its first host as well.
    """
    grace = Duration.seconds(props.start_timeouts.ready_timeout_s)
    group = autoscaling.AutoScalingGroup(
        scope,
        id_,
        auto_scaling_group_name=props.name,
        vpc=props.vpc,
        vpc_subnets=props.subnets,
        launch_template=props.template,
        min_capacity=props.min_hosts,
        max_capacity=props.max_hosts,
        default_instance_warmup=Duration.seconds(props.warm_up_s),
        health_checks=autoscaling.HealthChecks.with_additional_checks(
            grace_period=grace, additional_types=[autoscaling.AdditionalHealthCheckType.ELB]
        )
        if props.is_behind_load_balancer
        else autoscaling.HealthChecks.ec2(grace_period=grace),
        group_metrics=[autoscaling.GroupMetrics.all()],
        update_policy=_create_instance_refresh(props),
    )
    cfn = group.node.default_child
    assert isinstance(cfn, autoscaling.CfnAutoScalingGroup)  # noqa: S101  narrows jsii's IConstruct
    cfn.lifecycle_hook_specification_list = [
        autoscaling.CfnAutoScalingGroup.LifecycleHookSpecificationProperty(
            lifecycle_hook_name=name,
            lifecycle_transition=f"autoscaling:EC2_INSTANCE_{transition}",
            heartbeat_timeout=props.start_timeouts.heartbeat_timeout_s,
            default_result="ABANDON",
        )
        for name, transition in {LAUNCH_HOOK_NAME: "LAUNCHING", TERMINATE_HOOK_NAME: "TERMINATING"}.items()
    ]
    # The L2 construct only accepts alarms, not names; each alarm would be a separate construct in each group.
    cfn.add_override(
        "UpdatePolicy.AutoScalingInstanceRefresh.Preferences.AlarmSpecification",
        {"Alarms": list(props.rollback_alarm_names)},
    )
    acknowledge(
        group,
        "AwsSolutions-AS3",
        "Operators are notified by the alarms' topic; a message for every launch and termination would be noise",
    )
    return group


def _create_instance_refresh(props: HostGroupProps) -> autoscaling.UpdatePolicy:
    """Return the update policy: an instance refresh that includes the warm pool.

    Scaling continues during the refresh. If an alarm fires, the refresh fails, and CloudFormation restores the previous
    launch template.
    """
    rollout, room = props.rollout, can_surge(props.purchase)
    return autoscaling.UpdatePolicy.instance_refresh(
        strategy=autoscaling.InstanceRefreshStrategy.ROLLING,
        min_healthy_percentage=100 if room else 100 - rollout.surge_percent,
        max_healthy_percentage=100 + rollout.surge_percent if room else 100,
        checkpoint_percentages=[*rollout.checkpoint_percentages, 100],
        checkpoint_delay=Duration.seconds(rollout.checkpoint_pause_s),
        bake_time=Duration.seconds(rollout.bake_s),
        skip_matching=True,
    )
