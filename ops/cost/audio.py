"""Audio hours that a deployment carries in a month: what its cost is divided by."""

from blueprint.capacity import FILL, by_tier, caller_capacities, capacities, load_of, peak_calls
from blueprint.contract.network import Tier
from blueprint.engines.sizing.service import listening
from blueprint.file.model.aws import Aws
from blueprint.file.model.azure import Azure
from blueprint.file.model.load import CallLoad
from ops.cost.model import Amount, Audio
from ops.cost.prices import HOURS_PER_MONTH


def aws_calls(aws: Aws, load: CallLoad | None, utilisation: float) -> Amount:
    """Return the calls of the AWS half at the same time: those of the typed load, or what the least tier carries."""
    room = by_tier(capacities(aws)).values()
    low, most = min(low for low, _ in room), min(most for _, most in room)
    if load:
        return Amount(min(low * FILL, load.calls), load.calls, peak_calls(load))
    return Amount.between(low, most, utilisation) * FILL


def expected_place(aws: Aws, load: CallLoad) -> float:
    """Return where between the fewest and the most ASR hosts those are that carry the load's mean."""
    return _place(*by_tier(capacities(aws))[Tier.ASR], load_of(Tier.ASR, load, aws.agents))


def _place(low: int, most: int, load: CallLoad) -> float:
    return min(1.0, max(0.0, (load.calls / FILL - low) / max(1, most - low)))


def aws_audio(aws: Aws, load: CallLoad | None, utilisation: float) -> Audio:
    """Return the audio hours of the AWS half."""
    calls = aws_calls(aws, load, utilisation)
    if load:
        return _typed(calls, load)
    room = {each.name: f"{each.low:,}-{each.most:,} ({each.binding.name})" for each in capacities(aws)}
    why = ", ".join(f"{name} {calls} calls" for name, calls in room.items())
    return Audio(calls * HOURS_PER_MONTH, f"{why}; {FILL:.0%} of the least in use, day and night")


def _typed(calls: Amount, load: CallLoad) -> Audio:
    assumed = f"load of the file: {load.calls:,} calls, {peak_calls(load):,} at the peak"
    return Audio(calls * HOURS_PER_MONTH, assumed)


def azure_place(azure: Azure, load: CallLoad) -> float:
    """Return where between the fewest and the most replicas those are that carry the load's mean."""
    return _place(*_azure_room(azure)["engines"], load)


def _azure_room(azure: Azure) -> dict[str, tuple[int, int]]:
    """Return the calls of the engines that listen and of each tier before them, at its fewest and at its most units."""
    rooms = list(listening(azure))
    engines = sum(room.low * room.sessions for room in rooms), sum(room.most * room.sessions for room in rooms)
    tiers = by_tier(caller_capacities(azure.callers)) if azure.callers else {}
    return {"engines": engines} | {tier.value: calls for tier, calls in tiers.items()}


def azure_calls(azure: Azure, load: CallLoad | None, utilisation: float) -> Amount:
    """Return the calls of the Azure half at the same time: those of the typed load, or what its least tier carries."""
    room = _azure_room(azure).values()
    low, most = min(low for low, _ in room), min(most for _, most in room)
    if load:
        return Amount(min(low * FILL, load.calls), load.calls, peak_calls(load))
    return Amount.between(low, most, utilisation) * FILL


def azure_audio(azure: Azure, load: CallLoad | None, utilisation: float) -> Audio:
    """Return the audio hours of the Azure half; engines are counted by the sessions that memory has room for."""
    rooms = list(listening(azure))
    if not rooms:
        return Audio(None, "no service of the file takes audio")
    calls = azure_calls(azure, load, utilisation)
    if load:
        return _typed(calls, load)
    why = [f"{room.service}, {room.low}-{room.most} replicas x {room.sessions} sessions" for room in rooms]
    why += [f"{name} {low:,}-{most:,} calls" for name, (low, most) in _azure_room(azure).items() if name != "engines"]
    return Audio(
        calls * HOURS_PER_MONTH,
        f"{'; '.join(why)}; sessions are ceilings of memory, so the hours are at the most; {FILL:.0%} of the least in "
        "use, day and night (type `load` in the file)",
    )
