"""Keys of clients of other speech services: where they are sent, and what each of them opens."""

import time
from typing import Any

import pytest
from redis.asyncio import Redis
from starlette.requests import HTTPConnection

from images.gateway.tests.local_gateway import LocalGateway
from voice_gateway.bearer import (
    authenticate_by_key,
    authenticate_request,
    build_caller_headers,
    open_or_resume_session,
    select_subprotocol,
)
from voice_gateway.callers import ANONYMOUS_CALLER, JwtCallerIdentifier
from voice_gateway.refusals import Refusal
from voice_runtime.sessions import Session, SessionKind


def connection(key: str = "", *subprotocols: str, host: str | None = "192.0.2.1") -> HTTPConnection:
    headers = [(b"authorization", key.encode())] if key else []
    client = None if host is None else (host, 1)
    return HTTPConnection({"type": "websocket", "headers": headers, "client": client, "subprotocols": subprotocols})


def token(gateway: LocalGateway, session: Session) -> str:
    return gateway.tokens.create(session.id)[0]


@pytest.mark.parametrize(
    ("key", "subprotocols"),
    [
        ("Bearer {}", ()),
        ("token  {} ", ()),
        ("", ("token", "{}")),
        ("", ("Bearer", "{}", "other")),
        ("", ("realtime", "openai-insecure-api-key.{}")),
        ("Basic abc", ("openai-insecure-api-key.{}", "realtime")),
    ],
)
async def test_a_key_is_a_header_or_a_subprotocol(store: Redis, key: str, subprotocols: tuple[str, ...]) -> None:
    """Deepgram's and OpenAI's clients in browsers cannot set headers."""
    gateway = LocalGateway(store)
    session = await gateway.open_session()
    own = token(gateway, session)
    known = connection(key.format(own), *(each.format(own) for each in subprotocols))
    found, outlives_socket = await open_or_resume_session(gateway, known, {})
    assert (found.id, outlives_socket) == (session.id, True)
    assert await authenticate_request(gateway, known) == "tenant"


@pytest.mark.parametrize(
    ("offered", "selected"),
    [
        ((), None),
        (("other",), None),
        (("token", "x"), "token"),
        (("Bearer", "x"), "Bearer"),
        (("other", "realtime", "openai-insecure-api-key.x"), "realtime"),
    ],
)
def test_the_response_selects_an_offered_subprotocol(offered: tuple[str, ...], selected: str | None) -> None:
    assert select_subprotocol(connection("", *offered)) == selected


def test_a_request_without_subprotocols_has_no_key() -> None:
    assert select_subprotocol(HTTPConnection({"type": "http", "headers": []})) is None


async def test_a_subprotocol_that_announces_a_key_without_one_opens_a_session_by_address(store: Redis) -> None:
    gateway = LocalGateway(store)
    for host, caller in (("192.0.2.1", "192.0.2.1"), (None, "unknown")):
        session, outlives_socket = await open_or_resume_session(gateway, connection("", "token", host=host), {})
        assert (session.caller, outlives_socket) == (caller, False)


async def test_a_clients_settings_apply_to_a_new_and_to_an_existing_session(store: Redis) -> None:
    gateway = LocalGateway(store)
    settings = {"language": "de", "end_of_turn_ms": 0, "prompt": "Valkey", "redact": ["email", "card"]}
    opened, _ = await open_or_resume_session(gateway, connection(), settings)
    existing = await gateway.open_session()
    resumed, _ = await open_or_resume_session(gateway, connection(f"Bearer {token(gateway, existing)}"), settings)
    for ssrc in (opened.ssrc, resumed.ssrc):
        session = await gateway.read_session(ssrc)
        assert (session.language, session.end_of_turn_ms, session.prompt) == ("de", 0, "Valkey")
        assert sorted(session.redact) == ["card", "email"]
    await open_or_resume_session(gateway, connection(f"Bearer {token(gateway, existing)}"), {})
    assert (await gateway.read_session(existing.ssrc)).prompt == "Valkey", "omitted settings are unchanged"
    for invalid, detail in (({"prompt": "x" * 1001}, "prompt: "), ({"redact": ["card", "name"]}, "redact: ")):
        with pytest.raises(Refusal, match=detail) as caught:
            await open_or_resume_session(gateway, connection(), invalid)
        assert (caught.value.status_code, caught.value.error) == (400, "bad request")


