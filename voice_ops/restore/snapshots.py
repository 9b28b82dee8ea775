"""Lists, creates and copies snapshots of the state store."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from voice_blueprint.aws import names
from voice_ops.aws.account import Account

POLL_INTERVAL_S = 10.0
MAX_WAIT_S = 3600
"""Timeout for the creation of a snapshot. A snapshot of some GB takes minutes."""
AVAILABLE_STATUS = "available"


class SnapshotError(Exception):
    """A snapshot cannot be restored, or was not created."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of a replication group.

    Attributes:
        source: Source of the snapshot. Snapshots with the source ``automated`` are deleted with their group.
        created_at: Creation time; ``None`` while the snapshot is being created.
        version: Engine version, which is the minimum version that can restore the snapshot.
    """

    name: str
    group: str
    source: str
    status: str
    version: str
    created_at: datetime | None


def list_snapshots(account: Account) -> Iterator[Snapshot]:
    """Yield the snapshots of all current and former stores in the deployment, from the oldest to the newest."""
    results = (
        _parse_snapshot(each) for each in account.iter_paginated_items("elasticache", "describe_snapshots", "Snapshots")
    )
    prefix = names.build_state_user_prefix(account.deployment)
    own_snapshots = [each for each in results if each.group == prefix or each.group.startswith(f"{prefix}-")]
    yield from sorted(
        own_snapshots, key=lambda each: (each.created_at is not None, each.created_at and each.created_at.timestamp())
    )


def find_requested_snapshot(account: Account) -> Snapshot:
    """Return the snapshot from which the file restores the store.

    Raises:
        SnapshotError: The snapshot cannot be restored.
    """
    state = account.deployment.aws.state
    snapshots_by_name = {each.name: each for each in list_snapshots(account)}
    result = snapshots_by_name.get(state.restore_from or "")
    if result is None:
        available = ", ".join(snapshots_by_name) or "none"
        raise SnapshotError(f"no snapshot {state.restore_from} of this deployment's store; available: {available}")
    if result.status != AVAILABLE_STATUS:
        raise SnapshotError(f"{result.name} is {result.status}: run this again when it is {AVAILABLE_STATUS}")
    if _parse_version(result.version) > _parse_version(state.engine_version):
        raise SnapshotError(
            f"{result.name} is of Valkey {result.version}, and the file has engine_version {state.engine_version}: "
            "no older one reads it"
        )
    return result


def create_snapshot(account: Account, name: str, source: str | None) -> Snapshot:
    """Create a snapshot of the store, or copy the snapshot ``source``. Return the snapshot when it is available.

    Raises:
        SnapshotError: The snapshot was not created.
    """
    client = account.session.client("elasticache")
    if name not in {each.name for each in list_snapshots(account)}:
        if source:
            client.copy_snapshot(SourceSnapshotName=source, TargetSnapshotName=name)
        else:
            client.create_snapshot(ReplicationGroupId=find_live_group_id(account), SnapshotName=name)
    end = time.monotonic() + MAX_WAIT_S
    while True:
        (result,) = (_parse_snapshot(each) for each in client.describe_snapshots(SnapshotName=name)["Snapshots"])
        if result.status == AVAILABLE_STATUS:
            return result
        if result.status not in {"creating", "copying"} or time.monotonic() > end:
            raise SnapshotError(
                f"{name} is {result.status} after {MAX_WAIT_S} s at most; see the events of ElastiCache"
            )
        time.sleep(POLL_INTERVAL_S)


def find_live_group_id(account: Account) -> str:
    """Return the id of the deployed replication group.

    Raises:
        KeyError: No replication group is deployed; the message contains the stack.
    """
    stack = names.build_stack_name(account.deployment, "state")
    resources, physical_names = account.fetch_live_templates()[stack]["Resources"], account.fetch_physical_ids(stack)
    (group,) = (
        physical_names[name] for name, each in resources.items() if each["Type"] == "AWS::ElastiCache::ReplicationGroup"
    )
    return group


def _parse_snapshot(response: Any) -> Snapshot:  # noqa: ANN401  one of two types of boto3
    nodes = [each["SnapshotCreateTime"] for each in response.get("NodeSnapshots", []) if "SnapshotCreateTime" in each]
    return Snapshot(
        name=response["SnapshotName"],
        group=response.get("ReplicationGroupId", ""),
        source=response.get("SnapshotSource", ""),
        status=response["SnapshotStatus"],
        version=response.get("EngineVersion", ""),
        created_at=min(nodes, default=None),
    )


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
