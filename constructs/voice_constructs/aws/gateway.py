"""The gateway service: sessions, WebSocket audio, event streams."""

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from blueprint.aws import names
from blueprint.aws.edge import FARGATE_STOP_TIMEOUT_S, GATEWAY_DRAIN_TIMEOUT_S, api_host
from blueprint.capacity import FILL, gateway_sockets
from blueprint.contract.environment import (
    ALLOWED_ORIGINS,
    AUTHORIZER,
    CALLER_CREATIONS_PER_S,
    CALLER_SESSIONS,
    DEPLOYMENT,
    DRAIN_TIMEOUT_S,
    END_OF_TURN_MS,
    FLEET,
    HTTP_PORT,
    IDLE_TIMEOUT_S,
    JWT_AUDIENCE,
    JWT_ISSUER,
    MAX_CONNECTIONS,
    MEDIA_HOST,
    MEDIA_PORT,
    OTHER_REGIONS,
    RECONNECT_GRACE_S,
    RTP_PORT,
    SESSION_MAX_S,
    TOKEN_KEY,
    TOKEN_TTL_S,
    TRACE_COLLECTOR,
    TRACED_SHARE,
    VALKEY_HOST,
    VALKEY_PASSWORD,
    VALKEY_PORT,
    VALKEY_USER,
    Variable,
)
from blueprint.contract.images import UNPRIVILEGED_USER, Image
from blueprint.contract.metrics import DEPLOYMENT_DIMENSION, FLEET_DIMENSION, NAMESPACE
from blueprint.contract.network import GATEWAY_HTTP, GATEWAY_MEDIA, RTP, VALKEY, Tier
from blueprint.contract.session_api import HEALTH_COMMAND
from blueprint.file.model.edge import JwtAuthorizer
from blueprint.hosts import GATEWAY_IMAGES, digest, held_back
from voice_constructs.aws.acknowledge import acknowledge
from voice_constructs.aws.edge import EdgeContext
from voice_constructs.aws.state import PASSWORD_FIELD, ValkeyStore

CONTAINER = "gateway"
UPLOADS = "uploads"

TOKEN_KEY_LENGTH = 64
"""Characters of the key that signs session tokens: 62 to choose from, so more than the 256 bits of HMAC-SHA-256."""

START_S = 60
"""How long a new task may fail health checks."""
SCALE_OUT_COOLDOWN_S = 60
"""A Fargate task on arm64 is up within about a minute; sockets come faster than the default 300 s allow for."""


@dataclass(frozen=True)
class GatewayProps:
    """What ``Gateway`` is made from.

    Attributes:
        media_host: Host name that callers send audio to.
        media_targets: Target group of the WebSocket port.
        api_targets: Target group of the session API's port.
    """

    context: EdgeContext
    store: ValkeyStore
    repositories: Mapping[Image, ecr.IRepository]
    media_host: str
    media_targets: elbv2.NetworkTargetGroup
    api_targets: elbv2.NetworkTargetGroup