async def test_a_session_that_is_over_or_sends_srtp_or_lacks_its_language_is_not_resumed(store: Redis) -> None:
    gateway = LocalGateway(store)
    external = await gateway.open_session(8, kind=SessionKind.EXTERNAL)
    expired = await gateway.open_session(9, expires_at=int(time.time()) - 1)
    valid = await gateway.open_session(7)
    gateway.set_hosts(languages=("en",))
    for session, settings, expected in (
        (external, {}, (403, "wrong transport")),
        (expired, {}, (404, "unknown session")),
        (valid, {"language": "fr"}, (400, "unsupported language")),
    ):
        with pytest.raises(Refusal) as caught:
            await open_or_resume_session(gateway, connection(f"Bearer {token(gateway, session)}"), settings)
        assert (caught.value.status_code, caught.value.error) == expected


async def test_a_session_needs_capacity_unless_its_audio_is_processed_elsewhere(store: Redis) -> None:
    gateway = LocalGateway(store)
    gateway.set_hosts(asr_slots=0)
    with pytest.raises(Refusal) as caught:
        await open_or_resume_session(gateway, connection(), {})
    assert caught.value.error == "no capacity"
    await open_or_resume_session(gateway, connection(), {}, decoded_here=False)


async def test_every_request_with_a_key_is_counted(store: Redis) -> None:
    gateway = LocalGateway(store, caller_creations_per_s=1)
    session = await gateway.open_session()
    for known in (connection(f"Bearer {token(gateway, session)}"), connection(host="192.0.2.2")):
        await authenticate_request(gateway, known)
        with pytest.raises(Refusal) as caught:
            await authenticate_request(gateway, known)
        assert caught.value.error == "too many requests"


async def test_a_sessions_token_opens_no_other_session(store: Redis) -> None:
    gateway = LocalGateway(store)
    session = await gateway.open_session()
    with pytest.raises(Refusal, match="opens no other session") as caught:
        await authenticate_by_key(gateway, connection(f"Bearer {token(gateway, session)}"))
    assert (caught.value.status_code, caught.value.error) == (403, "foreign token")


async def test_a_key_of_the_issuer_is_verified(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = LocalGateway(store, authorizer="jwt", jwt_issuer="https://issuer.test", jwt_audience="voice")
    verified: list[tuple[str, str]] = []

    async def verify_token(_: JwtCallerIdentifier, key: str, address: str) -> str:
        verified.append((key, address))
        return "anna"

    monkeypatch.setattr(JwtCallerIdentifier, "verify_token", verify_token)
    assert await authenticate_by_key(gateway, connection("Bearer abc")) == "anna"
    assert verified == [("abc", "192.0.2.1")]
    with pytest.raises(Refusal, match="a token of the issuer") as caught:
        await authenticate_by_key(gateway, connection())
    assert caught.value.status_code == 401


async def test_api_gateway_alone_authenticates_callers_by_iam(store: Redis) -> None:
    with pytest.raises(Refusal, match="the token of a session that POST opened"):
        await authenticate_by_key(LocalGateway(store, authorizer="iam"), connection("Bearer abc"))


@pytest.mark.parametrize(
    ("authorizer", "caller", "is_named"),
    [("iam", "anna", True), ("iam", ANONYMOUS_CALLER, False), ("none", "anna", False), ("jwt", "zoe", True)],
)
async def test_an_agent_receives_the_name_of_an_authenticated_caller(
    store: Redis, authorizer: str, caller: str, is_named: bool
) -> None:
    gateway = LocalGateway(store, authorizer=authorizer)
    fields: dict[str, Any] = {"caller": caller}
    found = build_caller_headers(gateway, await gateway.open_session(**fields))
    assert found == ([(b"X-Voice-Caller", caller.encode())] if is_named else [])
