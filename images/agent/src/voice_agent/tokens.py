"""Tokens of conversations: a JWT (RFC 7519) that opens one conversation again, signed with HMAC-SHA256."""

from datetime import UTC, datetime, timedelta

import jwt

ALGORITHM = "HS256"
AUDIENCE = "voice-conversation"
"""Another one than the gateway's: a session's token opens no conversation, and the other way round."""
KEY_BYTES = 32
"""Least length of the key, the size of the hash (RFC 7518, section 3.2)."""


def make(key: str, conversation: str, lifetime_s: int) -> str:
    """Sign what opens a conversation again, for a number of seconds."""
    expires = datetime.now(UTC) + timedelta(seconds=lifetime_s)
    return jwt.encode({"sub": conversation, "aud": AUDIENCE, "exp": expires}, key, algorithm=ALGORITHM)


def opens(key: str, token: str, conversation: str) -> bool:
    """Return whether a token is good for a conversation."""
    try:
        claims = jwt.decode(
            token, key, algorithms=[ALGORITHM], audience=AUDIENCE, options={"require": ["sub", "aud", "exp"]}
        )
    except jwt.InvalidTokenError:
        return False
    return bool(claims["sub"] == conversation)
