"""Cost of conversations with agents: minutes, usage, and costs that only conversations cause."""

from collections.abc import Iterator, Mapping

from voice_blueprint.capacity.conversations import (
    ConversationStage,
    build_aws_conversation_chain,
    build_azure_conversation_chain,
)
from voice_blueprint.capacity.cpu_pods import build_cpu_pods_by_tier
from voice_blueprint.capacity.tiers import TARGET_UTILIZATION
from voice_blueprint.contract.network import Tier
from voice_blueprint.engines.sizing.service import iter_pool_capacities
from voice_blueprint.file.model.agents import ClusterService, ConversationSettings
from voice_blueprint.file.model.aws import Aws
from voice_blueprint.file.model.azure import CPU_POOL_NAME, Azure
from voice_blueprint.file.model.load import CallLoad
from voice_ops.cost.audio import estimate_aws_calls, estimate_azure_calls
from voice_ops.cost.model import Amount, ConversationUsage, ResourceUsage, sum_amounts
from voice_ops.cost.prices import HOURS_PER_MONTH
from voice_ops.cost.traffic import (
    AUDIO_GB_PER_HOUR,
    calculate_aws_log_uses,
    calculate_azure_log_uses,
    calculate_edge_capacity_units,
)

AGENTS_TIER = "agents"
"""Tier for resources and usage that only conversations cause."""


def estimate_aws_conversations(aws: Aws, load: CallLoad) -> ConversationUsage | None:
    """Return the conversations in the AWS section, or ``None`` without agents."""
    return _estimate_conversations(
        build_aws_conversation_chain(aws), load, estimate_aws_calls(aws, load), {AGENTS_TIER: 1.0}
    )


def estimate_azure_conversations(azure: Azure, load: CallLoad | None) -> ConversationUsage | None:
    """Return the conversations in the Azure section, or ``None`` without agents.

    Only conversations cause the cost of:

    * the agents' load balancer
    * the agents' pods in the CPU pool
    * the services in each GPU pool that generate or speak answers but do not transcribe callers

    The shares of pods and nodes are those at the planned maximum.
    """
    agents, callers, cpu_pool = azure.agents, azure.callers, azure.cpu_pool
    if agents is None or callers is None or cpu_pool is None or load is None:
        return None
    named = {each.service for each in (agents.chat, agents.speech) if isinstance(each, ClusterService)}
    nodes: dict[str, dict[bool, float]] = {}
    for pool_capacity in iter_pool_capacities(azure):
        is_own = pool_capacity.service in named and pool_capacity.model != callers.asr.model
        pool_nodes = nodes.setdefault(pool_capacity.pool, {True: 0.0, False: 0.0})
        pool_nodes[is_own] += pool_capacity.max_replicas / pool_capacity.replicas_per_node
    pods = {
        name: pod.calculate_occupied_cpus(cpu_pool.vm_size) * pod.replicas.max
        for name, pod in build_cpu_pods_by_tier(callers, azure.agents).items()
    }
    shares = {pool: usage[True] / sum(usage.values()) for pool, usage in nodes.items() if usage[True]}
    shares |= {AGENTS_TIER: 1.0, Tier.AGENT: 1.0, CPU_POOL_NAME: pods[Tier.AGENT] / sum(pods.values())}
    return _estimate_conversations(
        build_azure_conversation_chain(azure), load, estimate_azure_calls(azure, load), shares
    )


def _estimate_conversations(
    chain: tuple[ConversationStage, ...], load: CallLoad, calls: Amount, own_shares: Mapping[str, float]
) -> ConversationUsage | None:
    if not chain or not load.conversation_share:
        return None
    share = load.conversation_share
    concurrent = Amount(
        min(chain[0].low * TARGET_UTILIZATION, calls.low * share),
        calls.expected * share,
        calls.peak * share,
    )
    parts = ", ".join(name if part == 1 else f"{name} {part:.0%}" for name, part in own_shares.items())
    return ConversationUsage(
        concurrent * (HOURS_PER_MONTH * 60),
        own_shares,
        f"{share:.0%} of the calls; share of each tier that only they use: {parts}",
    )


def calculate_aws_usage(aws: Aws, load: CallLoad) -> Iterator[tuple[str, ResourceUsage]]:
    """Yield the usage that the load's conversations cause on AWS, in addition to that of each call.

    Agents receive audio from the text-to-speech endpoint through a NAT gateway, and send it to the internet.
    """
    usage = estimate_aws_conversations(aws, load)
    if usage is None or aws.agents is None:
        return
    hours, zones = usage.minutes * (1 / 60), len(aws.availability_zones)
    speech_gb = hours * _calculate_speech_gb_per_hour(aws.agents, load)
    processed_gb = speech_gb + hours * AUDIO_GB_PER_HOUR
    yield (
        "AWS::ElasticLoadBalancingV2::LoadBalancer",
        ResourceUsage("nlb-capacity-unit", processed_gb * (1 / HOURS_PER_MONTH)),
    )
    # An agent reaches the gateway through a load balancer with an address in each zone.
    cross_zone_gb = hours * ((zones - 1) / zones * AUDIO_GB_PER_HOUR)
    yield "AWS::ECS::Service", ResourceUsage("zone-crossing-data", cross_zone_gb)
    yield "AWS::ECS::Service", ResourceUsage("internet-data", speech_gb)
    yield "AWS::EC2::NatGateway", ResourceUsage("nat-gateway-data", speech_gb)
    yield from calculate_aws_log_uses(aws, hours * (60 / load.minutes_each))


def calculate_azure_usage(azure: Azure, load: CallLoad) -> Iterator[tuple[str, ResourceUsage]]:
    """Yield the usage that the load's conversations cause on Azure, in addition to that of each call.

    Audio from an external text-to-speech endpoint passes through the NAT gateway.
    """
    usage = estimate_azure_conversations(azure, load)
    if usage is None or azure.agents is None:
        return
    hours = usage.minutes * (1 / 60)
    speech_gb = hours * _calculate_speech_gb_per_hour(azure.agents, load)
    yield "containerservice:AgentPool", ResourceUsage("azure-internet-data", speech_gb)
    calls = estimate_azure_calls(azure, load)
    extra_units = calculate_edge_capacity_units(
        load, calls, speech_gb * (1 / HOURS_PER_MONTH)
    ) - calculate_edge_capacity_units(load, calls)
    yield "network:ApplicationGateway", ResourceUsage("waf-gateway-capacity-unit", extra_units)
    yield "core/v1:Service", ResourceUsage("azure-load-balancer-data", speech_gb)
    logs = list(calculate_azure_log_uses(hours * (60 / load.minutes_each)))
    yield from logs
    inbound = [] if isinstance(azure.agents.speech, ClusterService) else [speech_gb]
    yield (
        "network:NatGateway",
        ResourceUsage("azure-nat-gateway-data", sum_amounts([*inbound, *(use.amount for _, use in logs)])),
    )


def _calculate_speech_gb_per_hour(agents: ConversationSettings, load: CallLoad) -> float:
    """Return the size of an agent's audio per conversation hour, in GB.

    ASSUMED: agents speak whenever the caller does not.
    """
    return agents.speech_rate * 2 * 3600 / 1e9 * (1 - load.speech_share)
