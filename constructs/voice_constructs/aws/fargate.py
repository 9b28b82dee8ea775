"""An ECS service on Fargate for the gateway or the agents."""

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from voice_blueprint.aws.edge import FARGATE_STOP_TIMEOUT_S
from voice_blueprint.contract.environment import TOKEN_KEY, VALKEY_HOST, VALKEY_PASSWORD, Variable
from voice_blueprint.contract.images import UNPRIVILEGED_UID, Image
from voice_blueprint.contract.metrics import DEPLOYMENT_DIMENSION, FLEET_DIMENSION, NAMESPACE
from voice_blueprint.contract.network import Port, Tier
from voice_blueprint.contract.session_api import HEALTH_COMMAND
from voice_blueprint.file.model.edge import TaskCount
from voice_blueprint.hosts import get_image_digest, lacks_digests
from voice_constructs.aws.acknowledge import acknowledge
from voice_constructs.aws.edge import EdgeContext
from voice_constructs.aws.state import PASSWORD_FIELD, ValkeyStore

TOKEN_SIGNING_KEY_LENGTH = 64
"""Length of the key that signs session tokens. With 62 possible characters, the key exceeds the 256 bits of
HMAC-SHA-256."""

PROTECTION_ACTIONS = ("ecs:GetTaskProtection", "ecs:UpdateTaskProtection")
"""Permissions for a task to enable its scale-in protection.
https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-scale-in-protection-endpoint.html"""

START_GRACE_S = 60
"""Grace period for a new task's health checks."""
SCALE_OUT_COOLDOWN_S = 60
"""Cooldown after a scale-out. A Fargate task on arm64 starts within about a minute; the default of 300 s is too slow
for arriving callers."""


@dataclass(frozen=True)
class FargateProps:
    """Resources that the tasks of a tier use."""

    context: EdgeContext
    store: ValkeyStore
    repositories: Mapping[Image, ecr.IRepository]


