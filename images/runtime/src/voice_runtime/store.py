"""The connection to Valkey, from the environment that the contract names."""

from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import ConnectionError as StoreConnectionError
from redis.exceptions import TimeoutError as StoreTimeoutError

TIMEOUT_S = 2.0
RETRIES = 6
"""With the pauses between them about 5 s: a failover of the replication group takes longer, and callers retry too."""


class StoreSettings(BaseSettings):
    """Where Valkey is. Names of the variables are the contract's, with what a developer's machine needs beside them."""

    model_config = SettingsConfigDict(env_prefix="VOICE_VALKEY_", frozen=True)

    host: str
    port: int = Field(ge=1, le=65535)
    user: str
    password: SecretStr | None = None
    password_file: Path | None = None
    tls: bool = True
    ca_file: Path | None = None

    @model_validator(mode="after")
    def _one_password(self) -> Self:
        if self.password is not None and self.password_file is not None:
            raise ValueError("both VOICE_VALKEY_PASSWORD and VOICE_VALKEY_PASSWORD_FILE are set: leave one of them")
        return self

    def secret(self) -> str | None:
        """Return the password.

        Raises:
            OSError: Its file cannot be read.
        """
        if self.password_file is not None:
            return self.password_file.read_text(encoding="utf-8").strip()
        return self.password.get_secret_value() if self.password else None


def connect(settings: StoreSettings) -> "Redis":
    """Return a client that connects when it is first used, and again when the server comes back.

    Raises:
        OSError: The file of the password cannot be read.
    """
    password = settings.secret()
    return Redis(
        host=settings.host,
        port=settings.port,
        username=settings.user if password else None,
        password=password,
        ssl=settings.tls,
        ssl_ca_certs=str(settings.ca_file) if settings.tls and settings.ca_file else None,
        decode_responses=False,
        socket_timeout=TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S,
        socket_keepalive=True,
        retry=Retry(ExponentialWithJitterBackoff(base=0.05, cap=1.0), RETRIES),
        retry_on_error=[StoreConnectionError, StoreTimeoutError],
    )
