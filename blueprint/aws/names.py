"""Names of deployed things that more than one program has to spell alike."""

import hashlib

from blueprint.file.model.deployment import Deployment
from blueprint.file.model.scaling import ScalingRule

VAD_FLEET = "vad"
GATEWAY_FLEET = "gateway"
"""The gateway service's value of the fleet dimension."""
AGENT_FLEET = "agent"
"""The agents' value of it."""

ELASTICACHE_ID_LENGTH = 40
"""Longest id of a replication group, and by our reading of a user and of a group of users.
Source: https://docs.aws.amazon.com/AmazonElastiCache/latest/APIReference/API_CreateReplicationGroup.html"""


def stack(deployment: Deployment, tier: str) -> str:
    return f"{deployment.name}-{tier}"


def fleet_tier(fleet: str) -> str:
    """Return the last part of the name of an ASR fleet's stack."""
    return f"asr-{fleet}"


def group(deployment: Deployment, fleet: str, zone: str | None = None) -> str:
    """Return the name of an Auto Scaling group; the VAD fleet has one in each zone."""
    suffix = f"-{zone.removeprefix(deployment.aws.region)}" if zone else ""
    return f"{deployment.name}-{fleet}{suffix}"


def vad_groups(deployment: Deployment) -> list[str]:
    """Return the VAD fleet's group names in zone order."""
    return [group(deployment, VAD_FLEET, zone) for zone in deployment.aws.availability_zones]


def job(deployment: Deployment, fleet: str) -> str:
    """Return the name of the launch template whose host leaves a fleet's artifacts in the bucket."""
    return f"{deployment.name}-{fleet}-artifacts"


def scaling_alarm(deployment: Deployment, fleet: str, rule: ScalingRule) -> str:
    return f"{deployment.name}-{fleet}-{rule.name}"


def baked_tags(deployment: Deployment, fleet: str) -> dict[str, str]:
    """Return the tags of the machine images that a fleet's pipeline has baked."""
    return {"voice-serve:deployment": deployment.name, "voice-serve:fleet": fleet}


def state_prefix(deployment: Deployment) -> str:
    """Return what the ids of the state store's users begin with."""
    return f"{deployment.name}-state"


def state_group(deployment: Deployment) -> str:
    """Return the id of the state store's replication group, which differs by the snapshot that it is restored from."""
    prefix, snapshot = state_prefix(deployment), deployment.aws.state.restore_from
    return state_part(prefix, _checksum(snapshot)) if snapshot else prefix


def state_host(deployment: Deployment) -> str:
    """Return the name of the parameter that has the state store's endpoint."""
    return f"/voice/{deployment.name}/state-host"


def state_part(prefix: str, part: str) -> str:
    """Return the id of a part of the state store; one that is too long ends in its checksum."""
    whole = f"{prefix}-{part}"
    if len(whole) <= ELASTICACHE_ID_LENGTH:
        return whole
    checksum = _checksum(whole)
    return f"{whole[: ELASTICACHE_ID_LENGTH - len(checksum) - 1].rstrip('-')}-{checksum}"


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def state_nodes(deployment: Deployment) -> list[str]:
    """Return the ids that ElastiCache gives the state store's nodes; a failover changes roles, not ids."""
    nodes = deployment.aws.state.replicas + 1
    return [f"{state_group(deployment)}-{number:03d}" for number in range(1, nodes + 1)]


def alert_alarm(deployment: Deployment, alert: str, target: str | None = None) -> str:
    """Return the name of the alarm that an operational alert becomes, for one of its targets if it has several."""
    return "-".join(filter(None, (deployment.name, "alert", alert, target)))


def alert_topic(deployment: Deployment) -> str:
    """Return the name of the topic that tells operators."""
    return f"{deployment.name}-alerts"


def budget(deployment: Deployment) -> str:
    """Return the name of the monthly cost budget."""
    return f"{deployment.name}-monthly"


def dashboard(deployment: Deployment, topic: str) -> str:
    return f"{deployment.name}-{topic}"


def runbook_url(deployment: Deployment, alert: str) -> str:
    """Return the address of an alert's runbook."""
    return f"{deployment.aws.observability.runbook_url}/{alert}.md"
