"""Creates and verifies tokens for resuming conversations.

A token is a JWT (RFC 7519), signed with HMAC-SHA256.
"""

from datetime import UTC, datetime, timedelta

import jwt

SIGNATURE_ALGORITHM = "HS256"
CONVERSATION_AUDIENCE = "voice-conversation"
"""Audience of the tokens. It differs from the gateway's audience, so that a session's token is not valid for a
conversation, and vice versa."""
MIN_KEY_BYTES = 32
"""Minimum length of the key, which is the size of the hash (RFC 7518, section 3.2)."""
CALLER_CLAIM = "caller"


def create_token(key: str, conversation: str, lifetime_s: int, caller: str = "") -> str:
    """Return a signed token for resuming a conversation, which is valid for ``lifetime_s`` seconds.

    Args:
        caller: The gateway's name for the owner; empty if callers are not distinguished.
    """
    expires = datetime.now(UTC) + timedelta(seconds=lifetime_s)
    claims = {"sub": conversation, "aud": CONVERSATION_AUDIENCE, "exp": expires, CALLER_CLAIM: caller}
    return jwt.encode(claims, key, algorithm=SIGNATURE_ALGORITHM)


def verify_conversation_token(key: str, token: str, conversation: str) -> str | None:
    """Verify the token of a conversation, and return its caller, or ``None`` if the token is invalid."""
    try:
        claims = jwt.decode(
            token,
            key,
            algorithms=[SIGNATURE_ALGORITHM],
            audience=CONVERSATION_AUDIENCE,
            options={"require": ["sub", "aud", "exp", CALLER_CLAIM]},
        )
    except (jwt.InvalidTokenError, RecursionError):  # the header is parsed before its signature is verified
        return None
    return str(claims[CALLER_CLAIM]) if claims["sub"] == conversation else None
