"""Names of deployed things that more than one program has to spell alike."""

from blueprint.model.deployment import Deployment
from blueprint.model.scaling import ScalingRule

VAD_FLEET = "vad"


def stack(deployment: Deployment, tier: str) -> str:
    """Return the name of a CloudFormation stack."""
    return f"{deployment.name}-{tier}"


def group(deployment: Deployment, fleet: str, zone: str | None = None) -> str:
    """Return the name of an Auto Scaling group; the VAD fleet has one in each zone."""
    suffix = f"-{zone.removeprefix(deployment.aws.region)}" if zone else ""
    return f"{deployment.name}-{fleet}{suffix}"


def vad_groups(deployment: Deployment) -> list[str]:
    """Return the VAD fleet's group names in zone order."""
    return [group(deployment, VAD_FLEET, zone) for zone in deployment.aws.availability_zones]


def scaling_alarm(deployment: Deployment, fleet: str, rule: ScalingRule) -> str:
    """Return the name of the alarm that a scaling rule becomes."""
    return f"{deployment.name}-{fleet}-{rule.name}"


def state_group(deployment: Deployment) -> str:
    """Return the id of the state store's replication group."""
    return f"{deployment.name}-state"
