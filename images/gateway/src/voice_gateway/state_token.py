"""Keeps a token for the state store in a file: ``python -m voice_gateway.state_token``, a sidecar on Azure.

Azure Managed Redis accepts Microsoft Entra tokens as passwords, and closes a connection whose token has expired.
Programs read the file for each new connection, as with a rotating password, so it must always contain a valid token.
https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow#third-case-access-token-request-with-a-federated-credential
"""

import logging
import os
import sys
import time
from pathlib import Path

import httpx2
from pydantic import BaseModel, Field, ValidationError
from pydantic_settings import BaseSettings

from voice_runtime import environment, logs

STATE_STORE_SCOPE = "https://redis.azure.com/.default"
RETRY_DELAY_S = 10.0
REQUEST_TIMEOUT_S = 10.0

log = logging.getLogger(__name__)


class TokenSettings(BaseSettings):
    """Variables set by workload identity, and the path of the token."""

    azure_client_id: str = Field(min_length=1)
    azure_tenant_id: str = Field(min_length=1)
    azure_authority_host: str = "https://login.microsoftonline.com/"
    azure_federated_token_file: Path
    """The service account's own token, which the kubelet renews."""
    voice_state_token_file: Path = Path("/run/voice/token/token")


class AccessToken(BaseModel):
    """The token in Microsoft Entra's response."""

    access_token: str = Field(min_length=1)
    expires_in: int = Field(gt=0)
    """Seconds."""


def request_token(settings: TokenSettings, client: httpx2.Client) -> AccessToken:
    """Exchange the service account's token for a token for the state store.

    Raises:
        OSError: The service account's token cannot be read.
        httpx2.HTTPError: Entra does not respond, or rejects the request.
        ValidationError: The response is invalid.
    """
    response = client.post(
        f"{settings.azure_authority_host.rstrip('/')}/{settings.azure_tenant_id}/oauth2/v2.0/token",
        data={
            "client_id": settings.azure_client_id,
            "scope": STATE_STORE_SCOPE,
            "grant_type": "client_credentials",
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            "client_assertion": settings.azure_federated_token_file.read_text(encoding="ascii").strip(),
        },
    )
    return AccessToken.model_validate_json(response.raise_for_status().content)


def refresh_token_file(settings: TokenSettings, client: httpx2.Client) -> float:
    """Write a fresh token atomically, and return the seconds until the next token is due."""
    try:
        token = request_token(settings, client)
    except (OSError, httpx2.HTTPError, ValidationError) as error:
        log.warning("no token for the state store", extra={"fields": {"reason": str(error)[:200]}})
        return RETRY_DELAY_S
    target = settings.voice_state_token_file
    temporary = target.with_suffix(".new")
    temporary.write_text(token.access_token, encoding="ascii")
    temporary.replace(target)
    return token.expires_in / 2


def main() -> int:
    """Refresh the file until killed."""
    settings = environment.read_settings(TokenSettings)
    logs.set_up_logging()
    os.umask(0o027)
    with httpx2.Client(timeout=REQUEST_TIMEOUT_S) as client:
        while True:
            time.sleep(refresh_token_file(settings, client))


if __name__ == "__main__":
    sys.exit(main())
