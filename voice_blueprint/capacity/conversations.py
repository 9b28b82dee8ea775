"""Concurrent conversations that each stage of a conversation supports."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from voice_blueprint.capacity.bounds import SPEECH_FRACTION
from voice_blueprint.capacity.load import calculate_peak_calls, is_tier_bypassed
from voice_blueprint.capacity.tiers import (
    TARGET_UTILIZATION,
    TierCapacity,
    build_agent_capacity,
    build_aws_tier_capacities,
    build_azure_caller_capacities,
    sum_calls_by_tier,
)
from voice_blueprint.engines.sizing.service import PoolCapacity, iter_pool_capacities
from voice_blueprint.file.model.agents import ClusterService
from voice_blueprint.file.model.aws import Aws
from voice_blueprint.file.model.azure import Azure
from voice_blueprint.file.model.base import HostCount
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.load import CallLoad
from voice_blueprint.file.source import Location

CONVERSATION_CPU_S_PER_MINUTE = 4.6
"""Seconds of CPU time that an agent process uses per minute of a conversation. Measured manually on a shared x86
machine on 2026-11-23, commit 4d6c2bdf; no benchmark repeats the measurement."""

MAX_CONVERSATIONS_PER_CORE = 8
"""Maximum number of conversations per core. 13 would saturate a core; the margin allows the models for voice and turn
detection to respond immediately. ASSUMED."""


@dataclass(frozen=True)
class ConversationStage:
    """A stage in which a conversation occupies a slot: a tier, or a service that transcribes, answers or speaks.

    Attributes:
        units: Minimum and maximum number of hosts, tasks or replicas, over all fleets or pools.
        low: Conversations at the minimum number of units.
        most: Conversations at the maximum number of units.
        location: Location of the number of units in the file.
        source: Source of the numbers.
    """

    name: str
    units: HostCount
    low: int
    most: int
    location: Location
    source: str

    @property
    def calls(self) -> int:
        """Conversations per unit, averaged over different kinds of units."""
        return self.most // self.units.max

    def calculate_required_units(self, conversations: float) -> int:
        """Return the number of units that serve these conversations at a utilization of ``TARGET_UTILIZATION``.

        The proportions between the fleets do not change.

        Raises:
            ValueError: A unit serves no conversations.
        """
        if not self.most:
            raise ValueError(f"{self.name} supports no conversations: {self.source}")
        return max(1, math.ceil(conversations * self.units.max / (self.most * TARGET_UTILIZATION)))


def calculate_concurrent_conversations(load: CallLoad) -> tuple[float, int]:
    """Return the mean and the peak number of concurrent conversations in a load."""
    return load.calls * load.conversation_share, math.ceil(calculate_peak_calls(load) * load.conversation_share)


def build_aws_conversation_chain(aws: Aws) -> tuple[ConversationStage, ...]:
    """Return the stages of a conversation on AWS: the agents, followed by each tier of a call.

    Without agents, there are no stages.

    The language model and text to speech are external endpoints; the file does not contain their capacity.
    """
    if aws.agents is None:
        return ()
    tasks = HostCount(min=aws.agents.tasks.min, max=aws.agents.tasks.max)
    agents_capacity = build_agent_capacity(aws.agents, tasks, ("aws", "agents", "tasks"))
    return _build_tier_stages(
        (
            agents_capacity,
            *(each for each in build_aws_tier_capacities(aws) if not is_tier_bypassed(each.tier, aws.agents)),
        )
    )


def build_azure_conversation_chain(azure: Azure) -> tuple[ConversationStage, ...]:
    """Return the stages of a conversation on a cluster, including the services that transcribe, answer and speak.

    A service that cannot work has no slots.

    Raises:
        LookupError: A service refers to a pool that the file does not define, or to one without GPUs.
    """
    agents, callers = azure.agents, azure.callers
    if agents is None or callers is None:
        return ()
    agents_capacity = build_agent_capacity(agents, agents.replicas, ("azure", "agents", "replicas"))
    results = list(iter_pool_capacities(azure))
    tiers = [each for each in build_azure_caller_capacities(callers) if not is_tier_bypassed(each.tier, agents)]
    engines = []
    if agents.listening == "transcript":
        engines += [
            _build_engine_stage(azure, callers.asr.model, [pool for pool in results if pool.model == callers.asr.model])
        ]
    for engine, share in ((agents.chat, 1.0), (agents.speech, SPEECH_FRACTION)):
        if isinstance(engine, ClusterService):
            engines.append(
                _build_engine_stage(azure, engine.service, [r for r in results if r.service == engine.service], share)
            )
    return (*_build_tier_stages((agents_capacity, *tiers)), *filter(None, engines))


def iter_conversation_chains(deployment: Deployment) -> Iterator[tuple[ConversationStage, ...]]:
    """Yield the stages of a conversation for each section with agents, starting with the agents.

    Raises:
        LookupError: A service on Azure refers to a pool that the file does not define, or to one without GPUs.
    """
    if deployment.aws_section and deployment.aws_section.agents:
        yield build_aws_conversation_chain(deployment.aws_section)
    if deployment.azure_section and (chain := build_azure_conversation_chain(deployment.azure_section)):
        yield chain


def _build_engine_stage(
    azure: Azure, name: str, capacities: list[PoolCapacity], share: float = 1.0
) -> ConversationStage | None:
    """Return the replicas of a service as a stage. Each conversation occupies a session for ``share`` of its time."""
    if not capacities:
        return None
    index = next(index for index, service in enumerate(azure.services) if service.name == capacities[0].service)
    low, high = (
        int(sum(count * pool.sessions for pool, count in zip(capacities, counts, strict=True)) / share)
        for counts in ([pool.min_replicas for pool in capacities], [pool.max_replicas for pool in capacities])
    )
    units = HostCount(
        min=sum(pool.min_replicas for pool in capacities), max=sum(pool.max_replicas for pool in capacities)
    )
    source = " and ".join(f"{pool.sessions:,} sessions a replica on {pool.pool}" for pool in capacities)
    if share < 1:
        source += f", each conversation {share:.0%} of its time"
    return ConversationStage(name, units, low, high, ("azure", "services", index, "replicas"), source)


def _build_tier_stages(capacities: tuple[TierCapacity, ...]) -> tuple[ConversationStage, ...]:
    links = []
    for tier, (low, high) in sum_calls_by_tier(capacities).items():
        parts = [each for each in capacities if each.tier is tier]
        units = HostCount(min=sum(each.units.min for each in parts), max=sum(each.units.max for each in parts))
        links.append(ConversationStage(tier.value, units, low, high, parts[0].location, parts[0].limiting_bound.source))
    return tuple(links)
