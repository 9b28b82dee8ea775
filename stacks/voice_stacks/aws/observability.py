"""Alarms with runbooks, dashboards, and the budget."""

from aws_cdk import App

from voice_blueprint.aws import names
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.observability.aws.alerts import BUDGET_RUNBOOK, build_alerts, build_network_alerts
from voice_blueprint.observability.aws.dashboards import build_dashboards
from voice_blueprint.observability.aws.series import Resource
from voice_constructs.aws.alert_alarms import AlertAlarms, AlertAlarmsProps
from voice_constructs.aws.alert_topic import AlertTopic, AlertTopicProps
from voice_constructs.aws.budget import CostBudget, CostBudgetProps
from voice_constructs.aws.dashboards import Dashboards, DashboardsProps
from voice_constructs.aws.log_metrics import LogMetrics, LogMetricsProps
from voice_stacks.aws.agents import AgentsStack
from voice_stacks.aws.asr import AsrStack
from voice_stacks.aws.edge import EdgeStack
from voice_stacks.aws.network import NetworkStack
from voice_stacks.aws.stack import VoiceStack
from voice_stacks.aws.vad import VadStack


class ObservabilityStack(VoiceStack):
    """Alarms with links to runbooks, dashboards, and a budget with a cost forecast."""

    tier = "observability"
    description_text = "alarms, dashboards, budget"

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
        resources = _collect_dimension_values(vad, edge) | (_collect_agent_dimension_values(agents) if agents else {})
        self.topic = AlertTopic(
            self,
            "Topic",
            props=AlertTopicProps(
                name=names.build_alert_topic_name(deployment),
                observability=deployment.aws.observability,
                key_removal_policy=self.retention.keys,
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
        elsewhere = tuple(build_network_alerts(deployment))
        AlertAlarms(
            self,
            "Alarms",
            props=AlertAlarmsProps(
                deployment=deployment,
                alerts=[each for each in build_alerts(deployment) if each not in elsewhere],
                resources=resources,
                topic_arn=self.topic.arn,
            ),
        )
        Dashboards(
            self,
            "Dashboards",
            props=DashboardsProps(deployment=deployment, dashboards=build_dashboards(deployment), resources=resources),
        )
        # The budget covers the whole account, so a second one in another region would be redundant.
        if deployment.is_first_region:
            CostBudget(
                self,
                "Budget",
                props=CostBudgetProps(
                    name=names.build_budget_name(deployment),
                    limit_usd=deployment.aws.observability.monthly_budget_usd,
                    topic_arn=self.topic.arn,
                    runbook_url=names.build_runbook_url(deployment, BUDGET_RUNBOOK),
                ),
            )


def _collect_dimension_values(vad: VadStack, edge: EdgeStack) -> dict[Resource, str]:
    """Return the dimension values that are only known after AWS has created the resources."""
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


def _collect_agent_dimension_values(stack: AgentsStack) -> dict[Resource, str]:
    balancer = stack.load_balancer
    return {
        Resource.AGENT_LOAD_BALANCER: balancer.load_balancer.load_balancer_full_name,
        Resource.AGENT_TARGETS: balancer.targets.target_group_full_name,
        Resource.AGENT_CLUSTER: stack.agents.cluster.cluster_name,
        Resource.AGENT_SERVICE: stack.agents.service.service_name,
    }
