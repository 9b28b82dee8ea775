"""Who opens sessions: the subject of a JWT, or whom API Gateway has let in."""

import asyncio
import logging
import re
import time
from typing import Any, Protocol

import httpx2
import jwt
from starlette.requests import HTTPConnection

from blueprint.contract.session_api import CALLER_HEADER
from voice_gateway.refusals import Refusal, retry_after

ANONYMOUS = "api"
"""All callers together, where nothing tells them apart."""

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
"""Those with a public key: with a shared secret, whoever verifies could also sign."""

KEYS_KEPT_S = 3600
KEYS_PAUSE_S = 30
"""A token that names an unknown key makes the keys be read again, but not more often than that."""
FAILURE_PAUSE_S = 1
"""Pause before an issuer that has not answered is asked again."""

TIMEOUT_S = 5.0
LEEWAY_S = 30
"""How far the issuer's clock may be off."""

log = logging.getLogger(__name__)
_NAME = re.compile(r"[\x21-\x7e]{1,255}")


class Callers(Protocol):
    """Tells callers apart."""

    async def name(self, request: HTTPConnection) -> str:
        """Return who sends a request.

        Raises:
            Refusal: It does not say who, or not credibly.
        """


class TrustedCallers:
    """Callers that API Gateway has let in."""

    async def name(self, request: HTTPConnection) -> str:
        """Return what API Gateway says, or one name for all where it says nothing."""
        return _checked(request.headers.get(CALLER_HEADER) or ANONYMOUS)


class JwtCallers:
    """Callers with a token of an OpenID Connect issuer.

    Attributes:
        issuer: URL that tokens name as their issuer, and that discovery starts from.
        audience: What tokens must be made for.
    """

    def __init__(self, issuer: str, audience: str) -> None:
        self.issuer = issuer
        self.audience = audience
        self._keys: dict[str, jwt.PyJWK] = {}
        self._stale_at = float("-inf")
        self._ask_from = float("-inf")
        self._lock = asyncio.Lock()

    async def name(self, request: HTTPConnection) -> str:
        """Return the subject of the request's bearer token."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise unauthorized("send a token of the issuer: `Authorization: Bearer ...`")
        return await self.subject(token)

    async def subject(self, token: str) -> str:
        """Return whom a token of the issuer names.

        Raises:
            Refusal: It is not valid, or the issuer does not answer.
        """
        try:
            key = await self._key(str(jwt.get_unverified_header(token).get("kid", "")))
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=self.audience,
                issuer=self.issuer,
                leeway=LEEWAY_S,
                options={"require": ["sub", "aud", "iss", "exp"]},
            )
        except jwt.InvalidTokenError as error:
            raise unauthorized(f"the caller's token is not valid: {type(error).__name__}") from None
        return _checked(claims["sub"])

    async def _key(self, key_id: str) -> jwt.PyJWK:
        async with self._lock:
            now = time.monotonic()
            if now >= self._ask_from and (key_id not in self._keys or now >= self._stale_at):
                await self._ask()
        if not self._keys:
            raise Refusal(
                503, "issuer away", "the issuer of callers' tokens does not answer; try again", retry_after(2)
            )
        if key_id not in self._keys:
            raise unauthorized("the caller's token is signed with a key that the issuer does not have")
        return self._keys[key_id]

    async def _ask(self) -> None:
        """Read the issuer's keys; without an answer, those that are known stay good."""
        try:
            async with httpx2.AsyncClient(timeout=TIMEOUT_S) as client:
                about = await _json(client, f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
                keys = jwt.PyJWKSet.from_dict(await _json(client, str(about["jwks_uri"]))).keys
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError, jwt.PyJWTError) as error:
            log.warning("the issuer's keys cannot be read", extra={"fields": {"reason": type(error).__name__}})
            self._ask_from = time.monotonic() + FAILURE_PAUSE_S
            return
        now = time.monotonic()
        self._ask_from, self._stale_at = now + KEYS_PAUSE_S, now + KEYS_KEPT_S
        self._keys = {str(key.key_id or ""): key for key in keys}


async def _json(client: httpx2.AsyncClient, url: str) -> dict[str, Any]:
    response = await client.get(url)
    response.raise_for_status()
    found: dict[str, Any] = response.json()
    return found


def unauthorized(detail: str) -> Refusal:
    return Refusal(401, "unauthorized", detail, {"WWW-Authenticate": "Bearer"})


def _checked(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise unauthorized("the caller's name has to be 1 to 255 visible ASCII characters")
    return name
