"""Callers are told apart by whom API Gateway let in, or by a token of an issuer that really answers."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.requests import Request

from blueprint.contract.session_api import CALLER_HEADER
from voice_gateway import callers
from voice_gateway.callers import ANONYMOUS, JwtCallers, TrustedCallers
from voice_gateway.refusals import Refusal

AUDIENCE = "voice"


def request(**headers: str) -> Request:
    found = [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": found})


class Issuer:
    """An OpenID Connect issuer: discovery, keys, and tokens."""

    def __init__(self) -> None:
        self.keys = {"k1": rsa.generate_private_key(65537, 2048)}
        self.asked: list[str] = []
        self.is_well = True
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                found = {
                    "/.well-known/openid-configuration": {"jwks_uri": f"{issuer.url}/keys"},
                    "/keys": issuer.jwks(),
                }
                body = json.dumps(found[self.path]).encode()
                self.send_response(200 if issuer.is_well else 500)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def jwks(self) -> dict[str, Any]:
        make = jwt.algorithms.RSAAlgorithm.to_jwk
        return {
            "keys": [
                {**make(key.public_key(), as_dict=True), "kid": name, "alg": "RS256", "use": "sig"}
                for name, key in self.keys.items()
            ]
        }

    def token(self, key: str = "k1", **changes: object) -> str:
        claims = {"sub": "anna", "iss": self.url, "aud": AUDIENCE, "exp": time.time() + 60} | changes
        claims = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(claims, self.keys[key], algorithm="RS256", headers={"kid": key})

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    found = Issuer()
    yield found
    found.stop()


async def refusal(known: callers.Callers, **headers: str) -> tuple[int, str]:
    with pytest.raises(Refusal) as caught:
        await known.name(request(**headers))
    return caught.value.status_code, caught.value.detail


async def test_api_gateway_says_who_calls() -> None:
    assert await TrustedCallers().name(request(**{CALLER_HEADER: "k3y1d"})) == "k3y1d"
    assert await TrustedCallers().name(request()) == ANONYMOUS


@pytest.mark.parametrize("name", ["a b", "x" * 256])
async def test_names_that_are_none_are_refused(name: str) -> None:
    assert (await refusal(TrustedCallers(), **{CALLER_HEADER: name}))[0] == 401


async def test_subject_of_a_token_is_the_caller(issuer: Issuer) -> None:
    known = JwtCallers(issuer.url, AUDIENCE)
    for _ in range(3):
        assert await known.name(request(authorization=f"Bearer {issuer.token()}")) == "anna"
    assert len(issuer.asked) == 2, "keys are kept"


async def test_token_that_is_not_for_us_is_refused(issuer: Issuer) -> None:
    known = JwtCallers(issuer.url, AUDIENCE)
    for changes in ({"aud": "other"}, {"iss": "http://other"}, {"exp": time.time() - 60}, {"sub": None}, {"exp": None}):
        status, detail = await refusal(known, authorization=f"Bearer {issuer.token(**changes)}")
        assert (status, detail.split(":")[0]) == (401, "the caller's token is not valid")
    for header in ("", "Basic abc", "Bearer", "Bearer x.y.z"):
        assert (await refusal(known, authorization=header))[0] == 401


@pytest.mark.parametrize("off_s", [-25, 25])
async def test_an_issuer_whose_clock_is_off_by_half_a_minute_is_understood(issuer: Issuer, off_s: float) -> None:
    """Its token has just ended by our clock, or is made in what is our future."""
    known, now = JwtCallers(issuer.url, AUDIENCE), time.time() + off_s
    token = issuer.token(iat=now, nbf=now, exp=now + 1)
    assert await known.name(request(authorization=f"Bearer {token}")) == "anna"
    token = issuer.token(iat=now + 10 * off_s, nbf=now + 10 * off_s, exp=now + 10 * off_s + 1)
    assert (await refusal(known, authorization=f"Bearer {token}"))[0] == 401


async def test_token_signed_by_somebody_else_is_refused(issuer: Issuer) -> None:
    known = JwtCallers(issuer.url, AUDIENCE)
    public = issuer.jwks()["keys"][0]["n"]
    forged = [
        jwt.encode({"sub": "anna"}, rsa.generate_private_key(65537, 2048), algorithm="RS256", headers={"kid": "k1"}),
        jwt.encode({"sub": "anna"}, public, algorithm="HS256", headers={"kid": "k1"}),
        jwt.encode({"sub": "anna"}, "", algorithm="none", headers={"kid": "k1"}),
    ]
    for token in forged:
        assert (await refusal(known, authorization=f"Bearer {token}"))[0] == 401


async def test_new_key_of_the_issuer_is_found_and_unknown_ones_are_not_asked_for_again(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = JwtCallers(issuer.url, AUDIENCE)
    await known.name(request(authorization=f"Bearer {issuer.token()}"))
    issuer.keys["k2"] = rsa.generate_private_key(65537, 2048)
    token = issuer.token("k2")
    for _ in range(10):
        assert (await refusal(known, authorization=f"Bearer {token}"))[0] == 401
    assert len(issuer.asked) == 2
    monkeypatch.setattr(callers, "KEYS_PAUSE_S", 0)
    known = JwtCallers(issuer.url, AUDIENCE)
    del issuer.keys["k2"]
    await known.name(request(authorization=f"Bearer {issuer.token()}"))
    issuer.keys["k2"] = rsa.generate_private_key(65537, 2048)
    assert await known.name(request(authorization=f"Bearer {issuer.token('k2')}")) == "anna"


async def test_issuer_that_is_away_is_not_the_callers_fault(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "FAILURE_PAUSE_S", 0)
    monkeypatch.setattr(callers, "KEYS_KEPT_S", 0)
    monkeypatch.setattr(callers, "KEYS_PAUSE_S", 0)
    known = JwtCallers(issuer.url, AUDIENCE)
    issuer.is_well = False
    assert (await refusal(known, authorization=f"Bearer {issuer.token()}"))[0] == 503
    issuer.is_well = True
    assert await known.name(request(authorization=f"Bearer {issuer.token()}")) == "anna"
    issuer.is_well = False
    assert await known.name(request(authorization=f"Bearer {issuer.token()}")) == "anna", "known keys stay good"
