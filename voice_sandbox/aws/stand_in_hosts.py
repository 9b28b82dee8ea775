"""Simulated hosts, which complete lifecycle hooks in the default sandbox, where no machine boots.

They complete every hook with CONTINUE, as a host would if its programs started immediately. If machines boot, the
simulated hosts are disabled, and a machine's own user data completes its hooks.
"""

from __future__ import annotations

import threading
from typing import Any

from botocore.exceptions import ClientError
from moto.autoscaling.models import autoscaling_backends

from voice_sandbox.aws.clients import get_client
from voice_sandbox.aws.patches.lifecycle import LifecycleBackend

MIN_HOOK_DURATION_S = 0.2
"""Minimum duration of a hook, so that every wait state is visible."""


def complete_hooks(stop: threading.Event) -> None:
    """Complete each pending hook when it is polled for the second time, until the event is set."""
    processed: set[tuple[str, ...]] = set()
    while not stop.wait(MIN_HOOK_DURATION_S):
        waiting = set(_list_waiting_hosts())
        for each in waiting & processed:
            _complete_hook(*each)
        processed = waiting - processed


def _list_waiting_hosts() -> list[tuple[str, ...]]:
    return [
        (account, region, group.name, host.instance_id, hook)
        for account, regions in list(autoscaling_backends.items())
        for region, backend in list(regions.items())
        if isinstance(backend, LifecycleBackend)
        for group in backend.iter_lifecycle_groups()
        for host in group.list_all_hosts()
        for hook in list(host.actions)
    ]


def _complete_hook(account: str, region: str, group: str, instance: str, hook: str) -> None:
    api: Any = get_client("autoscaling", region=region, account=account)
    try:
        api.complete_lifecycle_action(
            AutoScalingGroupName=group, LifecycleHookName=hook, InstanceId=instance, LifecycleActionResult="CONTINUE"
        )
    except ClientError:
        # The hook has been completed elsewhere, or the group no longer exists.
        return
