"""What conversations with agents cost: how many minutes there are, what they use, and which costs are theirs alone."""

from collections.abc import Iterator, Mapping

from blueprint.capacity import FILL, Link, conversations_on_aws, conversations_on_azure
from blueprint.checks.azure_callers import cpu_pods
from blueprint.contract.network import Tier
from blueprint.engines.sizing.service import rooms
from blueprint.file.model.agents import AgentRules, ClusterService
from blueprint.file.model.aws import Aws
from blueprint.file.model.azure import CPU_POOL, Azure
from blueprint.file.model.load import CallLoad
from ops.cost.audio import aws_calls, azure_calls
from ops.cost.model import Amount, Conversations, Use, total
from ops.cost.prices import HOURS_PER_MONTH
from ops.cost.traffic import AUDIO_GB, aws_logs, azure_logs, edge_units

AGENTS = "agents"
"""Tier of what conversations alone rent and use."""


def of_aws(aws: Aws, load: CallLoad | None, utilisation: float) -> Conversations | None:
    """Return the conversations of the AWS half; ``None`` where nobody holds any."""
    calls = aws_calls(aws, load, utilisation) if load else None
    return _conversations(conversations_on_aws(aws), load, calls, utilisation, {AGENTS: 1.0})


def of_azure(azure: Azure, load: CallLoad | None, utilisation: float) -> Conversations | None:
    """Return the same of the Azure half.

    Theirs are the load balancer of the agents, of each GPU pool the nodes of services that answer or speak for them
    and hear nobody, and of the CPU pool the CPUs of their pods: all as planned at the most.
    """
    agents, callers = azure.agents, azure.callers
    if agents is None or callers is None:
        return None
    named = {each.service for each in (agents.chat, agents.speech) if isinstance(each, ClusterService)}
    nodes: dict[str, dict[bool, float]] = {}
    for room in rooms(azure):
        own = room.service in named and room.model != callers.asr.model
        of_pool = nodes.setdefault(room.pool, {True: 0.0, False: 0.0})
        of_pool[own] += room.most / room.replicas_per_node
    pods = {name: cpus * replicas.max for name, (cpus, replicas) in cpu_pods(azure).items()}
    shares = {pool: found[True] / sum(found.values()) for pool, found in nodes.items() if found[True]}
    shares |= {AGENTS: 1.0, Tier.AGENT: 1.0, CPU_POOL: pods[Tier.AGENT] / sum(pods.values())}
    calls = azure_calls(azure, load, utilisation) if load else None
    return _conversations(conversations_on_azure(azure), load, calls, utilisation, shares)


def _conversations(
    chain: tuple[Link, ...], load: CallLoad | None, calls: Amount | None, place: float, own: Mapping[str, float]
) -> Conversations | None:
    if not chain or (load and not load.conversation_share):
        return None
    agents = chain[0]
    if load and calls:
        share = load.conversation_share
        held = Amount(min(agents.low * FILL, calls.low * share), calls.expected * share, calls.peak * share)
        assumed = f"{share:.0%} of the calls"
    else:
        held = Amount.between(agents.low, agents.most, place) * FILL
        assumed = f"{agents.low:,}-{agents.most:,} that agents hold; {FILL:.0%} of them in use, day and night"
    parts = ", ".join(name if part == 1 else f"{name} {part:.0%}" for name, part in own.items())
    return Conversations(held * (HOURS_PER_MONTH * 60), own, f"{assumed}; theirs alone: {parts}")


def aws_uses(aws: Aws, load: CallLoad, utilisation: float) -> Iterator[tuple[str, Use]]:
    """Yield what a typed load's conversations use beside what each call does.

    What agents say leaves for the internet, and comes before through a NAT gateway from the endpoint that speaks.
    """
    found = of_aws(aws, load, utilisation)
    if found is None or aws.agents is None:
        return
    hours, zones = found.minutes * (1 / 60), len(aws.availability_zones)
    spoken = hours * _spoken_gb(aws.agents, load)
    through = spoken + hours * AUDIO_GB
    yield "AWS::ElasticLoadBalancingV2::LoadBalancer", Use("nlb-capacity-unit", through * (1 / HOURS_PER_MONTH))
    # An agent finds the gateway through a load balancer with an address in each zone.
    crossed = hours * ((zones - 1) / zones * AUDIO_GB)
    yield "AWS::ECS::Service", Use("zone-crossing-data", crossed)
    yield "AWS::ECS::Service", Use("internet-data", spoken)
    yield "AWS::EC2::NatGateway", Use("nat-gateway-data", spoken)
    yield from aws_logs(aws, hours * (60 / load.minutes_each))


def azure_uses(azure: Azure, load: CallLoad, utilisation: float) -> Iterator[tuple[str, Use]]:
    """Yield the same of Azure; where the speech is an endpoint elsewhere it comes through the NAT gateway."""
    found = of_azure(azure, load, utilisation)
    if found is None or azure.agents is None:
        return
    hours = found.minutes * (1 / 60)
    spoken = hours * _spoken_gb(azure.agents, load)
    yield "containerservice:AgentPool", Use("azure-internet-data", spoken)
    calls = azure_calls(azure, load, utilisation)
    more = edge_units(load, calls, spoken * (1 / HOURS_PER_MONTH)) - edge_units(load, calls)
    yield "network:ApplicationGateway", Use("waf-gateway-capacity-unit", more)
    yield "core/v1:Service", Use("azure-load-balancer-data", spoken)
    logs = list(azure_logs(hours * (60 / load.minutes_each)))
    yield from logs
    inwards = [] if isinstance(azure.agents.speech, ClusterService) else [spoken]
    yield "network:NatGateway", Use("azure-nat-gateway-data", total([*inwards, *(use.amount for _, use in logs)]))


def _spoken_gb(agents: AgentRules, load: CallLoad) -> float:
    """Return what agents say in an hour of a conversation, GB: 16 bits. ASSUMED: whenever the caller does not speak."""
    return agents.speech_rate * 2 * 3600 / 1e9 * (1 - load.speech_share)
