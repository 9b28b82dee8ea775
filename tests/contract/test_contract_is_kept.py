"""Provisioned resources match the contract.

This covers the provisioning side of the contract: alarms, dashboards, scaling policies, security groups, user data and
task definitions in synthesized templates. The other side is the programs: test_published_metrics.py compares what they
publish, and test_programs.py their environment.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract import environment_rules, metric_rules, network_rules, runbook_rules, secret_rules
from tests.contract.sources import DECLARED_METRICS, RUNBOOKS, SANDBOX, deployment, templates_by_tier
from tests.contract.templates import Templates, resources_by_type, text
from tests.synthesized import edited_sandbox, shipped
from voice_blueprint import Deployment
from voice_blueprint.aws.metrics import LOG_METRICS, SERVICE_METRICS
from voice_blueprint.aws.names import AGENT_FLEET, GATEWAY_FLEET, VAD_FLEET
from voice_blueprint.contract.network import FLOWS
from voice_blueprint.environment import VARIABLES_BY_IMAGE
from voice_blueprint.hosts import AWS_IMAGES
from voice_blueprint.observability.aws.alerts import build_alerts
from voice_blueprint.observability.aws.dashboards import build_dashboards

DEPLOYMENTS = ("sandbox", "production-us-east-1", "both", "small")

Check = Callable[[Templates, Deployment], list[str]]


def metrics(templates: Templates, of: Deployment) -> list[str]:
    fleets = [VAD_FLEET, GATEWAY_FLEET, AGENT_FLEET, *(fleet.name for fleet in of.aws.asr)]
    return metric_rules.violations(templates, DECLARED_METRICS, deployment=of.name, fleets=fleets)


def network(templates: Templates, _: Deployment) -> list[str]:
    return network_rules.violations(templates, FLOWS)


def environment(templates: Templates, _: Deployment) -> list[str]:
    return environment_rules.violations(templates, VARIABLES_BY_IMAGE)


def secrets(templates: Templates, _: Deployment) -> list[str]:
    return secret_rules.violations(templates)


@pytest.mark.parametrize("check", [metrics, network, environment, secrets])
@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_shipped_deployment_satisfies_the_contract(name: str, check: Check) -> None:
    assert check(templates_by_tier(shipped(name)), deployment(name)) == []


def runbook_problems(name: str) -> list[str]:
    of = deployment(name)
    noticed = [alert.format_alarm_name(of) for alert in build_alerts(of) if alert.affects_callers]
    url = of.aws.observability.runbook_url
    return runbook_rules.violations(templates_by_tier(shipped(name)), RUNBOOKS, url, noticed)


def test_every_alarm_has_a_runbook_and_every_runbook_an_alarm() -> None:
    assert runbook_problems("sandbox") == []


def test_without_images_only_the_alarms_of_images_are_missing() -> None:
    # The production file has no image digests: its fleets have 0 hosts, which publish nothing; this is not a fault.
    assert runbook_problems("production-us-east-1") == [
        f"docs/runbooks/{id_}.md belongs to no alarm"
        for id_ in ("certificate-expires", "front-door-closed", "synthetic-call-fails", "telemetry-silent")
    ]


def test_every_service_and_log_metric_is_used() -> None:
    of = deployment("sandbox")
    read = {(use.namespace, use.name) for use in metric_rules.uses(SANDBOX)}
    assert {key for key in SERVICE_METRICS if key not in read} == set()
    assert {name for name in LOG_METRICS if (f"VoiceServe/Logs/{of.name}", name) not in read} == set()


@pytest.mark.parametrize("folded", ["neuron-exhausted", "asr-slots-exhausted"])
def test_alarm_over_several_fleets_returns_one_series(folded: str) -> None:
    (alarm,) = (
        each.properties
        for each in resources_by_type(SANDBOX, "CloudWatch::Alarm")
        if each.properties["AlarmName"] == f"sandbox-alert-{folded}"
    )
    assert [query["Expression"] for query in alarm["Metrics"] if query["ReturnData"]] == [
        f"MAX([{','.join(query['Id'] for query in alarm['Metrics'] if not query['ReturnData'])}])"
    ]


def test_every_alert_notifies_operators_when_it_fires_and_resolves() -> None:
    (topic,) = resources_by_type(SANDBOX, "SNS::Topic")
    told = [
        each.properties
        for kind in ("CloudWatch::Alarm", "CloudWatch::CompositeAlarm")
        for each in resources_by_type(SANDBOX, kind)
        if each.tier == "observability"
    ]
    assert len(told) > len(RUNBOOKS) / 2
    windows = {name for alarm in told for name in re.findall(r'"([^"]+)"', alarm.get("AlarmRule", "")) if " AND " in
               alarm["AlarmRule"]}  # fmt: skip
    assert not any(alarm.get("AlarmActions") for alarm in told if alarm["AlarmName"] in windows)
    told = [alarm for alarm in told if alarm["AlarmName"] not in windows]
    assert all(alarm["AlarmActions"] == alarm["OKActions"] == [{"Ref": topic.logical_id}] for alarm in told)
    for budget in resources_by_type(SANDBOX, "Budgets::Budget"):
        for notification in budget.properties["NotificationsWithSubscribers"]:
            assert [who["Address"] for who in notification["Subscribers"]] == [{"Ref": topic.logical_id}]


def test_topic_is_encrypted_and_only_accepts_messages_of_this_account_over_tls() -> None:
    (topic,) = resources_by_type(SANDBOX, "SNS::Topic")
    (policy,) = resources_by_type(SANDBOX, "SNS::TopicPolicy")
    assert topic.properties["KmsMasterKeyId"]
    deny, allow = policy.properties["PolicyDocument"]["Statement"]
    assert (deny["Effect"], deny["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    assert set(allow["Principal"]["Service"]) == {"cloudwatch.amazonaws.com", "budgets.amazonaws.com"}
    assert allow["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


def test_the_chat_webhook_is_read_from_its_secret_at_deploy_time(tmp_path: Path) -> None:
    with_chat = templates_by_tier(edited_sandbox({"aws.observability.chat_webhook_secret": "voice/chat"}, tmp_path))
    endpoints = {
        each.properties["Protocol"]: text(each.properties["Endpoint"])
        for each in resources_by_type(with_chat, "SNS::Subscription")
    }
    assert endpoints["https"] == "{{resolve:secretsmanager:voice/chat:SecretString:::}}"
    assert secret_rules.violations(with_chat) == []


def test_every_image_is_launched_by_a_shipped_file() -> None:
    each = (templates_by_tier(shipped(name)) for name in DEPLOYMENTS)
    launched = {launch.image for templates in each for launch in environment_rules.launches(templates)}
    assert launched == {image.value for image in AWS_IMAGES}


def test_runbooks_name_dashboards_and_graphs_that_exist() -> None:
    graphs = {panel.title for dashboard in build_dashboards(deployment("sandbox")) for panel in dashboard.panels}
    topics = {dashboard.topic for dashboard in build_dashboards(deployment("sandbox"))}
    for id_, runbook in RUNBOOKS.items():
        assert set(re.findall(r"[Dd]ashboard `\$D-(\w+)`", runbook)) <= topics, id_
        for line in runbook.splitlines():
            if line.startswith("Dashboard `"):
                for named in re.findall(r'"([A-Z][^"]+)"', line):
                    assert any(title.startswith(named) for title in graphs), (id_, named)
