"""Opening a session: the request's limits and defaults, the record that is written, and each reason for a refusal."""

import asyncio
import base64
import json
import secrets
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from redis.asyncio import Redis
from starlette.requests import Request

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.local_gateway import LocalGateway
from voice_blueprint.contract.session_api import SESSIONS_PATH, TOKEN_HEADER
from voice_gateway import session_routes
from voice_gateway.apps import create_session_api
from voice_gateway.refusals import Refusal
from voice_gateway.session_routes import SessionRequest, check_rate_limit, open_session, read_body
from voice_runtime import state
from voice_runtime.sessions import Session, SessionKind

WEBSOCKET = SessionRequest(transport="websocket")
SRTP = SessionRequest(transport="srtp")


async def post(gateway: LocalGateway, body: dict[str, Any], query: str = "") -> httpx2.Response:
    transport = httpx2.ASGITransport(create_session_api(gateway), client=("127.0.0.1", 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://gateway") as client:
        return await client.post(f"{SESSIONS_PATH}{query}", json=body)


async def read_opened(gateway: LocalGateway, body: dict[str, Any]) -> tuple[dict[str, Any], Session]:
    answer = await post(gateway, body)
    assert answer.status_code == 201, answer.text
    return answer.json(), await gateway.read_session(gateway.tokens.derive_ssrc(answer.json()["id"]))


async def refusal(gateway: LocalGateway, body: dict[str, Any]) -> tuple[int, str]:
    answer = await post(gateway, body)
    return answer.status_code, answer.json()["error"]


def uploaded(*chunks: bytes, length: int | None = None) -> tuple[Request, list[bytes]]:
    """Return a request with a body in chunks, and the chunks that are not yet read."""
    left = list(chunks)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    headers = [] if length is None else [(b"content-length", str(length).encode())]
    return Request({"type": "http", "headers": headers}, receive), left


async def test_a_body_may_have_4096_bytes() -> None:
    """The documented maximum, with and without a declared length."""
    for length in (None, 4096):
        request, _ = uploaded(bytes(4095), b"x", length=length)
        assert await read_body(request) == bytes(4095) + b"x"
    request, left = uploaded(bytes(4096), b"x", bytes(10))
    with pytest.raises(Refusal, match="at most 4096 bytes") as caught:
        await read_body(request)
    assert (caught.value.status_code, caught.value.headers) == (413, {"Connection": "close"})
    assert left == [bytes(10)], "the rest is not read"
    request, left = uploaded(b"x", length=4097)
    with pytest.raises(Refusal, match="at most 4096 bytes"):
        await read_body(request)
    assert left == [b"x"], "nothing is read"


async def test_a_body_that_arrives_too_slowly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_routes, "BODY_TIMEOUT_S", 0.01)

    async def stream() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(BUSY_TIMEOUT_S)

    request: Any = SimpleNamespace(headers={}, stream=stream)
    with pytest.raises(Refusal, match="did not come") as caught:
        await read_body(request)
    assert (caught.value.status_code, caught.value.headers) == (408, {"Connection": "close"})


@pytest.mark.parametrize(
    ("body", "is_valid"),
    [
        ({"end_of_turn_ms": 0}, True),
        ({"end_of_turn_ms": -1}, False),
        ({"end_of_turn_ms": 5000}, True),
        ({"end_of_turn_ms": 5001}, False),
        ({"end_of_turn_ms": "600"}, False),
        ({"prompt": "x" * 1000}, True),
        ({"prompt": "x" * 1001}, False),
        ({"call": "x" * 128}, True),
        ({"call": "x" * 129}, False),
        ({"language": "en-" + "-".join(["abcdefgh"] * 3) + "-abcde"}, True),  # RFC 5646, section 4.4.1: 35 characters
        ({"language": "en-" + "-".join(["abcdefgh"] * 3) + "-abcdef"}, False),
        ({"archive": "true"}, False),
        ({"media": {"rate": "8000"}}, False),
        ({"media": {"volume": 1}}, False),
        ({"volume": 1}, False),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_fields_have_the_types_and_limits_of_the_api(store: Redis, body: dict[str, Any], is_valid: bool) -> None:
    gateway = LocalGateway(store)
    if is_valid:
        await read_opened(gateway, {"transport": "srtp"} | body)
    else:
        assert await refusal(gateway, {"transport": "srtp"} | body) == (400, "bad request")


@pytest.mark.parametrize(
    ("media", "expected"),
    [
        (None, "96 L16/16000/1 20"),
        ({}, "96 L16/16000/1 20"),
        ({"codec": "PCMU"}, "0 PCMU/8000/1 20"),
        ({"codec": "PCMA", "packet_ms": 30}, "8 PCMA/8000/1 30"),
        ({"codec": "opus"}, "111 opus/48000/2 20"),
        (
            {"rate": 8000, "channels": 2, "payload_type": 97, "telephone_events": [100, 102], "packet_ms": 10},
            "97 L16/8000/2 10 100,102",
        ),
    ],
)
async def test_omitted_media_fields_have_the_defaults_of_the_codec(
    store: Redis, media: dict[str, Any] | None, expected: str
) -> None:
    """The static payload types and rates are those of RFC 3551, section 6; those of Opus, of RFC 7587."""
    found, session = await read_opened(
        LocalGateway(store), {"transport": "srtp"} | ({} if media is None else {"media": media})
    )
    assert str(session.media) == expected
    srtp = found["media"]["srtp"]
    assert (srtp["payload_type"], srtp["rate"]) == (session.media.payload_type, session.media.rate)


async def test_a_session_has_the_settings_of_the_request(store: Redis) -> None:
    gateway = LocalGateway(store, archive_url="s3://archive")
    asked = {"end_of_turn_ms": 0, "prompt": "Valkey", "redact": ["card", "email"], "archive": True, "language": "de-CH"}
    earliest = int(time.time())
    _, session = await read_opened(gateway, {"transport": "websocket", **asked})
    assert (session.end_of_turn_ms, session.prompt, session.language) == (0, "Valkey", "de-CH")
    assert sorted(session.redact) == ["card", "email"]
    assert earliest <= session.archived_from <= time.time()
    assert earliest + 3600 <= session.expires_at <= time.time() + 3600
    _, session = await read_opened(gateway, {"transport": "websocket"})
    assert (session.end_of_turn_ms, session.prompt, session.language) == (600, "", None)
    assert (session.archived_from, session.redact, session.kind) == (0, frozenset(), SessionKind.GATEWAY)


async def test_only_an_srtp_session_has_a_key_and_a_slot_when_it_is_opened(store: Redis) -> None:
    gateway = LocalGateway(store, rtp_host="rtp.test")
    found, session = await read_opened(gateway, {"transport": "srtp"})
    srtp = found["media"]["srtp"]
    assert (srtp["host"], srtp["port"], srtp["suite"]) == ("rtp.test", 5004, "AES_CM_128_HMAC_SHA1_80")
    assert len(base64.b64decode(srtp["key"])) == 30
    assert (srtp["codec"], srtp["channels"], list(found["media"])) == ("L16", 1, ["srtp"])
    assert session.kind is SessionKind.EXTERNAL
    assert await store.zrange(state.SLOT_RESERVATIONS_KEY, 0, -1, withscores=True) == [
        (str(session.ssrc).encode(), session.expires_at)
    ]
    found, session = await read_opened(gateway, {"transport": "websocket"})
    assert found["media"] == {"websocket": f"wss://audio.test/v1/sessions/{session.id}/audio"}
    assert await gateway.sessions.read_srtp_key(session.ssrc) is None
    assert await store.zcard(state.SLOT_RESERVATIONS_KEY) == 1


async def test_an_ssrc_has_32_bits(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 3550, section 5.1."""
    greatest = SimpleNamespace(token_bytes=secrets.token_bytes, randbits=lambda bits: 2**bits - 1)
    monkeypatch.setattr(session_routes, "secrets", greatest)
    assert (await open_session(LocalGateway(store), "tenant", WEBSOCKET)).ssrc == 0xFFFFFFFF


@pytest.mark.parametrize(("taken", "is_opened"), [(7, True), (8, False)])
async def test_another_ssrc_is_used_if_seven_are_taken(
    store: Redis, monkeypatch: pytest.MonkeyPatch, taken: int, is_opened: bool
) -> None:
    gateway, answers = LocalGateway(store), iter([False] * taken)
    create = gateway.sessions.create

    async def refuse_first(session: Session, *, max_sessions: int) -> bool:
        return next(answers, True) and await create(session, max_sessions=max_sessions)

    monkeypatch.setattr(gateway.sessions, "create", refuse_first)
    if is_opened:
        await open_session(gateway, "tenant", WEBSOCKET)
    else:
        with pytest.raises(Refusal, match="no free synchronization source") as caught:
            await open_session(gateway, "tenant", WEBSOCKET)
        assert caught.value.status_code == 503


async def test_a_caller_may_open_its_number_of_sessions(store: Redis) -> None:
    gateway = LocalGateway(store, caller_sessions=2)
    for _ in range(2):
        await open_session(gateway, "tenant", WEBSOCKET)
    assert gateway.read_metrics() == {"SessionsCreated": 2}
    with pytest.raises(Refusal, match="2 sessions are open") as caught:
        await open_session(gateway, "tenant", WEBSOCKET)
    assert (caught.value.status_code, caught.value.headers) == (429, {"Retry-After": "5"})
    await open_session(gateway, "other", WEBSOCKET)


async def test_requests_are_counted_for_one_second(store: Redis) -> None:
    """A caller that never stops asking is still served in each second."""
    gateway, key = LocalGateway(store, caller_creations_per_s=2), state.build_caller_creations_key("tenant")
    await check_rate_limit(gateway, "tenant")
    assert 0 < await store.pttl(key) <= 1000
    await store.pexpire(key, 60_000)
    await check_rate_limit(gateway, "tenant")
    assert await store.pttl(key) > 1000, "a later request does not prolong the second"
    with pytest.raises(Refusal, match="may open 2 sessions a second") as caught:
        await check_rate_limit(gateway, "tenant")
    assert (caught.value.status_code, caught.value.headers) == (429, {"Retry-After": "1"})
    await check_rate_limit(gateway, "other")
    gateway.draining.set()
    with pytest.raises(Refusal) as caught:
        await check_rate_limit(gateway, "other")
    assert caught.value.error == "draining"


async def test_a_language_that_an_engine_lacks_is_refused(store: Redis) -> None:
    gateway = LocalGateway(store)
    await open_session(gateway, "tenant", SessionRequest(transport="websocket", language="xx"))
    gateway.set_hosts(languages=("en", "de"))
    for language in ("de-CH", None):
        await open_session(gateway, "tenant", SessionRequest(transport="websocket", language=language))
    with pytest.raises(Refusal, match="language 'fr' is understood by no engine here; they have de, en;") as caught:
        await open_session(gateway, "tenant", SessionRequest(transport="websocket", language="fr"))
    assert (caught.value.status_code, caught.value.error) == (400, "unsupported language")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"transport": "websocket", "suite": "AEAD_AES_128_GCM"}, "unsupported suite"),
        ({"transport": "websocket", "media": {}}, "unsupported media"),
        ({"transport": "srtp", "media": {"codec": "PCMU", "rate": 16_000}}, "unsupported media"),
        ({"transport": "srtp", "archive": True}, "no archive"),
    ],
)
async def test_settings_without_support_are_refused(store: Redis, body: dict[str, Any], error: str) -> None:
    assert await refusal(LocalGateway(store), body) == (400, error)


async def test_a_session_is_refused_without_a_host_for_it(store: Redis) -> None:
    gateway = LocalGateway(store, other_regions="https://other.test")
    gateway.set_hosts(asr_slots=0)
    for request in (WEBSOCKET, SRTP):
        with pytest.raises(Refusal, match=r"every ASR host .* or at https://other\.test") as caught:
            await open_session(gateway, "tenant", request)
        assert caught.value.error == "no capacity"
        assert gateway.read_metrics() == {"SessionsRefused": 1}
    await open_session(gateway, "tenant", WEBSOCKET, decoded_here=False)
    gateway.set_hosts(vad_slots=0)
    with pytest.raises(Refusal, match="every VAD host"):
        await open_session(gateway, "tenant", WEBSOCKET)
    await open_session(gateway, "tenant", SRTP)


async def test_an_srtp_session_without_a_free_slot_is_closed_again(store: Redis) -> None:
    """Its slot is reserved at once, since its audio does not pass through the gateway."""
    gateway = LocalGateway(store)
    gateway.set_hosts(asr_slots=1)
    await open_session(gateway, "tenant", SRTP)
    with pytest.raises(Refusal, match="every ASR host has as many sessions as it takes"):
        await open_session(gateway, "tenant", SRTP)
    assert gateway.read_metrics() == {"SessionsCreated": 1, "SessionsRefused": 1}
    assert await store.zcard(state.build_caller_sessions_key("tenant")) == 1


async def test_a_closed_session_releases_its_slot_and_is_reported(
    store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = LocalGateway(store)
    found, session = await read_opened(gateway, {"transport": "srtp"})
    reported: list[tuple[str, float]] = []
    monkeypatch.setattr(gateway.usage, "schedule_report", lambda each, wait_s: reported.append((each.id, wait_s)))
    transport = httpx2.ASGITransport(create_session_api(gateway))
    async with httpx2.AsyncClient(transport=transport, base_url="http://gateway") as client:
        answer = await client.delete(f"{SESSIONS_PATH}/{found['id']}", headers={TOKEN_HEADER: found["token"]})
    assert (answer.status_code, answer.content) == (204, b"")
    assert (await gateway.read_session(session.ssrc)).is_over
    until = await store.zscore(state.SLOT_RESERVATIONS_KEY, str(session.ssrc))
    assert until is not None
    assert float(until) < time.time() + 60
    assert reported == [(session.id, 0.0)], "no caller returns to a closed session"


CELLS = {
    "api_url": "https://a.test",
    "cells": "https://a.test=https://a.test/healthz,https://b.test=https://b.test/healthz",
}


@pytest.fixture
async def cell(store: Redis, monkeypatch: pytest.MonkeyPatch) -> LocalGateway:
    """The gateway of cell a.test, whose only other cell is healthy."""
    gateway = LocalGateway(store, **CELLS)
    keep_healthy(gateway, monkeypatch)
    return gateway


def keep_healthy(gateway: LocalGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every other cell count as healthy."""

    async def is_healthy(_: str) -> bool:
        return True

    monkeypatch.setattr(gateway.cells, "_is_healthy", is_healthy)


def find_call(gateway: LocalGateway, cell: str) -> str:
    """Return the name of a call that prefers a cell."""
    assert gateway.cells
    return next(each for each in map(str, range(100)) if gateway.cells.rank_cells(each)[0] == cell)


async def test_a_call_is_redirected_to_its_cell(cell: LocalGateway) -> None:
    body = {"transport": "websocket", "call": find_call(cell, "b.test")}
    answer = await post(cell, body)
    assert (answer.status_code, answer.headers["Location"]) == (307, "https://b.test/v1/sessions")
    assert answer.headers["Cache-Control"] == "no-store"
    assert (await post(cell, body, "?full=b.test")).status_code == 201, "the other cell is full"
    own = {"transport": "websocket", "call": find_call(cell, "a.test")}
    assert (await post(cell, own)).status_code == 201
    cell.set_hosts(asr_slots=0)
    answer = await post(cell, own)
    assert (answer.status_code, answer.headers["Location"]) == (307, "https://b.test/v1/sessions?full=a.test")
    assert (await post(cell, own, "?full=b.test,c.test")).status_code == 503, "every cell is full"


async def test_calls_are_redirected_between_the_cells_in_both_directions(
    store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = LocalGateway(store, **CELLS | {"api_url": "https://b.test"})
    keep_healthy(gateway, monkeypatch)
    answer = await post(gateway, {"transport": "websocket", "call": find_call(gateway, "a.test")})
    assert (answer.status_code, answer.headers["Location"]) == (307, "https://a.test/v1/sessions")


@pytest.mark.parametrize("name", ["a.test", "b.test"])
async def test_a_call_without_a_name_belongs_to_the_cell_of_its_caller(
    cell: LocalGateway, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    caller = find_call(cell, name)

    async def identify(_: object) -> str:
        return caller

    monkeypatch.setattr(cell.callers, "identify", identify)
    assert (await post(cell, {"transport": "websocket"})).status_code == (201 if name == "a.test" else 307)


async def test_events_have_an_absolute_address_if_the_region_has_its_own(store: Redis) -> None:
    found, session = await read_opened(LocalGateway(store), {"transport": "websocket"})
    assert found["events"] == f"sessions/{session.id}/events"
    found, session = await read_opened(LocalGateway(store, api_url="https://a.test"), {"transport": "websocket"})
    assert found["events"] == f"https://a.test/v1/sessions/{session.id}/events"


async def test_the_reason_for_an_invalid_body_names_the_field(store: Redis) -> None:
    for body, detail in (
        ({"transport": "srtp", "media": {"codec": "G729"}}, "media.codec: Input should be"),
        ({}, "transport: Field required"),
    ):
        answer = await post(LocalGateway(store), body)
        assert json.loads(answer.content)["detail"].startswith(detail)
