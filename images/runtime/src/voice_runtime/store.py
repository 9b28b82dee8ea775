"""The connection to Valkey, configured by the environment variables in the contract."""

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

STORE_TIMEOUT_S = 2.0
MAX_RETRIES = 6
"""Number of retries, which take about 5 s with the pauses between them. A failover of the replication group takes
longer, so callers retry as well."""

MAX_CONNECTIONS = 50
"""Maximum number of connections per process. If all of them are busy, a request waits, whereas the client's own pool
would fail."""


class StoreSettings(BaseSettings):
    """Address of Valkey. The variables are those in the contract, with additional ones for development."""

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
    def _check_combinations(self) -> Self:
        if (self.host is None) == (self.host_file is None):
            raise ValueError("set one of VOICE_VALKEY_HOST and VOICE_VALKEY_HOST_FILE")
        if self.password is not None and self.password_file is not None:
            raise ValueError("both VOICE_VALKEY_PASSWORD and VOICE_VALKEY_PASSWORD_FILE are set: leave one of them")
        return self

    def read_address(self) -> str:
        """Return the current name or address of the store.

        Raises:
            OSError: The file with the address cannot be read.
        """
        return self.host_file.read_text(encoding="utf-8").strip() if self.host_file else self.host or ""

    def read_password(self) -> str | None:
        """Return the password.

        Raises:
            OSError: The password file cannot be read.
        """
        if self.password_file is not None:
            return self.password_file.read_text(encoding="utf-8").strip()
        return self.password.get_secret_value() if self.password else None


class FileCredentialProvider(CredentialProvider):
    """Credentials that are read for each new connection, since the password rotates while programs run."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def get_credentials(self) -> tuple[str, str]:
        """Return user and password.

        Raises:
            OSError: The password file cannot be read.
        """
        return self._settings.user, self._settings.read_password() or ""

    async def get_credentials_async(self) -> tuple[str, str]:
        """Return user and password. The client's own method logs a warning if it is not overridden.

        Raises:
            OSError: The password file cannot be read.
        """
        return self.get_credentials()


class ReresolvingConnection(Connection):
    """Connection to the current address of the store, since a restored store has another name."""

    def __init__(self, *, address: Callable[[], str], **options: Any) -> None:  # noqa: ANN401  the client's own
        super().__init__(**options)
        self._address = address

    async def _connect(self) -> None:
        self.host = self._address()
        await super()._connect()  # type: ignore[no-untyped-call]  # the client's own


class ReresolvingTlsConnection(ReresolvingConnection, SSLConnection):
    """Connection over TLS to the current address of the store."""


def connect(settings: StoreSettings) -> "Redis":
    """Return a client that connects on first use, and reconnects when the server returns.

    Raises:
        OSError: The password or host file cannot be read.
    """
    password, _ = settings.read_password(), settings.read_address()
    tls_options: dict[str, Any] = {
        "connection_class": ReresolvingTlsConnection,
        "ssl_ca_certs": settings.ca_file and str(settings.ca_file),
    }
    pool = BlockingConnectionPool(
        max_connections=MAX_CONNECTIONS,
        timeout=STORE_TIMEOUT_S,
        address=settings.read_address,
        port=settings.port,
        credential_provider=FileCredentialProvider(settings) if password else None,
        decode_responses=False,
        socket_timeout=STORE_TIMEOUT_S,
        socket_connect_timeout=STORE_TIMEOUT_S,
        socket_keepalive=True,
        retry=Retry(ExponentialWithJitterBackoff(base=0.05, cap=1.0), MAX_RETRIES),
        retry_on_error=[StoreConnectionError, StoreTimeoutError],
        **(tls_options if settings.tls else {"connection_class": ReresolvingConnection}),
    )
    return Redis.from_pool(pool)
