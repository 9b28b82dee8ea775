"""Alerts for every fleet: missing telemetry, maximum size, failed launches, rejected packets."""

from collections.abc import Iterator
from dataclasses import replace

from voice_blueprint.aws import names
from voice_blueprint.aws.metrics import NAT_GATEWAY_NAMESPACE
from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.scaling import MissingData
from voice_blueprint.hosts import AGENT_IMAGES, GATEWAY_IMAGES, VAD_IMAGES, lacks_digests, list_asr_images
from voice_blueprint.observability.alerting import ALERT_CONDITION_BY_ID
from voice_blueprint.observability.aws.alerts.base import (
    MINUTE_S,
    Alert,
    build_above_threshold_rule,
    build_below_threshold_rule,
    build_shared_alert,
)
from voice_blueprint.observability.aws.series import (
    NAT_GATEWAYS,
    build_fleet_series,
    build_group_series,
    build_log_series,
    build_service_series,
)


def build_fleet_alerts(deployment: Deployment) -> Iterator[Alert]:
    """Yield the alerts that are independent of a fleet's purpose."""
    for fleet, tier, metric in _iter_reporting_fleets(deployment):
        yield Alert(
            "telemetry-silent",
            tier,
            f"Nothing has reported {metric} of fleet {fleet} for three minutes: scaling and alerts are blind to it.",
            (build_fleet_series(deployment, fleet, metric, "SampleCount"),),
            build_below_threshold_rule(1, 3, 3, MissingData.BREACHING),
            MINUTE_S,
            target=fleet,
        )
    yield from _build_public_endpoint_alerts(deployment)
    # A group with equal bounds is always at its maximum.
    for fleet, tier, group, max_hosts in _iter_scalable_groups(deployment):
        yield Alert(
            "fleet-at-maximum",
            tier,
            f"Group {group} has had its maximum of {max_hosts} hosts for ten minutes: it cannot grow when load does.",
            (build_group_series(group, "GroupInServiceInstances", "Minimum"),),
            build_above_threshold_rule(max_hosts - 1, 10, 10),
            MINUTE_S,
            target=group.removeprefix(f"{deployment.name}-") if fleet == names.VAD_FLEET else fleet,
        )
    # A single failed launch is retried; two within 15 minutes probably have the same cause.
    for tier, metric in ((Tier.VAD, "VadHostsAbandoned"), (Tier.ASR, "AsrHostsAbandoned")):
        yield Alert(
            "hosts-abandoned",
            tier,
            f"New {tier} hosts give up before they serve: the tier cannot grow or replace hosts.",
            (build_log_series(deployment, metric, tier),),
            build_above_threshold_rule(1, 1, 1),
            15 * MINUTE_S,
            target=tier,
        )
    # A few packets are left over from flows that security groups no longer track. A steady stream indicates a wrong
    # rule or an intruder.
    yield Alert(
        "internal-traffic-rejected",
        Tier.AWS,
        "One of our own addresses keeps sending what the network's rules refuse.",
        (build_log_series(deployment, "InternalPacketsRejected", "rejected"),),
        build_above_threshold_rule(100, 3, 3),
        5 * MINUTE_S,
    )


def _build_public_endpoint_alerts(deployment: Deployment) -> Iterator[Alert]:
    """Yield the alerts on the requests from gateways to the public host name. Without gateways, there are none."""
    if lacks_digests(deployment, GATEWAY_IMAGES):
        return
    fleet = names.GATEWAY_FLEET
    probe_metrics = {"front-door-closed": "FrontDoorAnswers"}
    # Without hosts of both tiers no call is transcribed.
    reporting_tiers = {tier for _, tier, _ in _iter_reporting_fleets(deployment)}
    if {Tier.VAD, Tier.ASR} <= reporting_tiers:
        probe_metrics["synthetic-call-fails"] = "SyntheticCallSucceeds"
    for id_, metric in probe_metrics.items():
        condition = ALERT_CONDITION_BY_ID[id_]
        yield Alert(
            id_,
            Tier.GATEWAY,
            condition.meaning,
            (build_fleet_series(deployment, fleet, metric, "Average"),),
            build_below_threshold_rule(condition.threshold, 3, 3, MissingData.BREACHING),
            MINUTE_S,
            affects_callers=condition.affects_callers,
        )
    yield build_shared_alert(
        "certificate-expires",
        Tier.GATEWAY,
        (build_fleet_series(deployment, fleet, "CertificateDays", "Minimum"),),
        1,
        1,
        period_s=60 * MINUTE_S,
    )


def build_network_alerts(deployment: Deployment) -> Iterator[Alert]:
    """Yield the alerts for the network stack. Other stacks cannot refer to a NAT gateway that may be removed."""
    for number, gateway in enumerate(NAT_GATEWAYS[: deployment.aws.network.nat_gateways], start=1):
        failures = (build_service_series(NAT_GATEWAY_NAMESPACE, "ErrorPortAllocation", "Sum", (gateway,)),)
        yield replace(build_shared_alert("nat-ports-exhausted", Tier.AWS, failures, 2, 3), target=str(number))


def _iter_reporting_fleets(deployment: Deployment) -> Iterator[tuple[str, Tier, str]]:
    """Yield each fleet that always has at least one host, with a metric that all of its hosts publish."""
    vad = deployment.aws.vad
    if vad.hosts_per_zone.min and not lacks_digests(deployment, VAD_IMAGES):
        yield names.VAD_FLEET, Tier.VAD, "VadSessions"
    for fleet in deployment.aws.asr:
        if fleet.hosts.min and not lacks_digests(deployment, list_asr_images(fleet)):
            yield fleet.name, Tier.ASR, "FreeSlots"
    if not lacks_digests(deployment, GATEWAY_IMAGES):
        yield names.GATEWAY_FLEET, Tier.GATEWAY, "OpenSockets"
    if deployment.aws.agents and not lacks_digests(deployment, AGENT_IMAGES):
        yield names.AGENT_FLEET, Tier.AGENT, "Conversations"


def _iter_scalable_groups(deployment: Deployment) -> Iterator[tuple[str, Tier, str, int]]:
    per_zone = deployment.aws.vad.hosts_per_zone
    for group in names.list_vad_group_names(deployment) if per_zone.min < per_zone.max else ():
        yield names.VAD_FLEET, Tier.VAD, group, per_zone.max
    for fleet in (each for each in deployment.aws.asr if each.hosts.min < each.hosts.max):
        yield fleet.name, Tier.ASR, names.build_group_name(deployment, fleet.name), fleet.hosts.max
