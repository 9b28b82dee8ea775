"""Periodic work on a host: heartbeats, leases, takeover of sessions from failed hosts, and release of idle ones."""

import asyncio
import logging
import time
from collections.abc import Callable

from voice_blueprint.contract.state import HOST_HEARTBEAT_INTERVAL_S
from voice_runtime.hosts import Host, HostRegistry
from voice_runtime.journal import AudioJournal
from voice_runtime.sessions import SessionStore
from voice_whisper.admission import Admission
from voice_whisper.journal_batch import FLUSH_INTERVAL_S as JOURNAL_EVERY_S
from voice_whisper.journal_batch import JournalBatch
from voice_whisper.retries import retry_until_done, run_periodically
from voice_whisper.settings import EngineSettings

ADVANCE_INTERVAL_S = 0.05
IDLE_TIMEOUT_S = 120.0
"""Time without audio after which a session is released. The VAD tier discards its record of the session's host after
the same time."""
QUIET_TIMEOUT_S = 2.0
"""Time without speech after which the record of a session is read, since the session may have been closed."""

log = logging.getLogger(__name__)


class HostMaintenance:
    """The periodic work of a host.

    While its transcriber is stuck, a host behaves as if it had failed. The host is not in the registry and renews no
    leases, so the VAD tier sends its sessions elsewhere, and other hosts take them over.

    Args:
        is_stuck: Function that returns True if the transcriber has stopped working.

    Attributes:
        is_draining: Whether the host is shutting down.
    """

    def __init__(
        self,
        settings: EngineSettings,
        admission: Admission,
        registry: HostRegistry,
        journal: AudioJournal,
        sessions: SessionStore,
        *,
        is_stuck: Callable[[], bool],
    ) -> None:
        self.is_draining = False
        self._is_stuck = is_stuck
        self._settings = settings
        self._admission = admission
        self._registry = registry
        self._journal = journal
        self._sessions = sessions

    async def run(self, batch: JournalBatch) -> None:
        """Run until cancelled."""
        await retry_until_done("what was left here", self._resume_sessions)
        async with asyncio.TaskGroup() as group:
            group.create_task(run_periodically(HOST_HEARTBEAT_INTERVAL_S, "the heartbeat", self.send_heartbeat))
            group.create_task(run_periodically(HOST_HEARTBEAT_INTERVAL_S, "the leases", self._renew_leases))
            group.create_task(
                run_periodically(HOST_HEARTBEAT_INTERVAL_S, "the search for orphans", self._adopt_orphans)
            )
            group.create_task(
                run_periodically(QUIET_TIMEOUT_S, "the search for closed sessions", self._release_closed_sessions)
            )
            group.create_task(
                run_periodically(HOST_HEARTBEAT_INTERVAL_S / 4, "the release of sessions", self._release_idle_sessions)
            )
            group.create_task(run_periodically(JOURNAL_EVERY_S, "the journal", batch.flush))
            group.create_task(run_periodically(ADVANCE_INTERVAL_S, "the clock", self._advance_sessions))

    async def send_heartbeat(self) -> None:
        """Update this host's record in the registry."""
        settings = self._settings
        if self._is_stuck():
            await self._remove_from_registry()
            return
        if self._admission.is_closed and not self.is_draining:
            self._admission.is_closed = False
            await self._resume_sessions()
        host = Host(
            settings.host,
            settings.host_kind,
            str(settings.host_address),
            free_slots=0 if self.is_draining else self._admission.free_slots,
            draining=self.is_draining,
            zone=settings.zone,
            slots=settings.sessions,
            languages=self._admission.languages,
        )
        await self._registry.send_heartbeat(host)

    async def _remove_from_registry(self) -> None:
        if not self._admission.is_closed:
            log.warning("%d sessions are left to other hosts until this one works", len(self._admission.live_sessions))
        self._admission.is_closed = True
        for ssrc in list(self._admission.live_sessions):
            self._admission.drop(ssrc)
        await self._registry.remove(self._settings.host)

    async def _resume_sessions(self) -> None:
        """Continue the sessions that this host had before it restarted or its transcriber was stuck."""
        session_ids = await self._journal.read_host_sessions(self._settings.host)
        others = await self._journal.renew(session_ids)
        for ssrc in set(session_ids) - set(others):
            await self._admission.adopt(ssrc, is_own=True)

    async def _renew_leases(self) -> None:
        if self._is_stuck():
            return
        for ssrc in await self._journal.renew(list(self._admission.live_sessions)):
            self._admission.drop(ssrc)

    async def _adopt_orphans(self) -> None:
        if self._is_stuck():
            return
        for ssrc in await self._journal.find_orphaned_sessions():
            await self._admission.adopt(ssrc)

    async def _advance_sessions(self) -> None:
        for session in self._admission.live_sessions.values():
            session.start_due_transcripts()

    async def _release_idle_sessions(self) -> None:
        now = time.monotonic()
        for ssrc, session in list(self._admission.live_sessions.items()):
            idle = now - session.last_audio_at >= IDLE_TIMEOUT_S or not session.is_assigned_to_host
            if not session.is_busy and (idle or self._admission.is_closed):
                await self._admission.release(ssrc)

    async def _release_closed_sessions(self) -> None:
        now = time.monotonic()
        for ssrc, session in list(self._admission.live_sessions.items()):
            if session.is_busy or now - session.last_audio_at < QUIET_TIMEOUT_S:
                continue
            record = await self._sessions.read(ssrc)
            # A chunk may have arrived during the query.
            if (
                (record is None or record.is_over)
                and not session.is_busy
                and self._admission.live_sessions.get(ssrc) is session
            ):
                await self._admission.release(ssrc)
