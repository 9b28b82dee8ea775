"""Audio hours of a deployment per month, by which its cost is divided."""

from voice_blueprint.capacity.load import peak_calls
from voice_blueprint.capacity.tiers import FILL, by_tier, caller_capacities, capacities
from voice_blueprint.engines.sizing.service import listening
from voice_blueprint.file.model.aws import Aws
from voice_blueprint.file.model.azure import Azure
from voice_blueprint.file.model.load import CallLoad
from voice_ops.cost.model import Amount, Audio
from voice_ops.cost.prices import HOURS_PER_MONTH


def aws_calls(aws: Aws, load: CallLoad) -> Amount:
    """Return the concurrent calls of the AWS section; at the minimum number of hosts, at most their capacity."""
    return _calls([low for low, _ in by_tier(capacities(aws)).values()], load)


def azure_calls(azure: Azure, load: CallLoad) -> Amount:
    """Return the concurrent calls of the Azure section."""
    return _calls([low for low, _ in _azure_room(azure).values()], load)


def aws_audio(aws: Aws, load: CallLoad, *, typed: bool) -> Audio:
    """Return the audio hours of the AWS section.

    Args:
        load: The load of the designed day.
        typed: Whether the file contains the load.
    """
    room = {each.name: f"{each.low:,}-{each.most:,} calls ({each.binding.name})" for each in capacities(aws)}
    return _audio(aws_calls(aws, load), load, "" if typed else _rooms(room))


def azure_audio(azure: Azure, load: CallLoad | None, *, typed: bool) -> Audio:
    """Return the audio hours of the Azure section; the capacity of engines is their number of sessions by memory."""
    rooms = list(listening(azure))
    if not rooms or load is None:
        return Audio(None, "the file has no service that transcribes audio")
    found = {room.service: f"{room.low}-{room.most} replicas x {room.sessions} sessions" for room in rooms}
    found |= {name: f"{low:,}-{most:,} calls" for name, (low, most) in _azure_room(azure).items() if name != "engines"}
    why = f"{_rooms(found)}; sessions are upper limits by memory"
    return _audio(azure_calls(azure, load), load, "" if typed else why)


def _rooms(found: dict[str, str]) -> str:
    return ", ".join(f"{name} {calls}" for name, calls in found.items())


def _calls(lows: list[int], load: CallLoad) -> Amount:
    return Amount(min(min(lows) * FILL, load.calls), load.calls, peak_calls(load))


def _audio(calls: Amount, load: CallLoad, untyped: str) -> Audio:
    assumed = f"{load.calls:,} calls, {peak_calls(load):,} at the peak, {load.curve}"
    if untyped:
        assumed = f"the file has no load; assumed: {assumed}, {FILL:.0%} of the smallest tier's maximum ({untyped})"
    else:
        assumed = f"load of the file: {assumed}"
    return Audio(calls * HOURS_PER_MONTH, assumed)


def _azure_room(azure: Azure) -> dict[str, tuple[int, int]]:
    """Return the calls of transcription engines and caller tiers, at the minimum and maximum number of units."""
    rooms = list(listening(azure))
    engines = sum(room.low * room.sessions for room in rooms), sum(room.most * room.sessions for room in rooms)
    tiers = by_tier(caller_capacities(azure.callers)) if azure.callers else {}
    return {"engines": engines} | {tier.value: calls for tier, calls in tiers.items()}
