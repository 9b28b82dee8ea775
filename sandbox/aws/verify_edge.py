"""API, listeners, gateway, alarms and dashboards in the local AWS, against what the deployment file says."""

from __future__ import annotations

import json
from collections.abc import Iterator

import boto3

from blueprint.aws import names
from blueprint.aws.alerts import alerts
from blueprint.aws.dashboards import dashboards
from blueprint.aws.edge import api_host, media_host
from blueprint.aws.metrics import LOG_METRICS, SERVICE_METRICS
from blueprint.contract.metrics import METRICS
from blueprint.contract.network import AGENT_HTTP, GATEWAY_HTTP, GATEWAY_MEDIA, RTP
from blueprint.contract.session_api import EVENTS_PATH, HEALTH_PATH, SESSION_PATH, SESSIONS_PATH
from blueprint.file.model.deployment import Deployment
from sandbox.aws.claim import Claim

ROUTES = {(SESSIONS_PATH, "POST"), (EVENTS_PATH, "GET"), (SESSION_PATH, "DELETE")}


class EdgeVerifier:
    """Asks the local AWS about what callers and operators meet."""

    def __init__(self, deployment: Deployment, session: boto3.Session, endpoint: str) -> None:
        self._deployment = deployment
        self._api = session.client("apigateway", endpoint_url=endpoint)
        self._cloudwatch = session.client("cloudwatch", endpoint_url=endpoint)
        self._elbv2 = session.client("elbv2", endpoint_url=endpoint)
        self._route53 = session.client("route53", endpoint_url=endpoint)

    def claims(self) -> Iterator[Claim]:
        """Yield every claim about the edge and about observability."""
        yield from self._routes()
        yield from self._listeners()
        yield from self._records()
        yield from self._alarms()
        yield from self._dashboards()

    def _routes(self) -> Iterator[Claim]:
        (api,) = self._api.get_rest_apis()["items"]
        resources = self._api.get_resources(restApiId=api["id"], embed=["methods"], limit=100)["items"]
        methods = {
            (resource["path"], verb): self._api.get_method(
                restApiId=api["id"], resourceId=resource["id"], httpMethod=verb
            )
            for resource in resources
            for verb in resource.get("resourceMethods", {})
        }
        asked = {(path, "OPTIONS") for path, _ in ROUTES} if self._deployment.aws.edge.allowed_origins else set()
        wanted = ROUTES | asked
        yield Claim(f"API: routes {sorted(f'{verb} {path}' for path, verb in wanted)}", set(methods) == wanted)
        for (path, verb), method in methods.items():
            yield Claim(
                f"{verb} {path}: through a VPC link", method["methodIntegration"]["connectionType"] == "VPC_LINK"
            )
        if self._deployment.aws.edge.authorizer.kind == "iam":
            signed = {route for route, method in methods.items() if method["authorizationType"] == "AWS_IAM"}
            yield Claim("API: who opens a session signs, its token does the rest", signed == {(SESSIONS_PATH, "POST")})

    def _listeners(self) -> Iterator[Claim]:
        wanted = {("TLS", 443, "TCP", GATEWAY_MEDIA.number), ("UDP", 5004, "UDP", RTP.number)}
        claim = "public load balancers: TLS 443 to the gateway, UDP 5004 to the VAD fleet"
        if self._deployment.aws.agents:
            wanted |= {("TLS", 443, "TCP", AGENT_HTTP.number)}
            claim += ", TLS 443 to the agents"
        yield Claim(claim, self._forwards("internet-facing") == wanted)
        internal = {(protocol, port) for _, _, protocol, port in self._forwards("internal")}
        yield Claim("internal load balancer: TCP to the gateway", internal == {("TCP", GATEWAY_HTTP.number)})

    def _forwards(self, scheme: str) -> set[tuple[str, int, str, int]]:
        """Return protocol and port of each listener of a scheme, and of the target group that it forwards to."""
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

    def _records(self) -> Iterator[Claim]:
        """Yield what leads callers of all regions here, and away while nobody answers."""
        aws, of_all = self._deployment.aws, self._deployment.of_all_regions
        if of_all is None or aws.edge.domain is None:
            return
        host, asked = api_host(of_all), (media_host(aws.edge.domain), HEALTH_PATH)
        records = self._route53.list_resource_record_sets(HostedZoneId=of_all.zone_id)["ResourceRecordSets"]
        checks = [
            self._route53.get_health_check(HealthCheckId=record["HealthCheckId"])["HealthCheck"]["HealthCheckConfig"]
            for record in records
            if (record["Name"].rstrip("."), record.get("Region")) == (host, aws.region)
        ]
        found = [(check["FullyQualifiedDomainName"], check["ResourcePath"]) for check in checks]
        yield Claim(f"{host} leads to {aws.region} while {''.join(asked)} answers", found == [asked])

    def _alarms(self) -> Iterator[Claim]:
        found = {
            alarm["AlarmName"]: alarm
            for page in self._cloudwatch.get_paginator("describe_alarms").paginate()
            for alarm in page["MetricAlarms"]
        }
        for alert in alerts(self._deployment):
            name = alert.alarm_name(self._deployment)
            alarm = found.get(name)
            # Its numbers are compared with docs/runbooks/README.md by the tests, from the templates.
            yield Claim(
                f"{name}: with a runbook and a listener",
                alarm is not None
                and names.runbook_url(self._deployment, alert.id) in alarm["AlarmDescription"]
                and bool(alarm["AlarmActions"]),
            )

    def _dashboards(self) -> Iterator[Claim]:
        known = set(METRICS) | {metric.name for metric in SERVICE_METRICS.values()} | set(LOG_METRICS)
        for dashboard in dashboards(self._deployment):
            name = names.dashboard(self._deployment, dashboard.topic)
            body = json.loads(self._cloudwatch.get_dashboard(DashboardName=name)["DashboardBody"])
            drawn = {
                row[1]
                for widget in body["widgets"]
                for row in widget["properties"].get("metrics", [])
                if isinstance(row[0], str)
            }
            yield Claim(f"dashboard {name}: {len(drawn)} metrics, all in the contract", bool(drawn) and drawn <= known)
