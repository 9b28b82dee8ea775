"""Protects ECS tasks with active calls against scale-in and deployments.

Fargate allows at most 120 s for stopping a task. ECS does not stop a protected task for up to 48 hours:
https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-scale-in-protection.html
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from http.client import HTTPException
from urllib.request import Request, urlopen

from redis.asyncio import Redis
from redis.exceptions import RedisError

from voice_blueprint.contract.environment import VALKEY_PASSWORD
from voice_blueprint.contract.network import Tier
from voice_runtime import state

CHECK_INTERVAL_S = 10.0
RENEWAL_INTERVAL_S = 120.0
"""Interval at which the protection is renewed. A fleet of 200 tasks makes fewer than two calls per second; ECS allows
five."""
PROTECTION_EXPIRY_MINUTES = 6
"""Lifetime of a protection that is not renewed, because the process hangs or has died."""
MAX_PROTECTION_AFTER_REPLACEMENT_S = 3600.0
"""Maximum time for which a task of an older deployment keeps its protection: the default duration of a session. Load
balancers continue to send it new calls, so it is never idle in a busy fleet. CloudFormation waits at most three
hours."""
REQUEST_TIMEOUT_S = 5.0
AGENT_URI_VARIABLE, METADATA_URI_VARIABLE = "ECS_AGENT_URI", "ECS_CONTAINER_METADATA_URI_V4"
"""Variables that ECS sets in each container."""

log = logging.getLogger(__name__)


class TaskProtection:
    """Protects the task of this process while the process has calls. Without ECS, nothing happens.

    Args:
        store: The state store, in which the newest task stores its revision.
        tier: Tier of the process.
        is_busy: Function that returns True while the process has calls.
    """

    def __init__(
        self, store: Redis, tier: Tier, is_busy: Callable[[], bool], environment: Mapping[str, str] = os.environ
    ) -> None:
        self._store, self._key, self._busy = store, state.TIER_REVISION_KEYS[tier], is_busy
        self._agent, self._metadata = (
            environment.get(AGENT_URI_VARIABLE, ""),
            environment.get(METADATA_URI_VARIABLE, ""),
        )
        self._password_hash = hashlib.sha256(environment.get(VALKEY_PASSWORD.name, "").encode()).hexdigest()[:8]
        self._protected_at: float | None = None
        self._replaced_at: float | None = None

    async def run(self) -> None:
        """Update the protection periodically until cancelled."""
        if not self._agent or not self._metadata:
            return
        revision = await self.publish_revision()
        while True:
            await self.update(revision, time.monotonic())
            await asyncio.sleep(CHECK_INTERVAL_S)

    async def update(self, revision: str, now: float) -> None:
        """Set, renew or remove the protection according to the current state."""
        await self._detect_replacement(revision, now)
        within_limit = self._replaced_at is None or now - self._replaced_at < MAX_PROTECTION_AFTER_REPLACEMENT_S
        needs_protection = self._busy() and within_limit
        if needs_protection and (self._protected_at is None or now - self._protected_at >= RENEWAL_INTERVAL_S):
            if await self._set_protection({"ProtectionEnabled": True, "ExpiresInMinutes": PROTECTION_EXPIRY_MINUTES}):
                self._protected_at = now
        elif (
            not needs_protection
            and self._protected_at is not None
            and await self._set_protection({"ProtectionEnabled": False})
        ):
            self._protected_at = None

    async def publish_revision(self) -> str:
        """Store and return the revision of this task, which belongs to the current deployment when it starts.

        The revision contains a hash of the password, since a deployment that renews passwords keeps the task
        definition's revision. Eight digits of a hash do not reveal a random password.
        """
        while True:
            with contextlib.suppress(OSError, HTTPException, ValueError, RedisError):
                metadata = await asyncio.to_thread(_fetch_json, Request(f"{self._metadata}/task"))  # noqa: S310  ECS's own
                revision = f"{metadata.get('Revision', '')}:{self._password_hash}"
                await self._store.set(self._key, revision, ex=state.REVISION_RETENTION_S)
                return revision
            await asyncio.sleep(CHECK_INTERVAL_S)

    async def _detect_replacement(self, revision: str, now: float) -> None:
        try:
            stored = await self._store.get(self._key)
            newest = stored.decode() if isinstance(stored, bytes) else revision
            if newest == revision:
                await self._store.set(self._key, revision, ex=state.REVISION_RETENTION_S)
        except RedisError:
            return  # keep the previous state
        if newest == revision:
            self._replaced_at = None
        elif self._replaced_at is None:
            self._replaced_at = now

    async def _set_protection(self, body: dict[str, bool | int]) -> bool:
        request = Request(  # noqa: S310  ECS's own
            f"{self._agent}/task-protection/v1/state",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method="PUT",
        )
        try:
            response = await asyncio.to_thread(_fetch_json, request)
        except (OSError, HTTPException, ValueError) as error:
            log.warning("protection failed", extra={"fields": {"error": type(error).__name__}})
            return False
        if "protection" not in response:
            failure = response.get("failure") or response.get("error") or {}
            log.warning("protection refused", extra={"fields": {"reason": str(failure)[:200]}})
            return False
        return True


def _fetch_json(request: Request) -> dict[str, object]:
    with urlopen(request, timeout=REQUEST_TIMEOUT_S) as response:  # noqa: S310  ECS's own
        return dict(json.load(response))
