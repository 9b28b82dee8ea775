"""Compares the API, listeners, gateway, alarms and dashboards in the local AWS with the deployment file."""

from __future__ import annotations

import json
from collections.abc import Iterator

import boto3

from voice_blueprint.aws import names
from voice_blueprint.aws.edge import build_api_hostname, build_media_hostname
from voice_blueprint.aws.metrics import LOG_METRICS, SERVICE_METRICS
from voice_blueprint.contract.metrics import METRICS
from voice_blueprint.contract.network import AGENT_HTTP, GATEWAY_HTTP, GATEWAY_MEDIA, RTP
from voice_blueprint.contract.session_api import EVENTS_PATH, HEALTH_PATH, SESSION_PATH, SESSIONS_PATH, TRANSCRIPT_PATH
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.observability.aws.alerts import build_alerts
from voice_blueprint.observability.aws.dashboards import build_dashboards
from voice_sandbox.rehearsals.claim import VerificationResult

EXPECTED_ROUTES = {(SESSIONS_PATH, "POST"), (EVENTS_PATH, "GET"), (SESSION_PATH, "DELETE")}


class EdgeVerifier:
    """Verifies the resources for callers and operators in the local AWS."""

    def __init__(self, deployment: Deployment, session: boto3.Session, endpoint: str) -> None:
        self._deployment = deployment
        self._api = session.client("apigateway", endpoint_url=endpoint)
        self._cloudwatch = session.client("cloudwatch", endpoint_url=endpoint)
        self._elbv2 = session.client("elbv2", endpoint_url=endpoint)
        self._route53 = session.client("route53", endpoint_url=endpoint)

    def verify(self) -> Iterator[VerificationResult]:
        """Yield the results of all checks for the edge and for observability."""
        yield from self._verify_routes()
        yield from self._verify_listeners()
        yield from self._verify_records()
        yield from self._verify_alarms()
        yield from self._verify_dashboard()

    def _verify_routes(self) -> Iterator[VerificationResult]:
        (api,) = self._api.get_rest_apis()["items"]
        resources = self._api.get_resources(restApiId=api["id"], embed=["methods"], limit=100)["items"]
        methods = {
            (resource["path"], verb): self._api.get_method(
                restApiId=api["id"], resourceId=resource["id"], httpMethod=verb
            )
            for resource in resources
            for verb in resource.get("resourceMethods", {})
        }
        edge = self._deployment.aws.edge
        archive = {(TRANSCRIPT_PATH, "GET"), (TRANSCRIPT_PATH, "DELETE")} if edge.archive else set()
        routes = EXPECTED_ROUTES | archive
        preflights = {(path, "OPTIONS") for path, _ in routes} if edge.allowed_origins else set()
        expected = routes | preflights
        yield VerificationResult(
            f"API: routes {sorted(f'{verb} {path}' for path, verb in expected)}", set(methods) == expected
        )
        for (path, verb), method in methods.items():
            yield VerificationResult(
                f"{verb} {path}: through a VPC link", method["methodIntegration"]["connectionType"] == "VPC_LINK"
            )
        if self._deployment.aws.edge.authorizer.kind == "iam":
            signed = {route for route, method in methods.items() if method["authorizationType"] == "AWS_IAM"}
            yield VerificationResult(
                "API: a new session requires a signature, all other methods its token",
                signed == {(SESSIONS_PATH, "POST"), *archive},
            )

    def _verify_listeners(self) -> Iterator[VerificationResult]:
        expected = {("TLS", 443, "TCP", GATEWAY_MEDIA.number), ("UDP", 5004, "UDP", RTP.number)}
        claim = "public load balancers: TLS 443 to the gateway, UDP 5004 to the VAD fleet"
        if self._deployment.aws.agents:
            expected |= {("TLS", 443, "TCP", AGENT_HTTP.number)}
            claim += ", TLS 443 to the agents"
        yield VerificationResult(claim, self._list_forwarding_rules("internet-facing") == expected)
        internal = {(protocol, port) for _, _, protocol, port in self._list_forwarding_rules("internal")}
        yield VerificationResult(
            "internal load balancer: TCP to the gateway", internal == {("TCP", GATEWAY_HTTP.number)}
        )

    def _list_forwarding_rules(self, scheme: str) -> set[tuple[str, int, str, int]]:
        """Return the protocol and port of each listener with a load balancer scheme, and those for its target group."""
        groups = {
            group["TargetGroupArn"]: (group["Protocol"], group["Port"])
            for group in self._elbv2.describe_target_groups()["TargetGroups"]
        }
        return {
            (listener["Protocol"], listener["Port"], *groups[listener["DefaultActions"][0]["TargetGroupArn"]])
            for balancer in self._elbv2.describe_load_balancers()["LoadBalancers"]
            if balancer["Scheme"] == scheme
            for listener in self._elbv2.describe_listeners(LoadBalancerArn=balancer["LoadBalancerArn"])["Listeners"]
        }

    def _verify_records(self) -> Iterator[VerificationResult]:
        """Yield the results of the checks for DNS records that route callers to healthy regions."""
        aws, shared_name = self._deployment.aws, self._deployment.shared_domain
        if shared_name is None or aws.edge.domain is None:
            return
        host, checked_endpoint = build_api_hostname(shared_name), (build_media_hostname(aws.edge.domain), HEALTH_PATH)
        records = self._route53.list_resource_record_sets(HostedZoneId=shared_name.zone_id)["ResourceRecordSets"]
        checks = [
            self._route53.get_health_check(HealthCheckId=record["HealthCheckId"])["HealthCheck"]["HealthCheckConfig"]
            for record in records
            if (record["Name"].rstrip("."), record.get("Region")) == (host, aws.region)
        ]
        actual = [(check["FullyQualifiedDomainName"], check["ResourcePath"]) for check in checks]
        yield VerificationResult(
            f"{host} routes to {aws.region} while {''.join(checked_endpoint)} is healthy", actual == [checked_endpoint]
        )

    def _verify_alarms(self) -> Iterator[VerificationResult]:
        actual = {
            alarm["AlarmName"]: alarm
            for page in self._cloudwatch.get_paginator("describe_alarms").paginate(
                AlarmTypes=["MetricAlarm", "CompositeAlarm"]
            )
            for alarm in (*page["MetricAlarms"], *page["CompositeAlarms"])
        }
        for alert in build_alerts(self._deployment):
            name = alert.format_alarm_name(self._deployment)
            alarm = actual.get(name)
            # Tests compare the alarm's numbers in the templates with docs/runbooks/README.md.
            yield VerificationResult(
                f"{name}: with a runbook and an action",
                alarm is not None
                and names.build_runbook_url(self._deployment, alert.id) in alarm["AlarmDescription"]
                and bool(alarm["AlarmActions"]),
            )

    def _verify_dashboard(self) -> Iterator[VerificationResult]:
        metric_names = set(METRICS) | {metric.name for metric in SERVICE_METRICS.values()} | set(LOG_METRICS)
        for dashboard in build_dashboards(self._deployment):
            name = names.build_dashboard_name(self._deployment, dashboard.topic)
            body = json.loads(self._cloudwatch.get_dashboard(DashboardName=name)["DashboardBody"])
            widget_metrics = {
                row[1]
                for widget in body["widgets"]
                for row in widget["properties"].get("metrics", [])
                if isinstance(row[0], str)
            }
            yield VerificationResult(
                f"dashboard {name}: {len(widget_metrics)} metrics, all in the contract",
                bool(widget_metrics) and widget_metrics <= metric_names,
            )
