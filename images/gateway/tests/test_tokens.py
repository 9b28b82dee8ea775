"""Tokens open one session, for a while, for who holds the key."""

from datetime import UTC, datetime, timedelta

import jwt
import pytest

from voice_gateway.tokens import ALGORITHM, AUDIENCE, SessionTokens, TokenError

KEY = "0123456789abcdef0123456789abcdef"
TOKENS = SessionTokens(KEY, lifetime_s=300)


def test_a_token_opens_its_session() -> None:
    token, expires = TOKENS.make("s-1")
    TOKENS.check(token, "s-1")
    assert timedelta(seconds=295) < expires - datetime.now(UTC) <= timedelta(seconds=300)


def test_a_token_expires_when_it_says() -> None:
    now = datetime.now(UTC)
    TOKENS.check(TOKENS.make("s-1", now - timedelta(seconds=295))[0], "s-1")
    with pytest.raises(TokenError, match="expired"):
        TOKENS.check(TOKENS.make("s-1", now - timedelta(seconds=301))[0], "s-1")


@pytest.mark.parametrize("ahead_s", [-60, 1, 60])
def test_a_token_of_a_gateway_whose_clock_is_off_opens_its_session(ahead_s: int) -> None:
    """Any gateway may be asked next: one whose clock is behind reads a token that it says is not made yet."""
    token, _ = TOKENS.make("s-1", datetime.now(UTC) + timedelta(seconds=ahead_s))
    TOKENS.check(token, "s-1")


def test_a_token_opens_no_other_session() -> None:
    with pytest.raises(TokenError, match="another session"):
        TOKENS.check(TOKENS.make("s-1")[0], "s-2")


def test_a_token_of_another_key_is_refused() -> None:
    forged, _ = SessionTokens(KEY[::-1], lifetime_s=300).make("s-1")
    with pytest.raises(TokenError, match="InvalidSignatureError"):
        TOKENS.check(forged, "s-1")


@pytest.mark.parametrize("missing", ["sub", "aud", "exp", "iat"])
def test_a_token_without_one_of_its_claims_is_refused(missing: str) -> None:
    now = datetime.now(UTC)
    claims = {"sub": "s-1", "aud": AUDIENCE, "iat": now, "exp": now + timedelta(seconds=60)}
    del claims[missing]
    with pytest.raises(TokenError, match="MissingRequiredClaimError"):
        TOKENS.check(jwt.encode(claims, KEY, algorithm=ALGORITHM), "s-1")


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "é" * 10, "." * 4096])
def test_rubbish_is_refused(token: str) -> None:
    with pytest.raises(TokenError, match="not valid"):
        TOKENS.check(token, "s-1")


def test_an_unsigned_token_is_refused() -> None:
    now = datetime.now(UTC)
    claims = {"sub": "s-1", "aud": AUDIENCE, "iat": now, "exp": now + timedelta(seconds=60)}
    with pytest.raises(TokenError, match="not valid"):
        TOKENS.check(jwt.encode(claims, None, algorithm="none"), "s-1")  # type: ignore[arg-type]


def test_a_short_key_is_refused_and_no_key_is_ever_shown() -> None:
    with pytest.raises(ValueError, match="5 bytes") as refused:
        SessionTokens("short", lifetime_s=300)
    assert "short" not in str(refused.value)
    assert KEY not in repr(TOKENS)
