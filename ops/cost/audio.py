"""Audio hours that a deployment carries in a month: what its cost is divided by."""

from blueprint import catalog
from blueprint.catalog.inference import Task
from blueprint.engines.sizing.result import DoesNotFitError
from blueprint.engines.sizing.service import size_services
from blueprint.file.model.aws import Aws
from blueprint.file.model.azure import Azure
from ops.cost.model import NOTHING, Amount, Audio, total
from ops.cost.prices import HOURS_PER_MONTH

BUSY = 0.7
"""Share of the sessions that the hosts in service could carry; the rest is the head start of scaling."""

_TRANSCRIBED = frozenset({Task.AUDIO_CHAT, Task.TRANSCRIPTION})


def aws_audio(aws: Aws, sessions_per_host: int | None, utilisation: float) -> Audio:
    """Return the audio hours of the AWS half: what its gateway and its ASR hosts carry, whichever is less.

    Args:
        sessions_per_host: Callers that an ASR host carries, as measured; ``None`` where nobody has.
    """
    tasks = aws.edge.gateway.tasks
    sockets = aws.edge.gateway.sockets_per_task
    gateway = Amount.between(tasks.min, tasks.max, utilisation) * sockets
    sessions, why = gateway, f"gateway, {tasks.min}-{tasks.max} tasks x {sockets} sockets"
    carried = {fleet.name: fleet.vllm.load.sessions if fleet.vllm else sessions_per_host for fleet in aws.asr}
    if None in carried.values():
        unknown = ", ".join(name for name, count in carried.items() if count is None)
        why += f"; at best, since nobody measured what a host of {unknown} carries (--sessions-per-host)"
    else:
        asr = total(
            Amount.between(fleet.hosts.min, fleet.hosts.max, utilisation) * (carried[fleet.name] or 0)
            for fleet in aws.asr
        )
        least = Amount(*map(min, zip(gateway.cases, asr.cases, strict=True)))
        why += "; ASR " + " + ".join(
            f"{fleet.hosts.min}-{fleet.hosts.max} {fleet.name} x {carried[fleet.name]} sessions" for fleet in aws.asr
        )
        sessions = least
    return _audio(sessions, why)


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
    return _audio(sessions, "; ".join(reasons))


def _audio(sessions: Amount, why: str) -> Audio:
    return Audio(sessions * (BUSY * HOURS_PER_MONTH), f"{why}; {BUSY:.0%} of them in use, day and night")
