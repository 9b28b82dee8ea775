"""Properties and helpers that the edge constructs share."""

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from aws_cdk import aws_logs as logs
from constructs import Construct

from voice_blueprint.aws.edge import FARGATE_STOP_TIMEOUT_S
from voice_blueprint.contract.network import Port
from voice_blueprint.contract.session_api import LIVENESS_PATH
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.edge import Edge
from voice_constructs.aws.encryption import EncryptionKey
from voice_constructs.aws.logs import create_log_group
from voice_constructs.aws.network import VoiceNetwork
from voice_constructs.aws.retention import Retention


@dataclass(frozen=True)
class EdgeContext:
    """Context that all edge constructs share.

    Attributes:
        key: Encryption key of the edge's logs and of the secret that signs session tokens.
    """

    deployment: Deployment
    network: VoiceNetwork
    retention: Retention
    key: EncryptionKey

    @property
    def settings(self) -> Edge:
        """The edge's section of the deployment file."""
        return self.deployment.aws.edge

    def create_log_group(self, scope: Construct, id_: str, name: str) -> logs.LogGroup:
        """Create an encrypted log group."""
        return create_log_group(
            scope,
            id_,
            key=self.key,
            retention_days=self.deployment.aws.observability.log_retention_days,
            removal_policy=self.retention.logs,
            name=name,
        )

    def create_task_target_group(
        self, scope: Construct, id_: str, port: Port, *, preserve_client_ip: bool = False
    ) -> elbv2.NetworkTargetGroup:
        """Create a target group for a service's tasks. A target group can have only one load balancer.

        Args:
            preserve_client_ip: Whether tasks receive the callers' addresses, which the limits for unauthenticated
                callers require. By default, targets that are registered by IP address see the load balancer's address
                for TCP:
                https://docs.aws.amazon.com/elasticloadbalancing/latest/network/edit-target-group-attributes.html. Rules
                that refer to the load balancer's security group still allow this traffic:
                https://docs.aws.amazon.com/elasticloadbalancing/latest/network/load-balancer-security-groups.html
        """
        return elbv2.NetworkTargetGroup(
            scope,
            id_,
            vpc=self.network.vpc,
            port=port.number,
            protocol=elbv2.Protocol.TCP,
            target_type=elbv2.TargetType.IP,
            preserve_client_ip=preserve_client_ip,
            # All tasks share one state store, whose failover takes up to half a minute. If the tasks became unhealthy
            # during a failover, their connections would be reset, and ECS would replace them.
            health_check=elbv2.HealthCheck(
                protocol=elbv2.Protocol.HTTP, path=LIVENESS_PATH, interval=Duration.seconds(10)
            ),
            # Open connections continue while the task drains; only new ones go to other tasks.
            deregistration_delay=Duration.seconds(FARGATE_STOP_TIMEOUT_S),
        )


def create_edge_context(
    scope: Construct, *, deployment: Deployment, network: VoiceNetwork, retention: Retention
) -> EdgeContext:
    """Create the key for the edge, and return the context for the edge constructs."""
    key = EncryptionKey(scope, "Key", purpose="logs and signing key of the edge", removal_policy=retention.keys)
    key.allow_logs(deployment.aws.region)
    key.allow_log_delivery(deployment.aws.region)
    return EdgeContext(deployment, network, retention, key)
