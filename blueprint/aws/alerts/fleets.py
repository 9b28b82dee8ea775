"""Alerts that every fleet can raise: silent, as large as it may be, unable to launch, sending what is refused."""

from collections.abc import Iterator

from blueprint.aws import names
from blueprint.aws.alerts.base import MINUTE_S, Alert, above, below
from blueprint.aws.series import of_fleet, of_group, of_log
from blueprint.contract.network import Tier
from blueprint.file.model.deployment import Deployment
from blueprint.file.model.scaling import MissingData
from blueprint.hosts import AGENT_IMAGES, GATEWAY_IMAGES, VAD_IMAGES, asr_images, held_back


def of_fleets(deployment: Deployment) -> Iterator[Alert]:
    """Yield the alerts that do not depend on what a fleet does."""
    for fleet, tier, metric in _reporting_fleets(deployment):
        yield Alert(
            "telemetry-silent",
            tier,
            f"Nothing has reported {metric} of fleet {fleet} for three minutes: scaling and alerts are blind to it.",
            (of_fleet(deployment, fleet, metric, "SampleCount"),),
            below(1, 3, 3, MissingData.BREACHING),
            MINUTE_S,
            target=fleet,
        )
    for fleet, tier, group, most in _groups(deployment):
        yield Alert(
            "fleet-at-maximum",
            tier,
            f"Group {group} has had its maximum of {most} hosts for ten minutes: it cannot grow when load does.",
            (of_group(group, "GroupInServiceInstances", "Minimum"),),
            above(most - 1, 10, 10),
            MINUTE_S,
            target=group.removeprefix(f"{deployment.name}-") if fleet == names.VAD_FLEET else fleet,
        )
    # One launch may fail and is tried again; two in a quarter of an hour fail for the same reason.
    for tier, metric in ((Tier.VAD, "VadHostsAbandoned"), (Tier.ASR, "AsrHostsAbandoned")):
        yield Alert(
            "hosts-abandoned",
            tier,
            f"New {tier} hosts give up before they serve: the tier cannot grow or replace hosts.",
            (of_log(deployment, metric, tier),),
            above(1, 1, 1),
            15 * MINUTE_S,
            target=tier,
        )
    # A flow that security groups stopped tracking leaves a few packets; a steady stream is a wrong rule or an intruder.
    yield Alert(
        "internal-traffic-rejected",
        Tier.AWS,
        "One of our own addresses keeps sending what the network's rules refuse.",
        (of_log(deployment, "InternalPacketsRejected", "rejected"),),
        above(100, 3, 3),
        5 * MINUTE_S,
    )


def _reporting_fleets(deployment: Deployment) -> Iterator[tuple[str, Tier, str]]:
    """Yield each fleet that always has a host, with a metric that every one of its hosts publishes."""
    vad = deployment.aws.vad
    if vad.hosts_per_zone.min and not held_back(deployment, VAD_IMAGES):
        yield names.VAD_FLEET, Tier.VAD, "VadSessions"
    for fleet in deployment.aws.asr:
        if fleet.hosts.min and not held_back(deployment, asr_images(fleet)):
            yield fleet.name, Tier.ASR, "FreeSlots"
    if not held_back(deployment, GATEWAY_IMAGES):
        yield names.GATEWAY_FLEET, Tier.GATEWAY, "OpenSockets"
    if deployment.aws.agents and not held_back(deployment, AGENT_IMAGES):
        yield names.AGENT_FLEET, Tier.AGENT, "Conversations"


def _groups(deployment: Deployment) -> Iterator[tuple[str, Tier, str, int]]:
    for group in names.vad_groups(deployment):
        yield names.VAD_FLEET, Tier.VAD, group, deployment.aws.vad.hosts_per_zone.max
    for fleet in deployment.aws.asr:
        yield fleet.name, Tier.ASR, names.group(deployment, fleet.name), fleet.hosts.max
