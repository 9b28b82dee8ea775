"""Callers are distinguished by API Gateway's caller, or by a token of an actual issuer."""

import asyncio
import time
from types import SimpleNamespace

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.requests import Request

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.issuer import AUDIENCE, Issuer
from voice_blueprint.contract.session_api import CALLER_HEADER
from voice_gateway import callers
from voice_gateway.callers import ANONYMOUS_CALLER, JwtCallerIdentifier, TrustedCallerIdentifier
from voice_gateway.refusals import Refusal


def request(**headers: str) -> Request:
    found = [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": found})


async def refusal(known: callers.CallerIdentifier, **headers: str) -> tuple[int, str]:
    with pytest.raises(Refusal) as caught:
        await known.identify(request(**headers))
    return caught.value.status_code, caught.value.detail


async def test_api_gateway_identifies_the_caller() -> None:
    assert await TrustedCallerIdentifier().identify(request(**{CALLER_HEADER: "k3y1d"})) == "k3y1d"
    assert await TrustedCallerIdentifier().identify(request()) == ANONYMOUS_CALLER
    longest = "!" * 254 + "~"
    assert await TrustedCallerIdentifier().identify(request(**{CALLER_HEADER: longest})) == longest


@pytest.mark.parametrize(("options", "address"), [({}, "192.0.2.1"), ({"forwarded": True}, "198.51.100.9")])
async def test_the_header_of_a_proxy_is_only_trusted_behind_one(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, bool], address: str
) -> None:
    """A client could claim the addresses of others, and take their turns."""
    known = JwtCallerIdentifier("https://issuer.test", AUDIENCE, **options)
    verified: list[tuple[str, str]] = []

    async def verify_token(token: str, source: str) -> str:
        verified.append((token, source))
        return "anna"

    monkeypatch.setattr(known, "verify_token", verify_token)
    asked = request(authorization="bearer abc", x_forwarded_for="198.51.100.9")
    asked.scope["client"] = ("192.0.2.1", 1)
    assert await known.identify(asked) == "anna"
    assert verified == [("abc", address)]


@pytest.mark.parametrize("name", ["a b", "x" * 256])
async def test_invalid_caller_names_are_rejected(name: str) -> None:
    assert (await refusal(TrustedCallerIdentifier(), **{CALLER_HEADER: name}))[0] == 401


async def test_subject_of_a_token_is_the_caller(issuer: Issuer) -> None:
    known = JwtCallerIdentifier(issuer.url, AUDIENCE)
    for _ in range(3):
        assert await known.identify(request(authorization=f"Bearer {issuer.token()}")) == "anna"
    assert len(issuer.asked) == 2, "keys are kept"


async def test_token_for_another_audience_is_rejected(issuer: Issuer) -> None:
    known = JwtCallerIdentifier(issuer.url, AUDIENCE)
    for changes in ({"aud": "other"}, {"iss": "http://other"}, {"exp": time.time() - 60}, {"sub": None}, {"exp": None}):
        status, detail = await refusal(known, authorization=f"Bearer {issuer.token(**changes)}")
        assert (status, detail.split(":")[0]) == (401, "the caller's token is not valid")
    valid = issuer.token()
    for header in ("", "Basic abc", "Bearer", "Bearer x.y.z", f"Basic {valid}", f"Token {valid}"):
        assert (await refusal(known, authorization=header))[0] == 401


@pytest.mark.parametrize("off_s", [-25, 25])
async def test_half_a_minute_of_clock_skew_is_tolerated(issuer: Issuer, off_s: float) -> None:
    """Its token has just expired by our clock, or was issued in our future."""
    known, now = JwtCallerIdentifier(issuer.url, AUDIENCE), time.time() + off_s
    token = issuer.token(iat=now, nbf=now, exp=now + 1)
    assert await known.identify(request(authorization=f"Bearer {token}")) == "anna"
    token = issuer.token(iat=now + 10 * off_s, nbf=now + 10 * off_s, exp=now + 10 * off_s + 1)
    assert (await refusal(known, authorization=f"Bearer {token}"))[0] == 401


