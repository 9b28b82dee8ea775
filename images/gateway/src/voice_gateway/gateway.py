"""State that all requests of this process share."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator

from redis.asyncio import Redis

from voice_gateway.archive import Archive
from voice_gateway.callers import CallerIdentifier, JwtCallerIdentifier, TrustedCallerIdentifier
from voice_gateway.cells import CellRouter
from voice_gateway.fleet import Fleet
from voice_gateway.followers import EventPoller
from voice_gateway.pacer import Backlog
from voice_gateway.refusals import (
    Refusal,
    build_busy_refusal,
    build_draining_refusal,
    build_retry_after_header,
    build_unknown_session_refusal,
)
from voice_gateway.settings import GatewaySettings
from voice_gateway.slot_reservations import SlotReservationStore
from voice_gateway.tokens import ForeignTokenError, SessionTokenManager, TokenError
from voice_gateway.traces import CallTracer
from voice_gateway.usage import UsageCounter
from voice_runtime.fair_admission import FairAdmissionController
from voice_runtime.metrics import Metrics
from voice_runtime.sessions import Session, SessionStore
from voice_runtime.transcripts import TranscriptStore

MAX_CONCURRENT_FILES = 2
"""Maximum number of files that a gateway decodes concurrently, each in a decoder process."""
MAX_CONTAINER_AUDIO_SOCKETS = 16
"""Maximum number of sockets with container audio on a gateway. Each one has a decoder process that uses about 50 MB."""
MAX_UPLOADS = 16
"""Maximum number of concurrent uploads, which corresponds to 2 GiB of temporary files. Above this number, the oldest
upload of the caller with the most uploads is cancelled."""
UPLOAD_TIMEOUT_S = 600.0
MAX_UNAUTHENTICATED_UPLOADS = 64
"""Maximum number of uploads without a valid key that are read before the response. Above this number, the oldest upload
of the address with the most uploads is cancelled."""
UPLOAD_DISCARD_TIMEOUT_S = 10.0
"""Maximum time for reading an upload without a valid key."""
MAX_READERS_PER_SESSION = 4
"""Maximum number of event streams for a session at a gateway, such as a page, its reload, and another reader."""


class Gateway:
    """State of a gateway process.

    Attributes:
        draining: Whether new work is refused.
        shutting_down: Whether remaining callers are asked to reconnect to another gateway.
        connections: Open audio sockets and event streams.
        cells: Cells of the deployment, or ``None`` if it has only one.
        archive: Archive of transcripts, or ``None``.
        uploads: Files being uploaded.
        unauthenticated_uploads: Uploads without a valid key, which are read and discarded.
        file_slots: Slots for decoding files.
        container_slots: Slots for decoding container audio of sockets.
        backlog: Audio that arrived ahead of real time.
    """

    def __init__(self, settings: GatewaySettings, store: Redis, metrics: Metrics) -> None:
        self.settings = settings
        self.store = store
        self.metrics = metrics
        self.sessions = SessionStore(store)
        self.transcripts = TranscriptStore(store)
        self.followers = EventPoller(self.transcripts)
        self.tokens = SessionTokenManager(settings.token_key.get_secret_value(), settings.token_ttl_s)
        self.fleet = Fleet(store)
        self.reservations = SlotReservationStore(store, self.fleet)
        self.cells = CellRouter(settings.api_url, settings.cells) if settings.cells else None
        self.usage = UsageCounter(store, metrics, settings.caller_minutes_per_day)
        self.callers: CallerIdentifier = (
            JwtCallerIdentifier(settings.jwt_issuer, settings.jwt_audience, forwarded=settings.forwarded)
            if settings.jwt_issuer
            else TrustedCallerIdentifier()
        )
        self.archive = Archive(settings.archive_url, settings.archive_endpoint) if settings.archive_url else None
        self.traces = CallTracer(settings.trace_collector, settings.traced_share, settings.deployment)
        self.draining = asyncio.Event()
        self.shutting_down = asyncio.Event()
        self.uploads = FairAdmissionController(MAX_UPLOADS, UPLOAD_TIMEOUT_S)
        self.unauthenticated_uploads = FairAdmissionController(MAX_UNAUTHENTICATED_UPLOADS, UPLOAD_DISCARD_TIMEOUT_S)
        self.file_slots = asyncio.Semaphore(MAX_CONCURRENT_FILES)
        self.container_slots = asyncio.Semaphore(MAX_CONTAINER_AUDIO_SOCKETS)
        self.backlog = Backlog()
        self.connections = 0
        self._readers: Counter[int] = Counter()

    @property
    def accepts_callers(self) -> bool:
        """Whether this process can serve a new caller."""
        return self.fleet.is_store_available and not self.draining.is_set()

    async def authenticate(self, session_id: str, token: str | None) -> Session:
        """Return the session of a request.

        Raises:
            Refusal: The token is invalid for the session, or the session does not exist.
        """
        if not token:
            raise Refusal(401, "no token", "send the token that came with the session")
        try:
            self.tokens.verify(token, session_id)
            ssrc = self.tokens.derive_ssrc(session_id)
        except ForeignTokenError as error:
            raise Refusal(403, "foreign token", str(error)) from None
        except TokenError as error:
            raise Refusal(401, "invalid token", str(error)) from None
        session = await self.sessions.read(ssrc)
        if session is None or session.id != session_id:
            raise build_unknown_session_refusal()
        return session

    def check_connection_capacity(self) -> None:
        """Raise an error if there is no capacity for another connection. Capacity is reserved after authentication.

        Raises:
            Refusal: The process is stopping, or has the maximum number of connections.
        """
        if self.draining.is_set():
            raise build_draining_refusal()
        if self.connections >= self.settings.max_connections:
            raise build_busy_refusal()

    @contextlib.contextmanager
    def count_connection(self) -> Iterator[None]:
        """Count a connection from an authenticated caller while it is open.

        Raises:
            Refusal: The process is stopping, or has the maximum number of connections.
        """
        self.check_connection_capacity()
        self.connections += 1
        try:
            yield
        finally:
            self.connections -= 1

    @contextlib.contextmanager
    def count_reader(self, ssrc: int) -> Iterator[None]:
        """Count a reader of a session while its event stream is open.

        Raises:
            Refusal: The session has the maximum number of readers.
        """
        if self._readers[ssrc] >= MAX_READERS_PER_SESSION:
            detail = f"{MAX_READERS_PER_SESSION} streams of this session are open here; close one"
            raise Refusal(429, "too many readers", detail, build_retry_after_header(1))
        self._readers[ssrc] += 1
        try:
            yield
        finally:
            self._readers[ssrc] -= 1
            if not self._readers[ssrc]:
                del self._readers[ssrc]
