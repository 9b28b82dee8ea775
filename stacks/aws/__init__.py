"""The AWS suite: every stack of one deployment, in the order of their dependencies."""

from aws_cdk import App

from blueprint.file.model.deployment import Deployment
from stacks.aws.asr import AcceleratorStack, AsrStack
from stacks.aws.edge import EdgeStack
from stacks.aws.host_images import HostImagesStack
from stacks.aws.network import NetworkStack
from stacks.aws.observability import ObservabilityStack
from stacks.aws.registry import RegistryStack
from stacks.aws.stack import VoiceStack
from stacks.aws.state import StateStack
from stacks.aws.vad import VadStack


def build(app: App, deployment: Deployment) -> list[VoiceStack]:
    network = NetworkStack(app, deployment)
    registry = RegistryStack(app, deployment)
    state = StateStack(app, deployment, network=network)
    vad = VadStack(app, deployment, network=network, registry=registry, state=state)
    asr = AsrStack(app, deployment, network=network, registry=registry, state=state)
    edge = EdgeStack(app, deployment, network=network, registry=registry, state=state, vad=vad)
    observability = ObservabilityStack(app, deployment, network=network, vad=vad, asr=asr, edge=edge)
    fleets = [AcceleratorStack(app, fleet=fleet, asr=asr) for fleet in deployment.aws.asr]
    for fleet in fleets:
        # A deploy ends at the first stack that fails: hosts that nobody sells hold nothing else up.
        fleet.add_stack_dependency(observability)
    images = (
        [HostImagesStack(app, deployment, network=network, registry=registry)] if deployment.aws.host_images else []
    )
    return [network, registry, state, vad, asr, edge, observability, *fleets, *images]
