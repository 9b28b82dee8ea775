"""Stand-ins for hosts: no machine boots in the ordinary sandbox, so somebody has to answer the lifecycle hooks.

They answer CONTINUE to every hook, as a host whose programs start and stop at once. Where machines boot they are
left out, and a machine's own user data answers.
"""

from __future__ import annotations

import threading
from typing import Any

from botocore.exceptions import ClientError
from moto.autoscaling.models import autoscaling_backends

from sandbox.aws.clients import client
from sandbox.aws.mends.lifecycle import LivingBackend

BOOT_S = 0.2
"""How long a hook waits for them at least: every wait is there to be seen."""


def play(stop: threading.Event) -> None:
    """Answer what waits until the event is set; whatever waits at two looks in a row is answered."""
    seen: set[tuple[str, ...]] = set()
    while not stop.wait(BOOT_S):
        waiting = set(_waiting())
        for each in waiting & seen:
            _answer(*each)
        seen = waiting - seen


def _waiting() -> list[tuple[str, ...]]:
    return [
        (account, region, group.name, host.instance_id, hook)
        for account, regions in list(autoscaling_backends.items())
        for region, backend in list(regions.items())
        if isinstance(backend, LivingBackend)
        for group in backend.living()
        for host in group.all_hosts()
        for hook in list(host.actions)
    ]


def _answer(account: str, region: str, group: str, instance: str, hook: str) -> None:
    api: Any = client("autoscaling", region=region, account=account)
    try:
        api.complete_lifecycle_action(
            AutoScalingGroupName=group, LifecycleHookName=hook, InstanceId=instance, LifecycleActionResult="CONTINUE"
        )
    except ClientError:
        # Somebody else answered, or the group is gone.
        return
