"""What the constructs of the edge have in common."""

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from aws_cdk import aws_logs as logs
from constructs import Construct

from blueprint.aws.edge import FARGATE_STOP_TIMEOUT_S
from blueprint.contract.network import Port
from blueprint.contract.session_api import HEALTH_PATH
from blueprint.file.model.deployment import Deployment
from blueprint.file.model.edge import Edge
from voice_constructs.aws.encryption import EncryptionKey
from voice_constructs.aws.logs import log_group
from voice_constructs.aws.network import VoiceNetwork
from voice_constructs.aws.retention import Retention


@dataclass(frozen=True)
class EdgeContext:
    """What every construct of the edge is deployed into.

    Attributes:
        key: Key of the edge's logs and of the key that signs session tokens.
    """

    deployment: Deployment
    network: VoiceNetwork
    retention: Retention
    key: EncryptionKey

    @property
    def settings(self) -> Edge:
        """The edge's section of the deployment file."""
        return self.deployment.aws.edge

    def log_group(self, scope: Construct, id_: str, name: str) -> logs.LogGroup:
        """Make an encrypted log group."""
        return log_group(
            scope,
            id_,
            key=self.key,
            retention_days=self.deployment.aws.observability.log_retention_days,
            removal_policy=self.retention.logs,
            name=name,
        )

    def task_targets(self, scope: Construct, id_: str, port: Port) -> elbv2.NetworkTargetGroup:
        """Make a target group of a service's tasks; it can serve one load balancer only."""
        return elbv2.NetworkTargetGroup(
            scope,
            id_,
            vpc=self.network.vpc,
            port=port.number,
            protocol=elbv2.Protocol.TCP,
            target_type=elbv2.TargetType.IP,
            health_check=elbv2.HealthCheck(
                protocol=elbv2.Protocol.HTTP, path=HEALTH_PATH, interval=Duration.seconds(10)
            ),
            # Open connections go on while the task drains; only new ones are sent elsewhere.
            deregistration_delay=Duration.seconds(FARGATE_STOP_TIMEOUT_S),
        )


def edge_context(
    scope: Construct, *, deployment: Deployment, network: VoiceNetwork, retention: Retention
) -> EdgeContext:
    """Make the edge's key, and gather what its constructs need."""
    key = EncryptionKey(scope, "Key", purpose="logs and signing key of the edge", removal_policy=retention.keys)
    key.allow_logs(deployment.aws.region)
    key.allow_log_delivery(deployment.aws.region)
    return EdgeContext(deployment, network, retention, key)
