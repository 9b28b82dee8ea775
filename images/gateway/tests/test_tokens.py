"""Tokens are valid for one session, for a limited time, with the key."""

import hmac
from datetime import UTC, datetime, timedelta

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_gateway.tokens import SESSION_TOKEN_AUDIENCE, SIGNATURE_ALGORITHM, SessionTokenManager, TokenError

KEY = "0123456789abcdef0123456789abcdef"
TOKENS = SessionTokenManager(KEY, lifetime_s=300)


def test_a_token_opens_its_session() -> None:
    token, expires = TOKENS.create("s-1")
    TOKENS.verify(token, "s-1")
    assert timedelta(seconds=295) < expires - datetime.now(UTC) <= timedelta(seconds=300)


def test_a_token_expires_at_its_expiry_time() -> None:
    now = datetime.now(UTC)
    TOKENS.verify(TOKENS.create("s-1", now - timedelta(seconds=295))[0], "s-1")
    with pytest.raises(TokenError, match="expired"):
        TOKENS.verify(TOKENS.create("s-1", now - timedelta(seconds=301))[0], "s-1")


@pytest.mark.parametrize("ahead_s", [-60, 1, 60])
def test_a_token_of_a_gateway_with_a_wrong_clock_is_valid(ahead_s: int) -> None:
    """Another gateway may be used next, and a token may appear to be issued in the future if its clock is behind."""
    token, _ = TOKENS.create("s-1", datetime.now(UTC) + timedelta(seconds=ahead_s))
    TOKENS.verify(token, "s-1")


def test_a_token_is_invalid_for_other_sessions() -> None:
    for own, other in (("s-1", "s-2"), ("s-2", "s-1")):
        with pytest.raises(TokenError, match="another session"):
            TOKENS.verify(TOKENS.create(own)[0], other)


def test_a_token_signed_with_another_key_is_rejected() -> None:
    forged, _ = SessionTokenManager(KEY[::-1], lifetime_s=300).create("s-1")
    with pytest.raises(TokenError, match="InvalidSignatureError"):
        TOKENS.verify(forged, "s-1")


@pytest.mark.parametrize("missing", ["sub", "aud", "exp", "iat"])
def test_a_token_without_one_of_its_claims_is_refused(missing: str) -> None:
    now = datetime.now(UTC)
    claims = {"sub": "s-1", "aud": SESSION_TOKEN_AUDIENCE, "iat": now, "exp": now + timedelta(seconds=60)}
    del claims[missing]
    with pytest.raises(TokenError, match="MissingRequiredClaimError"):
        TOKENS.verify(jwt.encode(claims, KEY, algorithm=SIGNATURE_ALGORITHM), "s-1")


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "é" * 10, "." * 4096])
def test_malformed_tokens_are_rejected(token: str) -> None:
    with pytest.raises(TokenError, match="not valid"):
        TOKENS.verify(token, "s-1")


def test_an_unsigned_token_is_refused() -> None:
    now = datetime.now(UTC)
    claims = {"sub": "s-1", "aud": SESSION_TOKEN_AUDIENCE, "iat": now, "exp": now + timedelta(seconds=60)}
    with pytest.raises(TokenError, match="not valid"):
        TOKENS.verify(jwt.encode(claims, None, algorithm="none"), "s-1")  # type: ignore[arg-type]


def test_a_key_has_32_bytes() -> None:
    SessionTokenManager("k" * 32, lifetime_s=300)
    with pytest.raises(ValueError, match="31 bytes"):
        SessionTokenManager("k" * 31, lifetime_s=300)


@given(st.integers(0, 2**32 - 1))
def test_a_name_leads_to_its_session_with_the_key_alone(ssrc: int) -> None:
    name = TOKENS.create_session_id(ssrc)
    assert TOKENS.derive_ssrc(name) == ssrc
    assert SessionTokenManager(KEY[::-1], lifetime_s=300).derive_ssrc(name) != ssrc
    assert TOKENS.create_session_id(ssrc) != name
    with pytest.raises(TokenError, match="no session of a gateway"):
        TOKENS.derive_ssrc(name[:-1])


def test_a_name_keeps_its_meaning_during_an_update_of_the_gateways() -> None:
    """The other gateways of a deployment have created it: 32 bits of a hash, and the number that the hash is of."""
    nonce = "0123456789abcdef01234567"
    mask = int.from_bytes(hmac.digest(KEY.encode(), f"ssrc {nonce}".encode(), "sha256")[:4])
    assert TOKENS.derive_ssrc(f"{mask ^ 0xFEDCBA98:08x}-{nonce}") == 0xFEDCBA98


def test_a_session_is_named_by_tokens_of_gateways_alone() -> None:
    assert TOKENS.parse_unverified_session_id(TOKENS.create("s-1")[0]) == "s-1"
    for audience in ("other", "z"):
        foreign = jwt.encode({"sub": "s-1", "aud": audience}, KEY, algorithm=SIGNATURE_ALGORITHM)
        assert TOKENS.parse_unverified_session_id(foreign) is None
    assert TOKENS.parse_unverified_session_id("x") is None


def test_short_keys_are_rejected_and_keys_are_not_printed() -> None:
    with pytest.raises(ValueError, match="5 bytes") as refused:
        SessionTokenManager("short", lifetime_s=300)
    assert "short" not in str(refused.value)
    assert KEY not in repr(TOKENS)
