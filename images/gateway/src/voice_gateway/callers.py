"""Identifies callers by the subject of a JWT, or by the name that API Gateway has authenticated."""

import asyncio
import logging
import re
import time
from typing import Any, Protocol

import httpx2
import jwt
from starlette.requests import HTTPConnection

from voice_blueprint.contract.session_api import CALLER_HEADER
from voice_gateway.refusals import Refusal, build_retry_after_header
from voice_runtime.fair_admission import FairAdmissionController
from voice_runtime.http import get_client_address

ANONYMOUS_CALLER = "api"
"""Shared name of all callers, if they cannot be distinguished."""

SIGNATURE_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
"""Algorithms with a public key. With a shared secret, the verifier could also sign tokens."""

SIGNING_KEYS_TTL_S = 3600
MIN_RELOAD_INTERVAL_S = 30
"""Minimum interval between reloads of the keys. A token with an unknown key triggers a reload."""
RETRY_DELAY_S = 1
"""Pause before the next request to an issuer that has not responded."""

ISSUER_TIMEOUT_S = 5.0
MAX_WAITING_CALLERS = 256
"""Maximum number of callers that wait for the issuer because their key is unknown. Above this number, the oldest
waiting caller of the address with the most waiting callers is refused."""
MAX_CLOCK_SKEW_S = 30
"""Permitted deviation of the issuer's clock."""

log = logging.getLogger(__name__)
_CALLER_NAME_PATTERN = re.compile(r"[\x21-\x7e]{1,255}")


class CallerIdentifier(Protocol):
    """Identifies callers."""

    async def identify(self, request: HTTPConnection) -> str:
        """Return the name of a request's caller.

        Raises:
            Refusal: The caller is not identified, or cannot be authenticated.
        """


class TrustedCallerIdentifier:
    """Callers that API Gateway has authenticated."""

    async def identify(self, request: HTTPConnection) -> str:
        """Return the name that API Gateway reports, or the shared name if it reports none."""
        return _validate_caller_name(request.headers.get(CALLER_HEADER) or ANONYMOUS_CALLER)


class JwtCallerIdentifier:
    """Callers with a token from an OpenID Connect issuer.

    Args:
        forwarded: Whether a proxy in front of the gateway appends to X-Forwarded-For.

    Attributes:
        issuer: Issuer URL in tokens, and base of discovery.
        audience: Required audience of tokens.
    """

    def __init__(self, issuer: str, audience: str, *, forwarded: bool = False) -> None:
        self.issuer = issuer
        self.audience = audience
        self._forwarded = forwarded
        self._keys: dict[str, jwt.PyJWK] = {}
        self._stale_at = float("-inf")
        self._next_reload_at = float("-inf")
        self._reload: asyncio.Task[None] | None = None
        self._waiting = FairAdmissionController(MAX_WAITING_CALLERS, 2 * ISSUER_TIMEOUT_S)

    async def identify(self, request: HTTPConnection) -> str:
        """Return the subject of the request's bearer token."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise build_unauthorized_refusal("send a token of the issuer: `Authorization: Bearer ...`")
        return await self.verify_token(token, get_client_address(request, forwarded=self._forwarded))

    async def verify_token(self, token: str, address: str) -> str:
        """Verify a token from the issuer, and return its subject.

        Args:
            token: The client's token.
            address: The client's address.

        Raises:
            Refusal: The token is invalid, or the issuer does not respond.
        """
        try:
            key = await self._get_signing_key(str(jwt.get_unverified_header(token).get("kid", "")), address)
            claims = jwt.decode(
                token,
                key,
                algorithms=SIGNATURE_ALGORITHMS,
                audience=self.audience,
                issuer=self.issuer,
                leeway=MAX_CLOCK_SKEW_S,
                options={"require": ["sub", "aud", "iss", "exp"]},
            )
        except (jwt.InvalidTokenError, RecursionError) as error:  # raised for JSON that is nested too deeply
            raise build_unauthorized_refusal(f"the caller's token is not valid: {type(error).__name__}") from None
        return _validate_caller_name(claims["sub"])

    async def _get_signing_key(self, key_id: str, address: str) -> jwt.PyJWK:
        """Return a key from the issuer. A known key is returned immediately, even while the keys are reloaded."""
        now = time.monotonic()
        needs_reload = now >= self._next_reload_at and (key_id not in self._keys or now >= self._stale_at)
        if needs_reload and (self._reload is None or self._reload.done()):
            self._reload = asyncio.create_task(self._reload_keys())
        if key_id not in self._keys and self._reload:
            try:
                async with self._waiting.admit(address):
                    # Shielded, since other callers wait for the same response.
                    await asyncio.shield(self._reload)
            except TimeoutError:
                raise _build_issuer_unavailable_refusal() from None
        if not self._keys:
            raise _build_issuer_unavailable_refusal()
        if key_id not in self._keys:
            raise build_unauthorized_refusal("the caller's token is signed with a key that the issuer does not have")
        return self._keys[key_id]

    async def _reload_keys(self) -> None:
        """Load the issuer's keys. If the issuer does not respond, the known keys remain valid."""
        try:
            async with httpx2.AsyncClient(timeout=ISSUER_TIMEOUT_S) as client:
                configuration = await _get_json(client, f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
                keys = jwt.PyJWKSet.from_dict(await _get_json(client, str(configuration["jwks_uri"]))).keys
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError, jwt.PyJWTError) as error:
            log.warning("the issuer's keys cannot be read", extra={"fields": {"reason": type(error).__name__}})
            self._next_reload_at = time.monotonic() + RETRY_DELAY_S
            return
        now = time.monotonic()
        self._next_reload_at, self._stale_at = now + MIN_RELOAD_INTERVAL_S, now + SIGNING_KEYS_TTL_S
        self._keys = {str(key.key_id or ""): key for key in keys}


async def _get_json(client: httpx2.AsyncClient, url: str) -> dict[str, Any]:
    response = await client.get(url)
    response.raise_for_status()
    document: dict[str, Any] = response.json()
    return document


def _build_issuer_unavailable_refusal() -> Refusal:
    return Refusal(
        503, "issuer away", "the issuer of callers' tokens does not answer; try again", build_retry_after_header(2)
    )


def build_unauthorized_refusal(detail: str) -> Refusal:
    return Refusal(401, "unauthorized", detail, {"WWW-Authenticate": "Bearer"})


def _validate_caller_name(name: object) -> str:
    if not isinstance(name, str) or not _CALLER_NAME_PATTERN.fullmatch(name):
        raise build_unauthorized_refusal("the caller's name has to be 1 to 255 visible ASCII characters")
    return name