async def test_token_with_a_foreign_signature_is_refused(issuer: Issuer) -> None:
    known = JwtCallerIdentifier(issuer.url, AUDIENCE)
    public = issuer.jwks()["keys"][0]["n"]
    forged = [
        jwt.encode({"sub": "anna"}, rsa.generate_private_key(65537, 2048), algorithm="RS256", headers={"kid": "k1"}),
        jwt.encode({"sub": "anna"}, public, algorithm="HS256", headers={"kid": "k1"}),
        jwt.encode({"sub": "anna"}, "", algorithm="none", headers={"kid": "k1"}),
    ]
    for token in forged:
        assert (await refusal(known, authorization=f"Bearer {token}"))[0] == 401


def test_a_caller_waits_for_both_requests_to_the_issuer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration names the address of the keys, and each of the two requests has the timeout."""
    timeouts_s: list[float] = []
    monkeypatch.setattr(callers, "FairAdmissionController", lambda _, timeout_s: timeouts_s.append(timeout_s))
    JwtCallerIdentifier("https://issuer.test", AUDIENCE)
    [timeout_s] = timeouts_s
    assert 2 * callers.ISSUER_TIMEOUT_S <= timeout_s < 3 * callers.ISSUER_TIMEOUT_S


async def test_new_issuer_keys_are_fetched_and_unknown_ones_are_not_refetched(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = JwtCallerIdentifier(issuer.url, AUDIENCE)
    await known.identify(request(authorization=f"Bearer {issuer.token()}"))
    issuer.keys["k2"] = rsa.generate_private_key(65537, 2048)
    token = issuer.token("k2")
    for _ in range(10):
        assert (await refusal(known, authorization=f"Bearer {token}"))[0] == 401
    assert len(issuer.asked) == 2
    monkeypatch.setattr(callers, "MIN_RELOAD_INTERVAL_S", 0)
    known = JwtCallerIdentifier(issuer.url, AUDIENCE)
    del issuer.keys["k2"]
    await known.identify(request(authorization=f"Bearer {issuer.token()}"))
    issuer.keys["k2"] = rsa.generate_private_key(65537, 2048)
    assert await known.identify(request(authorization=f"Bearer {issuer.token('k2')}")) == "anna"


async def test_unavailable_issuer_gives_a_server_error(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "RETRY_DELAY_S", 0)
    monkeypatch.setattr(callers, "SIGNING_KEYS_TTL_S", 0)
    monkeypatch.setattr(callers, "MIN_RELOAD_INTERVAL_S", 0)
    known = JwtCallerIdentifier(issuer.url, AUDIENCE)
    issuer.is_well = False
    assert (await refusal(known, authorization=f"Bearer {issuer.token()}"))[0] == 503
    issuer.is_well = True
    assert await known.identify(request(authorization=f"Bearer {issuer.token()}")) == "anna"
    issuer.is_well = False
    assert await known.identify(request(authorization=f"Bearer {issuer.token()}")) == "anna", "known keys stay good"


async def test_an_issuer_that_is_unavailable_is_retried_after_a_pause(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(callers, "time", SimpleNamespace(monotonic=lambda: now))
    known = JwtCallerIdentifier(issuer.url, AUDIENCE)
    issuer.is_well = False
    for later_s, asked in ((0.0, 1), (0.875, 1), (0.125, 2)):
        now += later_s
        with pytest.raises(Refusal) as caught:
            await known.identify(request(authorization=f"Bearer {issuer.token()}"))
        assert (caught.value.status_code, caught.value.headers) == (503, {"Retry-After": "2"})
        assert len(issuer.asked) == asked


async def test_keys_are_refreshed_hourly_and_unknown_keys_after_30_s(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(callers, "time", SimpleNamespace(monotonic=lambda: now))
    known = JwtCallerIdentifier(issuer.url, AUDIENCE)
    issuer.keys["k2"] = rsa.generate_private_key(65537, 2048)
    unknown = request(authorization=f"Bearer {issuer.token('k2')}")
    del issuer.keys["k2"]
    steps = ((0, "k1", 2), (29, "k2", 2), (1, "k2", 4), (3599, "k1", 4), (1, "k1", 6), (3601, "k1", 8))
    for later_s, key, asked in steps:
        now += later_s
        if key == "k1":
            assert await known.identify(request(authorization=f"Bearer {issuer.token()}")) == "anna"
        else:
            with pytest.raises(Refusal, match="a key that the issuer does not have"):
                await known.identify(unknown)
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            while len(issuer.asked) < asked:
                await asyncio.sleep(0.01)
        if known._reload:
            await known._reload
        assert len(issuer.asked) == asked, later_s


async def test_an_unknown_key_delays_no_caller_with_a_known_one(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "MIN_RELOAD_INTERVAL_S", 0)
    known = JwtCallerIdentifier(issuer.url, AUDIENCE)
    await known.identify(request(authorization=f"Bearer {issuer.token()}"))
    issuer.keys["k2"] = rsa.generate_private_key(65537, 2048)
    issuer.answers.clear()
    strangers = [
        asyncio.create_task(known.identify(request(authorization=f"Bearer {issuer.token('k2')}"))) for _ in range(20)
    ]
    async with asyncio.timeout(callers.ISSUER_TIMEOUT_S / 2):
        while len(issuer.asked) < 3:
            await asyncio.sleep(0.01)
        assert await known.identify(request(authorization=f"Bearer {issuer.token()}")) == "anna"
    assert not any(each.done() for each in strangers)
    issuer.answers.set()
    assert await asyncio.gather(*strangers) == ["anna"] * 20
    assert len(issuer.asked) == 4, "one reading serves all"


async def test_unknown_keys_do_not_delay_callers(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "MIN_RELOAD_INTERVAL_S", 0)
    monkeypatch.setattr(callers, "MAX_WAITING_CALLERS", 4)
    known = JwtCallerIdentifier(issuer.url, AUDIENCE)
    await known.identify(request(authorization=f"Bearer {issuer.token()}"))
    issuer.keys["k2"], token = rsa.generate_private_key(65537, 2048), issuer.token()
    issuer.answers.clear()
    unknown = jwt.encode({"sub": "x"}, issuer.keys["k2"], algorithm="RS256", headers={"kid": "k3"})
    strangers = [asyncio.create_task(known.verify_token(unknown, "192.0.2.1")) for _ in range(40)]
    await asyncio.sleep(0)
    caller = asyncio.create_task(known.verify_token(issuer.token("k2"), "192.0.2.2"))
    async with asyncio.timeout(callers.ISSUER_TIMEOUT_S / 2):
        while sum(each.done() for each in strangers) < 37:  # the caller and three of them wait
            await asyncio.sleep(0.01)
        assert await known.verify_token(token, "192.0.2.1") == "anna"
    assert not caller.done()
    issuer.answers.set()
    assert await caller == "anna"
    refused = await asyncio.gather(*strangers, return_exceptions=True)
    assert {each.status_code for each in refused if isinstance(each, Refusal)} == {401, 503}


async def test_old_keys_are_refreshed_without_delaying_the_caller(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MIN_RELOAD_INTERVAL_S", "SIGNING_KEYS_TTL_S"):
        monkeypatch.setattr(callers, name, 0)
    known = JwtCallerIdentifier(issuer.url, AUDIENCE)
    token = issuer.token()
    await known.identify(request(authorization=f"Bearer {token}"))
    del issuer.keys["k1"]
    issuer.keys["k2"] = rsa.generate_private_key(65537, 2048)
    issuer.answers.clear()
    async with asyncio.timeout(callers.ISSUER_TIMEOUT_S / 2):
        assert await known.identify(request(authorization=f"Bearer {token}")) == "anna"
    issuer.answers.set()
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while not known._reload or not known._reload.done():
            await asyncio.sleep(0.01)
    assert (await refusal(known, authorization=f"Bearer {token}"))[0] == 401, "a key that is withdrawn opens nothing"
