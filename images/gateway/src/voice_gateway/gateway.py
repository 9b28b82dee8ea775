"""What all requests of this process share."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator

from redis.asyncio import Redis

from voice_gateway.callers import Callers, JwtCallers, TrustedCallers
from voice_gateway.fleet import Fleet
from voice_gateway.followers import Followers
from voice_gateway.places import Places
from voice_gateway.refusals import Refusal, busy, draining, retry_after, unknown_session
from voice_gateway.settings import GatewaySettings
from voice_gateway.tokens import ForeignTokenError, SessionTokens, TokenError
from voice_gateway.traces import Traces
from voice_runtime.metrics import Metrics
from voice_runtime.sessions import Session, Sessions
from voice_runtime.transcripts import Transcripts

READERS_OF_SESSION = 4
"""Event streams of one session at one gateway: a page, its reload, and somebody who looks on."""


class Gateway:
    """State of the process.

    Attributes:
        draining: Nothing new is taken.
        leaving: Who is still here is told to go elsewhere.
        connections: Open audio sockets and event streams.
        files: That are read.
    """

    def __init__(self, settings: GatewaySettings, store: Redis, metrics: Metrics) -> None:
        self.settings = settings
        self.store = store
        self.metrics = metrics
        self.sessions = Sessions(store)
        self.transcripts = Transcripts(store)
        self.followers = Followers(self.transcripts)
        self.tokens = SessionTokens(settings.token_key.get_secret_value(), settings.token_ttl_s)
        self.fleet = Fleet(store)
        self.places = Places(store, self.fleet)
        self.callers: Callers = (
            JwtCallers(settings.jwt_issuer, settings.jwt_audience) if settings.jwt_issuer else TrustedCallers()
        )
        self.traces = Traces(settings.trace_collector, settings.traced_share, settings.deployment)
        self.draining = asyncio.Event()
        self.leaving = asyncio.Event()
        self.connections = self.files = 0
        self._readers: Counter[int] = Counter()

    @property
    def takes_callers(self) -> bool:
        """Whether this process can serve a new caller."""
        return self.fleet.store_answers and not self.draining.is_set()

    async def session_of(self, session_id: str, token: str | None) -> Session:
        """Return the session that a request is about.

        Raises:
            Refusal: The token does not open it, or there is none.
        """
        if not token:
            raise Refusal(401, "no token", "send the token that came with the session")
        try:
            self.tokens.check(token, session_id)
        except ForeignTokenError as error:
            raise Refusal(403, "foreign token", str(error)) from None
        except TokenError as error:
            raise Refusal(401, "invalid token", str(error)) from None
        session = await self.sessions.read(self.tokens.ssrc_of(session_id))
        if session is None or session.id != session_id:
            raise unknown_session()
        return session

    @contextlib.contextmanager
    def connection(self) -> Iterator[None]:
        """Count a connection for as long as it is open.

        Raises:
            Refusal: The process is stopping, or has as many as it may have.
        """
        if self.draining.is_set():
            raise draining()
        if self.connections >= self.settings.max_connections:
            raise busy()
        self.connections += 1
        try:
            yield
        finally:
            self.connections -= 1

    @contextlib.contextmanager
    def reader(self, ssrc: int) -> Iterator[None]:
        """Count a reader of a session.

        Raises:
            Refusal: It has as many as it may have.
        """
        if self._readers[ssrc] >= READERS_OF_SESSION:
            detail = f"{READERS_OF_SESSION} streams of this session are open here; close one"
            raise Refusal(429, "too many readers", detail, retry_after(1))
        self._readers[ssrc] += 1
        try:
            yield
        finally:
            self._readers[ssrc] -= 1
            if not self._readers[ssrc]:
                del self._readers[ssrc]
