"""The eyes: alarms with runbooks, dashboards, budget."""

from aws_cdk import App

from blueprint.aws import names
from blueprint.aws.alerts import BUDGET, alerts
from blueprint.aws.dashboards import dashboards
from blueprint.aws.series import Resource
from blueprint.file.model.deployment import Deployment
from stacks.aws.agents import AgentsStack
from stacks.aws.asr import AsrStack
from stacks.aws.edge import EdgeStack
from stacks.aws.network import NetworkStack
from stacks.aws.stack import VoiceStack
from stacks.aws.vad import VadStack
from voice_constructs.aws.alert_alarms import AlertAlarms, AlertAlarmsProps
from voice_constructs.aws.alert_topic import AlertTopic, AlertTopicProps
from voice_constructs.aws.budget import CostBudget, CostBudgetProps
from voice_constructs.aws.dashboards import Dashboards, DashboardsProps
from voice_constructs.aws.log_metrics import LogMetrics, LogMetricsProps


class ObservabilityStack(VoiceStack):
    """Tells operators what callers feel, what it will cost, and where to read on."""

    tier = "observability"
    about = "alarms, dashboards, budget"

    def __init__(
        self,
        app: App,
        deployment: Deployment,
        *,
        network: NetworkStack,
        vad: VadStack,
        asr: AsrStack,
        edge: EdgeStack,
        agents: AgentsStack | None,
    ) -> None:
        super().__init__(app, deployment)
        resources = _resources(vad, edge) | (_of_agents(agents) if agents else {})
        self.topic = AlertTopic(
            self,
            "Topic",
            props=AlertTopicProps(
                name=names.alert_topic(deployment),
                observability=deployment.aws.observability,
                key_policy=self.retention.keys,
            ),
        )
        LogMetrics(
            self,
            "LogMetrics",
            props=LogMetricsProps(
                deployment=deployment,
                log_groups={
                    "vad": vad.context.log_group,
                    "asr": asr.context.log_group,
                    "gateway": edge.gateway.log_group,
                    "flow-logs": network.network.flow_log_group,
                },
            ),
        )
        AlertAlarms(
            self,
            "Alarms",
            props=AlertAlarmsProps(
                deployment=deployment, alerts=alerts(deployment), resources=resources, topic_arn=self.topic.arn
            ),
        )
        Dashboards(
            self,
            "Dashboards",
            props=DashboardsProps(deployment=deployment, dashboards=dashboards(deployment), resources=resources),
        )
        # It counts the whole account: another region's would tell the same once more.
        if deployment.is_first_region:
            CostBudget(
                self,
                "Budget",
                props=CostBudgetProps(
                    name=names.budget(deployment),
                    limit_usd=deployment.aws.observability.monthly_budget_usd,
                    topic_arn=self.topic.arn,
                    runbook_url=names.runbook_url(deployment, BUDGET),
                ),
            )


def _resources(vad: VadStack, edge: EdgeStack) -> dict[Resource, str]:
    """Return the dimension values that AWS makes up when it creates what they name."""
    public, link = edge.load_balancer, edge.api.link
    return {
        Resource.PUBLIC_LOAD_BALANCER: public.load_balancer.load_balancer_full_name,
        Resource.API_LOAD_BALANCER: link.load_balancer.load_balancer_full_name,
        Resource.VAD_TARGETS: vad.fleet.target_group.target_group_full_name,
        Resource.GATEWAY_PUBLIC_TARGETS: public.targets.target_group_full_name,
        Resource.GATEWAY_API_TARGETS: link.gateway_targets.target_group_full_name,
        Resource.API: edge.api.rest_api.rest_api_name,
        Resource.API_STAGE: edge.api.stage.stage_name,
        Resource.GATEWAY_CLUSTER: edge.gateway.cluster.cluster_name,
        Resource.GATEWAY_SERVICE: edge.gateway.service.service_name,
    }


def _of_agents(stack: AgentsStack) -> dict[Resource, str]:
    balancer = stack.load_balancer
    return {
        Resource.AGENT_LOAD_BALANCER: balancer.load_balancer.load_balancer_full_name,
        Resource.AGENT_TARGETS: balancer.targets.target_group_full_name,
        Resource.AGENT_CLUSTER: stack.agents.cluster.cluster_name,
        Resource.AGENT_SERVICE: stack.agents.service.service_name,
    }
