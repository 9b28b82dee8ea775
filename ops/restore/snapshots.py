"""Snapshots of the state store: those that there are, a new one, and one that is copied."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from blueprint.aws import names
from ops.aws.account import Account

POLL_S = 10.0
LONGEST_S = 3600
"""How long a snapshot may take; some GB of memory take minutes."""
AVAILABLE = "available"


class SnapshotError(Exception):
    """A snapshot cannot be used, or was not made; the text is the answer."""


@dataclass(frozen=True)
class Snapshot:
    """One snapshot of a replication group.

    Attributes:
        source: Who took it: ``automated`` ones go with their group.
        taken: When; ``None`` while it is being made.
        version: Of the engine that it was taken of, and so the oldest that takes it.
    """

    name: str
    group: str
    source: str
    status: str
    version: str
    taken: datetime | None


def snapshots(account: Account) -> Iterator[Snapshot]:
    """Yield the snapshots of every store that the deployment has had, the newest last."""
    found = (_snapshot(each) for each in account.listed("elasticache", "describe_snapshots", "Snapshots"))
    prefix = names.state_prefix(account.deployment)
    ours = [each for each in found if each.group == prefix or each.group.startswith(f"{prefix}-")]
    yield from sorted(ours, key=lambda each: (each.taken is not None, each.taken and each.taken.timestamp()))


def wanted(account: Account) -> Snapshot:
    """Return the snapshot that the file names.

    Raises:
        SnapshotError: It cannot be restored from.
    """
    state = account.deployment.aws.state
    listed = {each.name: each for each in snapshots(account)}
    found = listed.get(state.restore_from or "")
    if found is None:
        there_are = ", ".join(listed) or "none"
        raise SnapshotError(f"no snapshot {state.restore_from} of this deployment's store; there are: {there_are}")
    if found.status != AVAILABLE:
        raise SnapshotError(f"{found.name} is {found.status}: run this again when it is {AVAILABLE}")
    if _number(found.version) > _number(state.engine_version):
        raise SnapshotError(
            f"{found.name} is of Valkey {found.version}, and the file has engine_version {state.engine_version}: "
            "no older one reads it"
        )
    return found


def keep(account: Account, name: str, of: str | None) -> Snapshot:
    """Take a snapshot of the store, or copy the one that ``of`` names; return it when it is there.

    Raises:
        SnapshotError: It was not made.
    """
    client = account.session.client("elasticache")
    if name not in {each.name for each in snapshots(account)}:
        if of:
            client.copy_snapshot(SourceSnapshotName=of, TargetSnapshotName=name)
        else:
            client.create_snapshot(ReplicationGroupId=live_group(account), SnapshotName=name)
    end = time.monotonic() + LONGEST_S
    while True:
        (found,) = (_snapshot(each) for each in client.describe_snapshots(SnapshotName=name)["Snapshots"])
        if found.status == AVAILABLE:
            return found
        if found.status not in {"creating", "copying"} or time.monotonic() > end:
            raise SnapshotError(f"{name} is {found.status} after {LONGEST_S} s at most; see the events of ElastiCache")
        time.sleep(POLL_S)


def live_group(account: Account) -> str:
    """Return the id of the replication group that is deployed.

    Raises:
        KeyError: None is; names the stack.
    """
    stack = names.stack(account.deployment, "state")
    resources, known = account.live_templates()[stack]["Resources"], account.physical_ids(stack)
    (group,) = (known[name] for name, each in resources.items() if each["Type"] == "AWS::ElastiCache::ReplicationGroup")
    return group


def _snapshot(found: Any) -> Snapshot:  # noqa: ANN401  two of boto3's types
    nodes = [each["SnapshotCreateTime"] for each in found.get("NodeSnapshots", []) if "SnapshotCreateTime" in each]
    return Snapshot(
        name=found["SnapshotName"],
        group=found.get("ReplicationGroupId", ""),
        source=found.get("SnapshotSource", ""),
        status=found["SnapshotStatus"],
        version=found.get("EngineVersion", ""),
        taken=min(nodes, default=None),
    )


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