class FargateTier(Construct):
    """An ECS service on Fargate (arm64), with one or more tasks in private subnets in all zones.

    Tasks publish metrics as log lines in embedded metric format. The task role only grants permission to enable
    scale-in protection for the cluster's own tasks.

    Attributes:
        cluster: The ECS cluster.
        service: The service.
        log_group: Log group of the tasks.
        token_key: Secret that signs tokens.
    """

    tier: Tier
    image: Image
    service: ecs.FargateService

    def __init__(self, scope: Construct, id_: str, *, props: FargateProps) -> None:
        super().__init__(scope, id_)
        self._props = props
        self._deployment = props.context.deployment
        self._lacks_digests = lacks_digests(self._deployment, (self.image,))
        self.log_group = props.context.create_log_group(self, "Logs", f"/voice/{self._deployment.name}/{self.tier}")
        self.token_key = self._build_token_signing_key()
        self.cluster = ecs.Cluster(
            self,
            "Cluster",
            vpc=props.context.network.vpc,
            container_insights_v2=ecs.ContainerInsights.ENABLED,
        )

    def _build_token_signing_key(self) -> secretsmanager.Secret:
        secret = secretsmanager.Secret(
            self,
            "TokenKey",
            description="Signs session tokens",
            encryption_key=self._props.context.key,
            removal_policy=self._props.context.retention.logs,
            generate_secret_string=secretsmanager.SecretStringGenerator(
                password_length=TOKEN_SIGNING_KEY_LENGTH, exclude_punctuation=True
            ),
        )
        acknowledge(
            secret,
            "AwsSolutions-SMG4",
            "A rotation is a new secret value and a new deployment of the service: all tasks must use one key, "
            "and tokens of the old key expire within minutes",
        )
        return secret

    def _build_task(
        self,
        *,
        vcpu: float,
        memory_gib: int,
        ports: tuple[Port, ...],
        environment: Mapping[Variable, str],
        extra_secrets: Mapping[Variable, ecs.Secret] | None = None,
    ) -> ecs.FargateTaskDefinition:
        task = ecs.FargateTaskDefinition(
            self,
            "Task",
            cpu=int(vcpu * 1024),
            memory_limit_mib=memory_gib * 1024,
            runtime_platform=ecs.RuntimePlatform(
                cpu_architecture=ecs.CpuArchitecture.ARM64, operating_system_family=ecs.OperatingSystemFamily.LINUX
            ),
        )
        self._allow_task_protection(task)
        secrets = {
            VALKEY_HOST: self._reference_state_host(),
            VALKEY_PASSWORD: self._reference_state_password(task),
            TOKEN_KEY: ecs.Secret.from_secrets_manager(self.token_key),
            **(extra_secrets or {}),
        }
        acknowledge(task, "AwsSolutions-ECS2", "Secrets are injected by reference; other values are names and numbers")
        acknowledge(
            task,
            "AwsSolutions-IAM5[Resource::*]",
            "ecr:GetAuthorizationToken does not support resources; pulls are limited to one repository",
        )
        linux = ecs.LinuxParameters(self, "Linux", init_process_enabled=True)
        linux.drop_capabilities(ecs.Capability.ALL)
        task.add_container(
            self.tier.value,
            container_name=self.tier.value,
            image=ecs.ContainerImage.from_ecr_repository(
                self._props.repositories[self.image], get_image_digest(self._deployment, self.image)
            ),
            environment={variable.name: value for variable, value in environment.items()},
            secrets={variable.name: secret for variable, secret in secrets.items()},
            port_mappings=[ecs.PortMapping(container_port=port.number) for port in ports],
            user=f"{UNPRIVILEGED_UID}:{UNPRIVILEGED_UID}",
            readonly_root_filesystem=True,
            linux_parameters=linux,
            health_check=ecs.HealthCheck(
                command=["CMD", HEALTH_COMMAND],
                interval=Duration.seconds(10),
                start_period=Duration.seconds(START_GRACE_S),
            ),
            stop_timeout=Duration.seconds(FARGATE_STOP_TIMEOUT_S),
            logging=ecs.LogDriver.aws_logs(stream_prefix=self.tier.value, log_group=self.log_group),
        )
        return task

    def _allow_task_protection(self, task: ecs.FargateTaskDefinition) -> None:
        """Grant tasks permission to enable ECS task protection during calls (voice_runtime/protection.py)."""
        stack = Stack.of(self)
        tasks = stack.format_arn(service="ecs", resource="task", resource_name=f"{self.cluster.cluster_name}/*")
        task.add_to_task_role_policy(iam.PolicyStatement(actions=[*PROTECTION_ACTIONS], resources=[tasks]))
        account = self._deployment.aws.account or "<AWS::AccountId>"
        cfn_cluster = self.cluster.node.default_child
        assert isinstance(cfn_cluster, ecs.CfnCluster)  # noqa: S101  the L2's own resource
        task_arns = f"arn:<AWS::Partition>:ecs:{stack.region}:{account}:task/<{stack.get_logical_id(cfn_cluster)}>/*"
        acknowledge(task, f"AwsSolutions-IAM5[Resource::{task_arns}]", "A task's id is unknown before it runs")

    def _reference_state_host(self) -> ecs.Secret:
        """Return a reference to the parameter with the store's endpoint.

        The parameter is referenced by name, so that a restore can change the value without an export.
        """
        parameter = ssm.StringParameter.from_string_parameter_attributes(
            self, "StateHost", parameter_name=self._props.store.host_parameter
        )
        return ecs.Secret.from_ssm_parameter(parameter)

    def _reference_state_password(self, task: ecs.FargateTaskDefinition) -> ecs.Secret:
        """Return a reference to the tier's password, and grant the task permission to decrypt it.

        The secret is referenced by ARN, since the CDK's own grant would add the task's role to the other stack's key
        policy.
        """
        store = self._props.store
        secret = secretsmanager.Secret.from_secret_complete_arn(
            self, "StatePassword", store.secrets[self.tier].secret_arn
        )
        task.add_to_execution_role_policy(
            iam.PolicyStatement(
                actions=["kms:Decrypt"],
                resources=[store.key.key_arn],
                conditions={
                    "StringEquals": {"kms:ViaService": f"secretsmanager.{self._deployment.aws.region}.amazonaws.com"}
                },
            )
        )
        return ecs.Secret.from_secrets_manager(secret, PASSWORD_FIELD)

    def _build_service(
        self, task: ecs.FargateTaskDefinition, targets: Mapping[Port, elbv2.NetworkTargetGroup]
    ) -> ecs.FargateService:
        network = self._props.context.network
        service = ecs.FargateService(
            self,
            "Service",
            cluster=self.cluster,
            task_definition=task,
            # Scaling sets the number of tasks; a deployment must not reset it.
            desired_count=0 if self._lacks_digests else None,
            circuit_breaker=ecs.DeploymentCircuitBreaker(enable=True, rollback=True),
            min_healthy_percent=100,
            max_healthy_percent=200,
            health_check_grace_period=Duration.seconds(START_GRACE_S),
            assign_public_ip=False,
            vpc_subnets=network.select_private_subnets(),
            security_groups=[network.security_groups[self.tier]],
            propagate_tags=ecs.PropagatedTagSource.SERVICE,
        )
        for port, group in targets.items():
            group.add_target(service.load_balancer_target(container_name=self.tier.value, container_port=port.number))
        return service

    def _build_scaling(self, count: TaskCount, metric: str, fleet: str, target: float) -> None:
        """Scale the service so that the average of a metric over all tasks stays at a target."""
        tasks = self.service.auto_scale_task_count(
            min_capacity=0 if self._lacks_digests else count.min, max_capacity=count.max
        )
        tasks.scale_to_track_custom_metric(
            metric,
            metric=cloudwatch.Metric(
                namespace=NAMESPACE,
                metric_name=metric,
                dimensions_map={DEPLOYMENT_DIMENSION: self._deployment.name, FLEET_DIMENSION: fleet},
                statistic="Average",
                period=Duration.minutes(1),
            ),
            target_value=round(target),
            scale_out_cooldown=Duration.seconds(SCALE_OUT_COOLDOWN_S),
        )
