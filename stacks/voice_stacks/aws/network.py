"""VPC, endpoints and security groups."""

from aws_cdk import App

from voice_blueprint.aws import names
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.observability.aws.alerts import build_network_alerts
from voice_blueprint.observability.aws.series import NAT_GATEWAYS
from voice_constructs.aws.alert_alarms import AlertAlarms, AlertAlarmsProps
from voice_constructs.aws.network import VoiceNetwork, VoiceNetworkProps
from voice_constructs.aws.pseudo import ACCOUNT_ID, PARTITION
from voice_stacks.aws.stack import VoiceStack


class NetworkStack(VoiceStack):
    """The network for all tiers."""

    tier = "network"
    description_text = "VPC, endpoints, security groups"

    def __init__(self, app: App, deployment: Deployment) -> None:
        super().__init__(app, deployment)
        self.network = VoiceNetwork(
            self,
            "Network",
            props=VoiceNetworkProps(
                network=deployment.aws.network,
                zones=deployment.aws.availability_zones,
                region=deployment.aws.region,
                removal_policy=self.retention.logs,
            ),
        )
        vpc = self.network.vpc
        self.export_values(
            vpc.vpc_id,
            *(subnet.subnet_id for subnet in (*vpc.public_subnets, *vpc.private_subnets, *vpc.isolated_subnets)),
            *(group.security_group_id for group in self.network.security_groups.values()),
            self.network.flow_log_group.log_group_name,
        )
        # The alarms are in this stack, since a NAT gateway cannot be removed while another stack refers to it. The
        # alarms refer to the topic by ARN, since the topic is created last.
        topic = f"arn:{PARTITION}:sns:{deployment.aws.region}:{ACCOUNT_ID}:{names.build_alert_topic_name(deployment)}"
        AlertAlarms(
            self,
            "Alarms",
            props=AlertAlarmsProps(
                deployment=deployment,
                alerts=tuple(build_network_alerts(deployment)),
                resources=dict(zip(NAT_GATEWAYS, self.network.nat_gateways, strict=False)),
                topic_arn=topic,
            ),
        )
