"""Names of deployed resources that several programs must spell identically."""

import hashlib

from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.scaling import ScalingRule

DEPLOYMENT_TAG = "voice-serve:deployment"
"""Tag with the deployment's name on every stack and its resources."""
DEPLOYMENT_NAME_OUTPUT = "File"
"""Stack output with the deployment's name from its file, for stacks outside the first region."""
VAD_FLEET = "vad"
GATEWAY_FLEET = "gateway"
"""Fleet dimension of the gateway's metrics."""
AGENT_FLEET = "agent"
"""Fleet dimension of the agents' metrics."""

MAX_ELASTICACHE_ID_LENGTH = 40
"""Maximum length of the id of a replication group; we assume that it also applies to users and user groups. Source:
https://docs.aws.amazon.com/AmazonElastiCache/latest/APIReference/API_CreateReplicationGroup.html"""


def build_stack_name(deployment: Deployment, tier: str) -> str:
    return f"{deployment.name}-{tier}"


def build_fleet_stack_suffix(fleet: str) -> str:
    """Return the last part of an ASR fleet's stack name."""
    return f"asr-{fleet}"


def build_group_name(deployment: Deployment, fleet: str, zone: str | None = None) -> str:
    """Return the name of an Auto Scaling group. The VAD fleet has one group in each zone."""
    suffix = f"-{zone.removeprefix(deployment.aws.region)}" if zone else ""
    return f"{deployment.name}-{fleet}{suffix}"


def list_vad_group_names(deployment: Deployment) -> list[str]:
    """Return the names of the VAD fleet's groups in the order of the zones."""
    return [build_group_name(deployment, VAD_FLEET, zone) for zone in deployment.aws.availability_zones]


def build_job_template_name(deployment: Deployment, fleet: str) -> str:
    """Return the name of the launch template for the job that uploads a fleet's artifacts to the bucket."""
    return f"{deployment.name}-{fleet}-artifacts"


def build_scaling_alarm_name(deployment: Deployment, fleet: str, rule: ScalingRule) -> str:
    return f"{deployment.name}-{fleet}-{rule.name}"


def build_machine_image_tags(deployment: Deployment, fleet: str) -> dict[str, str]:
    """Return the tags of the machine images that a fleet's pipeline builds."""
    return {DEPLOYMENT_TAG: deployment.name, "voice-serve:fleet": fleet}


def build_state_user_prefix(deployment: Deployment) -> str:
    """Return the prefix of the state store's user ids."""
    return f"{deployment.name}-state"


def build_state_group_id(deployment: Deployment) -> str:
    """Return the id of the state store's replication group, which depends on the restored snapshot."""
    prefix, snapshot = build_state_user_prefix(deployment), deployment.aws.state.restore_from
    return build_state_store_resource_id(prefix, _calculate_checksum(snapshot)) if snapshot else prefix


def build_state_host_parameter_name(deployment: Deployment) -> str:
    """Return the name of the parameter with the state store's endpoint."""
    return f"/voice/{deployment.name}/state-host"


def build_rollout_parameter_name(deployment: Deployment) -> str:
    """Return the name of the parameter with the state of a rollout in progress."""
    return f"/voice/{deployment.name}/rollout"


def build_state_store_resource_id(prefix: str, part: str) -> str:
    """Return the id of a part of the state store. A long id is truncated and ends with its checksum."""
    full_id = f"{prefix}-{part}"
    if len(full_id) <= MAX_ELASTICACHE_ID_LENGTH:
        return full_id
    checksum = _calculate_checksum(full_id)
    return f"{full_id[: MAX_ELASTICACHE_ID_LENGTH - len(checksum) - 1].rstrip('-')}-{checksum}"


def _calculate_checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def list_state_node_ids(deployment: Deployment) -> list[str]:
    """Return the ids of the state store's nodes in ElastiCache. A failover changes roles, not ids."""
    nodes = deployment.aws.state.replicas + 1
    return [f"{build_state_group_id(deployment)}-{number:03d}" for number in range(1, nodes + 1)]


def build_alert_alarm_name(deployment: Deployment, alert: str, target: str | None = None) -> str:
    """Return the name of an alert's alarm. If the alert has several targets, each has its own alarm."""
    return "-".join(filter(None, (deployment.name, "alert", alert, target)))


def build_alert_topic_name(deployment: Deployment) -> str:
    """Return the name of the SNS topic for operators."""
    return f"{deployment.name}-alerts"


def build_budget_name(deployment: Deployment) -> str:
    """Return the name of the monthly cost budget."""
    return f"{deployment.name}-monthly"


def build_dashboard_name(deployment: Deployment, topic: str) -> str:
    return f"{deployment.name}-{topic}"


def build_runbook_url(deployment: Deployment, alert: str) -> str:
    """Return the URL of an alert's runbook."""
    return f"{deployment.aws.observability.runbook_url}/{alert}.md"
