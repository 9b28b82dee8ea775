"""Audio hours that a deployment carries in a month: what its cost is divided by."""

from blueprint import catalog
from blueprint.capacity import FILL, by_tier, capacities, peak_calls
from blueprint.catalog.inference import Task
from blueprint.contract.network import Tier
from blueprint.engines.sizing.result import DoesNotFitError
from blueprint.engines.sizing.service import size_services
from blueprint.file.model.aws import Aws
from blueprint.file.model.azure import Azure
from blueprint.file.model.load import CallLoad
from ops.cost.model import NOTHING, Amount, Audio
from ops.cost.prices import HOURS_PER_MONTH

_TRANSCRIBED = frozenset({Task.AUDIO_CHAT, Task.TRANSCRIPTION})


def aws_calls(aws: Aws, load: CallLoad | None, utilisation: float) -> Amount:
    """Return the calls of the AWS half at the same time: those of the typed load, or what the least tier carries."""
    room = by_tier(capacities(aws)).values()
    low, most = min(low for low, _ in room), min(most for _, most in room)
    if load:
        return Amount(min(low * FILL, load.calls), load.calls, peak_calls(load))
    return Amount.between(low, most, utilisation) * FILL


def expected_place(aws: Aws, load: CallLoad) -> float:
    """Return where between the fewest and the most ASR hosts those are that carry the load's mean."""
    low, most = by_tier(capacities(aws))[Tier.ASR]
    return min(1.0, max(0.0, (load.calls / FILL - low) / max(1, most - low)))


def aws_audio(aws: Aws, load: CallLoad | None, utilisation: float) -> Audio:
    """Return the audio hours of the AWS half."""
    calls = aws_calls(aws, load, utilisation)
    if load:
        return Audio(
            calls * HOURS_PER_MONTH, f"load of the file: {load.calls:,} calls, {peak_calls(load):,} at the peak"
        )
    room = {each.name: f"{each.low:,}-{each.most:,} ({each.binding.name})" for each in capacities(aws)}
    why = ", ".join(f"{name} {calls} calls" for name, calls in room.items())
    return Audio(calls * HOURS_PER_MONTH, f"{why}; {FILL:.0%} of the least in use, day and night")


def azure_audio(azure: Azure, utilisation: float) -> Audio:
    """Return the audio hours of the Azure half: the sessions of the services that listen, as sized."""
    sessions, reasons, sizings = NOTHING, [], size_services(azure)
    for service in azure.services:
        if catalog.models()[service.model].task not in _TRANSCRIBED:
            continue
        sized = sizings[service.name]
        if isinstance(sized, DoesNotFitError):
            continue
        for pool in sized.pools:
            nodes = next(each.nodes for each in azure.pools if each.name == pool.pool)
            low = min(service.replicas_on(pool.pool).min, nodes.min * pool.replicas_per_node)
            sessions += Amount.between(low, pool.most_replicas, utilisation) * pool.engine.sessions
            bounds, each = f"{low}-{pool.most_replicas}", pool.engine.sessions
            reasons.append(f"{service.name}, {bounds} replicas x {each} sessions")
    if not reasons:
        return Audio(None, "no service of the file takes audio")
    why = f"{'; '.join(reasons)}; sessions are ceilings of memory, so the hours are at the most"
    return Audio(sessions * (FILL * HOURS_PER_MONTH), f"{why}; {FILL:.0%} of them in use, day and night")
