"""The AWS suite: all stacks of a deployment, in dependency order."""

from aws_cdk import App

from voice_blueprint.file.model.deployment import Deployment
from voice_stacks.aws.agents import AgentsStack
from voice_stacks.aws.asr import AsrFleetStack, AsrStack
from voice_stacks.aws.edge import EdgeStack
from voice_stacks.aws.host_images import HostImagesStack
from voice_stacks.aws.network import NetworkStack
from voice_stacks.aws.observability import ObservabilityStack
from voice_stacks.aws.registry import RegistryStack
from voice_stacks.aws.stack import VoiceStack
from voice_stacks.aws.state import StateStack
from voice_stacks.aws.vad import VadStack


def build_stacks(app: App, deployment: Deployment) -> list[VoiceStack]:
    """Create the stacks of a deployment in one region, in dependency order."""
    network = NetworkStack(app, deployment)
    registry = RegistryStack(app, deployment)
    state = StateStack(app, deployment, network=network)
    vad = VadStack(app, deployment, network=network, registry=registry, state=state)
    asr = AsrStack(app, deployment, network=network, registry=registry, state=state)
    edge = EdgeStack(app, deployment, network=network, registry=registry, state=state, vad=vad)
    desired = deployment.aws.agents
    agents = (
        AgentsStack(app, deployment, desired, network=network, registry=registry, state=state, edge=edge)
        if desired
        else None
    )
    observability = ObservabilityStack(app, deployment, network=network, vad=vad, asr=asr, edge=edge, agents=agents)
    fleets = [AsrFleetStack(app, fleet=fleet, asr=asr) for fleet in deployment.aws.asr]
    for fleet in fleets:
        # A deployment ends at the first stack that fails; a fleet without available capacity must not block other
        # stacks.
        fleet.add_stack_dependency(observability)
    images = (
        [HostImagesStack(app, deployment, network=network, registry=registry)] if deployment.aws.host_images else []
    )
    return [network, registry, state, vad, asr, edge, *([agents] if agents else []), observability, *fleets, *images]
