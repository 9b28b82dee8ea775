"""Session tokens: signed, bound to one session, short-lived; and the names of sessions.

A token opens the audio and the events of the session that it was made for. It is a JWT (RFC 7519), signed with
HMAC-SHA256 and the key of ``VOICE_TOKEN_KEY``.
"""

import hmac
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import jwt

ALGORITHM = "HS256"
AUDIENCE = "voice-session"
KEY_BYTES = 32
"""Least length of the key, the size of the hash (RFC 7518, section 3.2)."""


class TokenError(Exception):
    """A token that opens nothing; the message says why, and never holds the token."""


class ForeignTokenError(TokenError):
    """A token that is good, for another session."""


@dataclass(frozen=True)
class SessionTokens:
    """Makes and reads tokens.

    Attributes:
        key: Signing key, at least 32 bytes.
        lifetime_s: Seconds from making to expiry.

    Raises:
        ValueError: The key is too short.
    """

    key: str
    lifetime_s: int

    def __post_init__(self) -> None:
        size = len(self.key.encode())
        if size < KEY_BYTES:
            raise ValueError(f"the token key has {size} bytes, HMAC-SHA256 needs {KEY_BYTES}")

    def make(self, session: str, now: datetime | None = None) -> tuple[str, datetime]:
        """Return a token for one session, and when it expires."""
        made = now or datetime.now(UTC)
        expires = made + timedelta(seconds=self.lifetime_s)
        claims = {"sub": session, "aud": AUDIENCE, "iat": made, "exp": expires}
        return jwt.encode(claims, self.key, algorithm=ALGORITHM), expires

    def check(self, token: str, session: str) -> None:
        """Accept a token for a session.

        Raises:
            TokenError: It is forged, malformed, expired, or made for another session.
        """
        try:
            claims = jwt.decode(
                token,
                self.key,
                algorithms=[ALGORITHM],
                audience=AUDIENCE,
                # Another gateway made it, whose clock may be ahead: when it ends counts, and not when it began.
                options={"require": ["sub", "aud", "iat", "exp"], "verify_iat": False},
            )
        except jwt.ExpiredSignatureError:
            raise TokenError(
                "the token has expired; take the newest that the event stream brought, or open a new session"
            ) from None
        except jwt.InvalidTokenError as error:
            raise TokenError(f"the token is not valid: {type(error).__name__}") from None
        if claims["sub"] != session:
            raise ForeignTokenError("the token belongs to another session")

    def session_in(self, token: str) -> str | None:
        """Return the session that a token says it is for, unchecked; ``None`` where it is none of ours."""
        try:
            claims = jwt.decode(token, options={"verify_signature": False})
        except jwt.InvalidTokenError:
            return None
        return str(claims.get("sub", "")) if claims.get("aud") == AUDIENCE else None

    def name(self, ssrc: int) -> str:
        """Return a new name for a session, which shows its SSRC to gateways alone."""
        chance = secrets.token_hex(12)
        return f"{ssrc ^ self._mask(chance):08x}-{chance}"

    def ssrc_of(self, session: str) -> int:
        """Return the SSRC of a session whose token has been checked."""
        masked, _, chance = session.partition("-")
        return int(masked, 16) ^ self._mask(chance)

    def _mask(self, chance: str) -> int:
        return int.from_bytes(hmac.digest(self.key.encode(), f"ssrc {chance}".encode(), "sha256")[:4], "big")

    def __repr__(self) -> str:
        return f"SessionTokens(lifetime_s={self.lifetime_s})"