class Gateway(Construct):
    """An ECS service on Fargate, arm64, one task or more in private subnets of all zones.

    The session API and the audio have ports of their own: API Gateway lets callers into the first, and the public
    load balancer reaches the second only, where nothing can be had without a session token.

    Tasks publish metrics as log lines in embedded metric format, so their role needs no permission at all.

    Attributes:
        cluster: The ECS cluster.
        service: The service.
        log_group: What tasks write.
        token_key: Secret that signs session tokens.
    """

    def __init__(self, scope: Construct, id_: str, *, props: GatewayProps) -> None:
        super().__init__(scope, id_)
        self._props = props
        self._deployment = props.context.deployment
        self._held_back = held_back(self._deployment, GATEWAY_IMAGES)
        self.log_group = props.context.log_group(self, "Logs", f"/voice/{self._deployment.name}/{Tier.GATEWAY}")
        self.token_key = self._build_token_key()
        self.cluster = ecs.Cluster(
            self,
            "Cluster",
            vpc=props.context.network.vpc,
            container_insights_v2=ecs.ContainerInsights.ENABLED,
        )
        self.service = self._build_service(self._build_task())
        self._build_scaling()

    def _build_token_key(self) -> secretsmanager.Secret:
        secret = secretsmanager.Secret(
            self,
            "TokenKey",
            description="Signs session tokens",
            encryption_key=self._props.context.key,
            removal_policy=self._props.context.retention.logs,
            generate_secret_string=secretsmanager.SecretStringGenerator(
                password_length=TOKEN_KEY_LENGTH, exclude_punctuation=True
            ),
        )
        acknowledge(
            secret,
            "AwsSolutions-SMG4",
            "A rotation is a new secret value and a new deployment of the service: tasks of one service must agree, "
            "and tokens of the old key live for minutes",
        )
        return secret

    def _environment(self) -> dict[Variable, str]:
        settings = self._props.context.settings
        jwt = settings.authorizer if isinstance(settings.authorizer, JwtAuthorizer) else None
        return {
            DEPLOYMENT: self._deployment.name,
            FLEET: names.GATEWAY_FLEET,
            VALKEY_PORT: str(VALKEY.number),
            VALKEY_USER: Tier.GATEWAY.value,
            HTTP_PORT: str(GATEWAY_HTTP.number),
            MEDIA_PORT: str(GATEWAY_MEDIA.number),
            RTP_PORT: str(RTP.number),
            TOKEN_TTL_S: str(settings.token_ttl_s),
            AUTHORIZER: settings.authorizer.kind,
            JWT_ISSUER: jwt.issuer if jwt else "",
            JWT_AUDIENCE: jwt.audience if jwt else "",
            ALLOWED_ORIGINS: ",".join(settings.allowed_origins),
            OTHER_REGIONS: ",".join(f"https://{api_host(domain)}" for domain in self._deployment.elsewhere),
            TRACE_COLLECTOR: settings.trace_collector or "",
            TRACED_SHARE: str(settings.traced_share),
            RECONNECT_GRACE_S: str(settings.reconnect_grace_s),
            END_OF_TURN_MS: str(settings.end_of_turn_ms),
            SESSION_MAX_S: str(settings.session_max_s),
            CALLER_SESSIONS: str(settings.caller_sessions),
            CALLER_CREATIONS_PER_S: str(settings.caller_creations_per_s),
            MAX_CONNECTIONS: str(gateway_sockets(settings.gateway)),
            MEDIA_HOST: self._props.media_host,
            IDLE_TIMEOUT_S: str(settings.idle_timeout_s),
            DRAIN_TIMEOUT_S: str(GATEWAY_DRAIN_TIMEOUT_S),
        }

    def _build_task(self) -> ecs.FargateTaskDefinition:
        size = self._props.context.settings.gateway
        task = ecs.FargateTaskDefinition(
            self,
            "Task",
            cpu=int(size.vcpu * 1024),
            memory_limit_mib=size.memory_gib * 1024,
            runtime_platform=ecs.RuntimePlatform(
                cpu_architecture=ecs.CpuArchitecture.ARM64, operating_system_family=ecs.OperatingSystemFamily.LINUX
            ),
        )
        environment = self._environment()
        secrets = {
            VALKEY_HOST: self._state_host(),
            VALKEY_PASSWORD: self._state_password(task),
            TOKEN_KEY: ecs.Secret.from_secrets_manager(self.token_key),
        }
        acknowledge(task, "AwsSolutions-ECS2", "Secrets are injected by reference; the rest are names and numbers")
        acknowledge(
            task,
            "AwsSolutions-IAM5[Resource::*]",
            "ecr:GetAuthorizationToken knows no resources; what may be pulled is one repository",
        )
        linux = ecs.LinuxParameters(self, "Linux", init_process_enabled=True)
        linux.drop_capabilities(ecs.Capability.ALL)
        container = task.add_container(
            CONTAINER,
            container_name=CONTAINER,
            image=ecs.ContainerImage.from_ecr_repository(
                self._props.repositories[Image.GATEWAY], digest(self._deployment, Image.GATEWAY)
            ),
            environment={variable.name: value for variable, value in environment.items()},
            secrets={variable.name: secret for variable, secret in secrets.items()},
            port_mappings=[ecs.PortMapping(container_port=port.number) for port in (GATEWAY_HTTP, GATEWAY_MEDIA)],
            user=f"{UNPRIVILEGED_USER}:{UNPRIVILEGED_USER}",
            readonly_root_filesystem=True,
            linux_parameters=linux,
            health_check=ecs.HealthCheck(
                command=["CMD", HEALTH_COMMAND],
                interval=Duration.seconds(10),
                start_period=Duration.seconds(START_S),
            ),
            stop_timeout=Duration.seconds(FARGATE_STOP_TIMEOUT_S),
            logging=ecs.LogDriver.aws_logs(stream_prefix=CONTAINER, log_group=self.log_group),
        )
        # Files that callers send; of the 20 GiB that every task has.
        task.add_volume(name=UPLOADS)
        container.add_mount_points(ecs.MountPoint(source_volume=UPLOADS, container_path="/tmp", read_only=False))  # noqa: S108
        return task

    def _state_host(self) -> ecs.Secret:
        """Refer to the store's endpoint by the parameter's name: a restore changes its value, and exports nothing."""
        parameter = ssm.StringParameter.from_string_parameter_attributes(
            self, "StateHost", parameter_name=self._props.store.host_parameter
        )
        return ecs.Secret.from_ssm_parameter(parameter)

    def _state_password(self, task: ecs.FargateTaskDefinition) -> ecs.Secret:
        """Refer to the password by address: CDK's own grant would name the task's role in the other stack's key."""
        store = self._props.store
        secret = secretsmanager.Secret.from_secret_complete_arn(
            self, "StatePassword", store.secrets[Tier.GATEWAY].secret_arn
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

    def _build_service(self, task: ecs.FargateTaskDefinition) -> ecs.FargateService:
        network = self._props.context.network
        service = ecs.FargateService(
            self,
            "Service",
            cluster=self.cluster,
            task_definition=task,
            # Otherwise the number is the scaling's: a deployment must not reset it.
            desired_count=0 if self._held_back else None,
            circuit_breaker=ecs.DeploymentCircuitBreaker(enable=True, rollback=True),
            min_healthy_percent=100,
            max_healthy_percent=200,
            health_check_grace_period=Duration.seconds(START_S),
            assign_public_ip=False,
            vpc_subnets=network.private_subnets(),
            security_groups=[network.security_groups[Tier.GATEWAY]],
            propagate_tags=ecs.PropagatedTagSource.SERVICE,
        )
        for targets, port in (
            (self._props.media_targets, GATEWAY_MEDIA),
            (self._props.api_targets, GATEWAY_HTTP),
        ):
            targets.add_target(service.load_balancer_target(container_name=CONTAINER, container_port=port.number))
        return service

    def _build_scaling(self) -> None:
        settings = self._props.context.settings.gateway
        tasks = self.service.auto_scale_task_count(
            min_capacity=0 if self._held_back else settings.tasks.min, max_capacity=settings.tasks.max
        )
        # Every task publishes its own number, so the average is that of a task.
        tasks.scale_to_track_custom_metric(
            "OpenSockets",
            metric=cloudwatch.Metric(
                namespace=NAMESPACE,
                metric_name="OpenSockets",
                dimensions_map={DEPLOYMENT_DIMENSION: self._deployment.name, FLEET_DIMENSION: names.GATEWAY_FLEET},
                statistic="Average",
                period=Duration.minutes(1),
            ),
            target_value=round(FILL * gateway_sockets(settings)),
            scale_out_cooldown=Duration.seconds(SCALE_OUT_COOLDOWN_S),
        )
