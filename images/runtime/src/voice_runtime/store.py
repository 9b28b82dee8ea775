"""The connection to Valkey, from the environment that the contract names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import ConnectionError as StoreConnectionError
from redis.exceptions import TimeoutError as StoreTimeoutError

TIMEOUT_S = 2.0
RETRIES = 6
"""With the pauses between them about 5 s: a failover of the replication group takes longer, and callers retry too."""

CONNECTIONS = 50
"""Of one process; who finds all of them busy waits, where the client's own pool would fail."""


class StoreSettings(BaseSettings):
    """Where Valkey is. Names of the variables are the contract's, with what a developer's machine needs beside them."""

    model_config = SettingsConfigDict(env_prefix="VOICE_VALKEY_", frozen=True)

    host: str | None = None
    host_file: Path | None = None
    port: int = Field(ge=1, le=65535)
    user: str
    password: SecretStr | None = None
    password_file: Path | None = None
    tls: bool = True
    ca_file: Path | None = None

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if (self.host is None) == (self.host_file is None):
            raise ValueError("set one of VOICE_VALKEY_HOST and VOICE_VALKEY_HOST_FILE")
        if self.password is not None and self.password_file is not None:
            raise ValueError("both VOICE_VALKEY_PASSWORD and VOICE_VALKEY_PASSWORD_FILE are set: leave one of them")
        return self

    def address(self) -> str:
        """Return the name or address of the store as it is now.

        Raises:
            OSError: Its file cannot be read.
        """
        return self.host_file.read_text(encoding="utf-8").strip() if self.host_file else self.host or ""

    def secret(self) -> str | None:
        """Return the password.

        Raises:
            OSError: Its file cannot be read.
        """
        if self.password_file is not None:
            return self.password_file.read_text(encoding="utf-8").strip()
        return self.password.get_secret_value() if self.password else None


class FileCredentials(CredentialProvider):
    """User and password as the file has them when a connection is made: the password rotates while programs run."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def get_credentials(self) -> tuple[str, str]:
        """Return them.

        Raises:
            OSError: The file cannot be read.
        """
        return self._settings.user, self._settings.secret() or ""


class Following(Connection):
    """Connects to where the store is then: one that was restored has another name."""

    def __init__(self, *, address: Callable[[], str], **options: Any) -> None:  # noqa: ANN401  the client's own
        super().__init__(**options)
        self._address = address

    async def _connect(self) -> None:
        self.host = self._address()
        await super()._connect()  # type: ignore[no-untyped-call]  # the client's own


class FollowingTls(Following, SSLConnection):
    """The same over TLS."""


def connect(settings: StoreSettings) -> "Redis":
    """Return a client that connects when it is first used, and again when the server comes back.

    Raises:
        OSError: The file of the password or of the host cannot be read.
    """
    password, _ = settings.secret(), settings.address()
    encrypted: dict[str, Any] = {
        "connection_class": FollowingTls,
        "ssl_ca_certs": settings.ca_file and str(settings.ca_file),
    }
    pool = BlockingConnectionPool(
        max_connections=CONNECTIONS,
        timeout=TIMEOUT_S,
        address=settings.address,
        port=settings.port,
        credential_provider=FileCredentials(settings) if password else None,
        decode_responses=False,
        socket_timeout=TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S,
        socket_keepalive=True,
        retry=Retry(ExponentialWithJitterBackoff(base=0.05, cap=1.0), RETRIES),
        retry_on_error=[StoreConnectionError, StoreTimeoutError],
        **(encrypted if settings.tls else {"connection_class": Following}),
    )
    return Redis.from_pool(pool)
