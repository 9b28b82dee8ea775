"""Creates and verifies session tokens and session ids.

A token is short-lived, and permits access to the audio and the events of one session. It is a JWT (RFC 7519), signed
with HMAC-SHA256 and the key of ``VOICE_TOKEN_KEY``.
"""

import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import jwt

SIGNATURE_ALGORITHM = "HS256"
SESSION_TOKEN_AUDIENCE = "voice-session"  # noqa: S105
MIN_KEY_BYTES = 32
"""Minimum length of the key, which is the size of the hash (RFC 7518, section 3.2)."""


SESSION_ID_PATTERN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{24}")
"""Format of the ids that ``SessionTokenManager.create_session_id`` returns."""


class TokenError(Exception):
    """An invalid token. The message contains the reason, but never the token."""


class ForeignTokenError(TokenError):
    """A valid token of another session."""


@dataclass(frozen=True)
class SessionTokenManager:
    """Creates and verifies tokens.

    Attributes:
        key: Signing key, at least 32 bytes.
        lifetime_s: Lifetime, seconds.

    Raises:
        ValueError: The key is too short.
    """

    key: str
    lifetime_s: int

    def __post_init__(self) -> None:
        size = len(self.key.encode())
        if size < MIN_KEY_BYTES:
            raise ValueError(f"the token key has {size} bytes, HMAC-SHA256 needs {MIN_KEY_BYTES}")

    def create(self, session: str, now: datetime | None = None) -> tuple[str, datetime]:
        """Create a token for a session, and return the token and its expiry."""
        issued_at = now or datetime.now(UTC)
        expires_at = issued_at + timedelta(seconds=self.lifetime_s)
        claims = {"sub": session, "aud": SESSION_TOKEN_AUDIENCE, "iat": issued_at, "exp": expires_at}
        return jwt.encode(claims, self.key, algorithm=SIGNATURE_ALGORITHM), expires_at

    def verify(self, token: str, session_id: str) -> None:
        """Verify a token for a session.

        Raises:
            TokenError: The token is forged, malformed, expired, or belongs to another session.
        """
        try:
            claims = jwt.decode(
                token,
                self.key,
                algorithms=[SIGNATURE_ALGORITHM],
                audience=SESSION_TOKEN_AUDIENCE,
                # The clock of the gateway that created the token may be ahead, so only the expiry is verified.
                options={"require": ["sub", "aud", "iat", "exp"], "verify_iat": False},
            )
        except jwt.ExpiredSignatureError:
            raise TokenError(
                "the token has expired; take the newest that the event stream brought, or open a new session"
            ) from None
        except (jwt.InvalidTokenError, RecursionError) as error:  # raised for JSON that is nested too deeply
            raise TokenError(f"the token is not valid: {type(error).__name__}") from None
        if claims["sub"] != session_id:
            raise ForeignTokenError("the token belongs to another session")

    def parse_unverified_session_id(self, token: str) -> str | None:
        """Return the session id in an unverified token, or ``None`` if it is not a session token."""
        try:
            claims = jwt.decode(token, options={"verify_signature": False})
        except (jwt.InvalidTokenError, RecursionError):
            return None
        return str(claims.get("sub", "")) if claims.get("aud") == SESSION_TOKEN_AUDIENCE else None

    def create_session_id(self, ssrc: int) -> str:
        """Return a new id for a session, from which only gateways can derive the session's SSRC."""
        nonce = secrets.token_hex(12)
        return f"{ssrc ^ self._derive_ssrc_mask(nonce):08x}-{nonce}"

    def derive_ssrc(self, session_id: str) -> int:
        """Return the SSRC of a session whose token has been verified.

        Raises:
            TokenError: The id was not created by a gateway.
        """
        if not SESSION_ID_PATTERN.fullmatch(session_id):
            raise TokenError("the token is for no session of a gateway")
        masked, _, nonce = session_id.partition("-")
        return int(masked, 16) ^ self._derive_ssrc_mask(nonce)

    def _derive_ssrc_mask(self, nonce: str) -> int:
        return int.from_bytes(hmac.digest(self.key.encode(), f"ssrc {nonce}".encode(), "sha256")[:4], "big")

    def __repr__(self) -> str:
        return f"SessionTokenManager(lifetime_s={self.lifetime_s})"
