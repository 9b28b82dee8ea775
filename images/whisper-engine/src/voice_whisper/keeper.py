"""What a host does every second: say that it is there, keep its sessions, take those of dead hosts, leave idle ones."""

import asyncio
import time

from blueprint.contract.state import HOST_HEARTBEAT_S
from voice_runtime.hosts import Host, HostRegistry
from voice_runtime.journal import Journal
from voice_runtime.sessions import Sessions
from voice_whisper.admission import Admission
from voice_whisper.journal_batch import EVERY_S as JOURNAL_EVERY_S
from voice_whisper.journal_batch import JournalBatch
from voice_whisper.patience import every, until_done
from voice_whisper.settings import EngineSettings

ADVANCE_EVERY_S = 0.05
IDLE_S = 120.0
"""The VAD tier forgets where a session was after that, too."""
QUIET_S = 2.0
"""A session that says nothing for that long is looked up: it may have been closed."""


class Keeper:
    """The periodic work of a host.

    Attributes:
        is_draining: Whether the host is leaving.
    """

    def __init__(
        self,
        settings: EngineSettings,
        admission: Admission,
        registry: HostRegistry,
        journal: Journal,
        sessions: Sessions,
    ) -> None:
        self.is_draining = False
        self._settings = settings
        self._admission = admission
        self._registry = registry
        self._journal = journal
        self._sessions = sessions

    async def run(self, batch: JournalBatch) -> None:
        """Do it until cancelled."""
        await until_done("what was left here", self._resume)
        async with asyncio.TaskGroup() as group:
            group.create_task(every(HOST_HEARTBEAT_S, "the heartbeat", self.beat))
            group.create_task(every(HOST_HEARTBEAT_S, "the leases", self._renew))
            group.create_task(every(HOST_HEARTBEAT_S, "the search for orphans", self._adopt))
            group.create_task(every(QUIET_S, "the search for closed sessions", self._release_closed))
            group.create_task(every(HOST_HEARTBEAT_S / 4, "the release of sessions", self._release_idle))
            group.create_task(every(JOURNAL_EVERY_S, "the journal", batch.flush))
            group.create_task(every(ADVANCE_EVERY_S, "the clock", self._advance))

    async def beat(self) -> None:
        """Tell the registry how this host is."""
        settings = self._settings
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
        await self._registry.beat(host)

    async def _resume(self) -> None:
        """Go on with what this host was doing before it was started again."""
        left = await self._journal.sessions_of(self._settings.host)
        others = await self._journal.renew(left)
        for ssrc in set(left) - set(others):
            await self._admission.adopt(ssrc, is_ours=True)

    async def _renew(self) -> None:
        for ssrc in await self._journal.renew(list(self._admission.live)):
            self._admission.drop(ssrc)

    async def _adopt(self) -> None:
        for ssrc in await self._journal.orphans():
            await self._admission.adopt(ssrc)

    async def _advance(self) -> None:
        for session in self._admission.live.values():
            session.advance()

    async def _release_idle(self) -> None:
        now = time.monotonic()
        for ssrc, session in list(self._admission.live.items()):
            idle = now - session.touched_at >= IDLE_S or not session.is_sent_here
            if not session.is_busy and (idle or self._admission.is_closed):
                await self._admission.release(ssrc)

    async def _release_closed(self) -> None:
        now = time.monotonic()
        for ssrc, session in list(self._admission.live.items()):
            if session.is_busy or now - session.touched_at < QUIET_S:
                continue
            record = await self._sessions.read(ssrc)
            # Nothing may have come while Valkey was asked.
            if (record is None or record.is_over) and not session.is_busy and self._admission.live.get(ssrc) is session:
                await self._admission.release(ssrc)
