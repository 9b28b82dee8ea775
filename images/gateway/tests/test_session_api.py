"""Authorized callers open and close sessions, and every refusal contains its reason."""

import asyncio
import base64
import collections
import datetime
import gc
import json
import math
import re
import socket
import time
import weakref
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx2
import jsonschema
import openapi_spec_validator
import pytest
import uvicorn
from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.routing import Route, WebSocketRoute
from uvicorn.server import ServerState

from images.conftest import BUSY_TIMEOUT_S, StoreServer
from images.gateway.tests.conftest import Start
from images.gateway.tests.running import GatewayProcess, Hosts, Opened, holds
from voice_blueprint.contract import session_api
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.session_api import CALLER_HEADER, MAX_END_OF_TURN_MS, TOKEN_HEADER
from voice_blueprint.contract.state import SentAudioField, SessionField
from voice_gateway import apps
from voice_gateway.session_routes import SessionRequest
from voice_runtime import http, state
from voice_runtime.hosts import HostRegistry
from voice_runtime.replies import decode_text
from voice_runtime.sessions import SessionStore

pytestmark = pytest.mark.usefixtures("hosts")
SESSIONS = session_api.SESSIONS_PATH


async def ask(gateway: GatewayProcess, method: str, path: str, **options: Any) -> httpx2.Response:
    async with gateway.client() as client:
        return await client.request(method, path, **options)


def is_refusal(answer: httpx2.Response, status: int, error: str) -> str:
    """Assert that a response is a refusal in the API's format; return its detail."""
    body = answer.json()
    jsonschema.validate(body, session_api.ERROR_SCHEMA)
    assert (answer.status_code, body["error"]) == (status, error)
    return str(body["detail"])


async def test_session_for_a_browser(gateway: GatewayProcess, store: Redis) -> None:
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": "websocket", "language": "de-AT"})
    found = answer.json()
    jsonschema.validate(found, session_api.SESSION_SCHEMA)
    assert answer.status_code == 201
    assert found["media"] == {"websocket": f"ws://127.0.0.1:{gateway.media_port}/v1/sessions/{found['id']}/audio"}
    assert (
        httpx2.URL(f"https://x.test/live{SESSIONS}").join(found["events"]).path
        == f"/live{SESSIONS}/{found['id']}/events"
    )
    left = datetime.datetime.fromisoformat(found["expires_at"]) - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(seconds=270) < left <= datetime.timedelta(seconds=300)
    record = await store.hgetall(state.build_session_key(Opened(gateway, found).ssrc))
    assert record[b"kind"] == b"gateway"
    assert record[b"language"] == b"de-AT"
    assert not await store.keys("srtp:*")


@pytest.mark.parametrize(("asked", "kept"), [({}, 600), ({"end_of_turn_ms": 0}, 0), ({"end_of_turn_ms": 5000}, 5000)])
async def test_end_of_turn_silence_is_set_per_session(
    gateway: GatewayProcess, store: Redis, asked: dict[str, int], kept: int
) -> None:
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": "websocket", **asked})
    assert answer.status_code == 201
    ssrc = Opened(gateway, answer.json()).ssrc
    assert await store.hget(state.build_session_key(ssrc), SessionField.END_OF_TURN_MS) == str(kept).encode()


async def test_keywords_are_set_per_session(gateway: GatewayProcess, store: Redis) -> None:
    for request, prompt in (({"prompt": "Valkey"}, "Valkey"), ({}, "")):
        session = await SessionStore(store).read((await gateway.open(**request)).ssrc)
        assert session
        assert session.prompt == prompt


@pytest.mark.parametrize("asked", [-1, MAX_END_OF_TURN_MS + 1, "soon"])
async def test_invalid_end_of_turn_silence_is_rejected(gateway: GatewayProcess, asked: object) -> None:
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": "websocket", "end_of_turn_ms": asked})
    assert "end_of_turn_ms" in is_refusal(answer, 400, "bad request")


async def test_session_for_a_native_caller(gateway: GatewayProcess, store: Redis) -> None:
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": "srtp"})
    found = answer.json()
    jsonschema.validate(found, session_api.SESSION_SCHEMA)
    srtp = found["media"]["srtp"]
    assert (srtp["host"], srtp["port"]) == ("127.0.0.1", gateway.rtp_port)
    assert srtp["ssrc"] == Opened(gateway, found).ssrc
    assert f"{srtp['ssrc']:08x}" not in found["id"], "a name shows no SSRC"
    assert len(base64.b64decode(srtp["key"], validate=True)) == 30
    record = await store.hgetall(state.build_session_key(srtp["ssrc"]))
    assert record[b"kind"] == b"external"
    assert decode_text(await store.get(state.build_srtp_entry_key(srtp["ssrc"])) or "") == srtp["key"]
    assert decode_text(record[b"media"]) == "96 L16/16000/1 20"
    assert (srtp["payload_type"], srtp["codec"], srtp["rate"]) == (96, "L16", 16_000)


async def test_session_of_a_caller_with_aes_gcm(gateway: GatewayProcess, store: Redis) -> None:
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": "srtp", "suite": "AEAD_AES_128_GCM"})
    found = answer.json()
    jsonschema.validate(found, session_api.SESSION_SCHEMA)
    srtp = found["media"]["srtp"]
    assert srtp["suite"] == "AEAD_AES_128_GCM"
    assert len(base64.b64decode(srtp["key"], validate=True)) == 28
    assert decode_text(await store.get(state.build_srtp_entry_key(srtp["ssrc"])) or "") == srtp["key"]
    assert f"a=crypto:1 AEAD_AES_128_GCM inline:{srtp['key']}" in srtp["sdp"].split("\r\n")


@pytest.mark.parametrize(
    ("transport", "suite"), [("srtp", "AES_256_CM_HMAC_SHA1_80"), ("websocket", "AEAD_AES_128_GCM")]
)
async def test_unsupported_srtp_suites_are_rejected(gateway: GatewayProcess, transport: str, suite: str) -> None:
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": transport, "suite": suite})
    assert answer.status_code == 400
    assert "suite" in answer.json()["detail"]


async def test_srtp_is_sent_to_the_udp_listener(start: Start) -> None:
    """On Azure, UDP has a load balancer of its own with another name."""
    gateway = await (await start(RTP_HOST="rtp.callers.dev").ready()).accepts_callers()
    for wanted, told in (("srtp", "rtp.callers.dev"), ("websocket", "127.0.0.1")):
        media = (await ask(gateway, "POST", SESSIONS, json={"transport": wanted})).json()["media"][wanted]
        assert (media["host"] if wanted == "srtp" else urlsplit(media).hostname) == told


async def test_session_of_a_telephone(gateway: GatewayProcess, store: Redis) -> None:
    wanted = {"codec": "PCMA", "packet_ms": 30}
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": "srtp", "media": wanted})
    found = answer.json()
    jsonschema.validate(found, session_api.SESSION_SCHEMA)
    srtp = found["media"]["srtp"]
    assert decode_text((await store.hgetall(state.build_session_key(srtp["ssrc"])))[b"media"]) == "8 PCMA/8000/1 30"
    described = srtp["sdp"].split("\r\n")
    assert f"m=audio {srtp['port']} RTP/SAVP 8 101 13" in described
    assert {"a=rtpmap:8 PCMA/8000", "a=ptime:30", f"a=ssrc:{srtp['ssrc']} cname:{srtp['ssrc']}"} <= set(described)
    assert f"a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:{srtp['key']}" in described


async def test_session_with_its_own_telephone_event_types(gateway: GatewayProcess, store: Redis) -> None:
    wanted = {"codec": "opus", "telephone_events": [110, 126]}
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": "srtp", "media": wanted})
    found = answer.json()
    jsonschema.validate(found, session_api.SESSION_SCHEMA)
    srtp = found["media"]["srtp"]
    assert srtp["telephone_events"] == [110, 126]
    assert (
        decode_text((await store.hgetall(state.build_session_key(srtp["ssrc"])))[b"media"])
        == "111 opus/48000/2 20 110,126"
    )
    described = srtp["sdp"].split("\r\n")
    assert f"m=audio {srtp['port']} RTP/SAVP 111 110 126" in described
    assert {"a=rtpmap:110 telephone-event/48000", "a=rtpmap:126 telephone-event/48000"} <= set(described)


async def test_wrong_codec_is_reported_to_the_caller(gateway: GatewayProcess, store: Redis) -> None:
    opened = await gateway.open("srtp")
    async with opened.stream() as events:
        await store.hset(state.build_sent_audio_key(opened.ssrc), SentAudioField.WRONG_PAYLOAD, "7")
        told = (await asyncio.wait_for(events.until("error"), BUSY_TIMEOUT_S))[-1]
    assert told.data["error"] == "wrong payload"
    assert "7 packets are not L16/16000 of 20 ms with payload type 96" in told.data["detail"]


@pytest.mark.parametrize(
    ("media", "detail"),
    [
        ({"codec": "PCMU", "rate": 16_000}, "PCMU at 16000 Hz is not taken; 8000 are"),
        ({"codec": "L16", "rate": 44_000}, "48000 are"),
        ({"codec": "opus", "channels": 1}, "opus with 1 channels"),
        ({"rate": 11_025, "packet_ms": 10}, "whole samples"),
        ({"packet_ms": 61}, "10 to 60 ms"),
        ({"rate": 48_000, "channels": 2, "packet_ms": 10}, "1920 bytes"),
        ({"payload_type": 101}, "but for 101"),
        ({"payload_type": 72}, "payload type 72"),
        ({"payload_type": 110, "telephone_events": [110, 126]}, "but for 110, 126"),
        ({"telephone_events": [72]}, "telephone events of payload type 72"),
        ({"telephone_events": []}, "name 1 to 8"),
        ({"telephone_events": list(range(97, 106))}, "name 1 to 8"),
        ({"payload_type": 0}, "payload type 0"),
    ],
)
async def test_media_unsupported_by_the_data_plane_is_rejected(
    gateway: GatewayProcess, media: dict[str, object], detail: str
) -> None:
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": "srtp", "media": media})
    assert detail in is_refusal(answer, 400, "unsupported media")


async def test_a_websocket_session_has_no_media_settings(gateway: GatewayProcess) -> None:
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": "websocket", "media": {}})
    assert "L16 at 16000 Hz" in is_refusal(answer, 400, "unsupported media")


def test_requests_match_the_api_schema() -> None:
    described, ours = session_api.SESSION_REQUEST_SCHEMA, SessionRequest.model_json_schema()
    assert ours["additionalProperties"] is described["additionalProperties"]
    assert ours["required"] == described["required"]
    assert ours["properties"].keys() == described["properties"].keys(), "fields that API Gateway or the gateway rejects"
    assert ours["properties"]["transport"]["enum"] == described["properties"]["transport"]["enum"]
    language, _null = ours["properties"]["language"]["anyOf"]
    assert language["pattern"] == described["properties"]["language"]["pattern"]
    assert language["maxLength"] == described["properties"]["language"]["maxLength"]
    assert ours["$defs"]["MediaRequest"]["properties"].keys() == described["properties"]["media"]["properties"].keys()


BAD_BODIES = [
    (b"", "EOF"),
    (b"{", "EOF"),
    (b"[]", "object"),
    (b"\xff\xfe", "Invalid JSON"),
    (b'{"transport": "carrier pigeon"}', "'websocket' or 'srtp'"),
    (b"{}", "transport: Field required"),
    (b'{"transport": "srtp", "volume": 11}', "volume: Extra inputs"),
    (b'{"transport": "srtp", "language": "Klingon, as spoken"}', "language"),
    (b'{"transport": "srtp", "language": 7}', "language"),
    (b'{"transport": "srtp", "media": {"codec": "G729"}}', "media.codec: Input should be 'L16', 'PCMU'"),
]


@pytest.mark.parametrize(("body", "detail"), BAD_BODIES)
async def test_malformed_request_is_refused(gateway: GatewayProcess, body: bytes, detail: str) -> None:
    assert detail in is_refusal(await ask(gateway, "POST", SESSIONS, content=body), 400, "bad request")


async def test_oversized_content_length_is_rejected_without_reading(gateway: GatewayProcess) -> None:
    answer = await ask(gateway, "POST", SESSIONS, content=b"x" * 5000)
    assert "4096 bytes" in is_refusal(answer, 413, "body too large")


async def test_endless_upload_uses_no_memory(gateway: GatewayProcess) -> None:
    """A gigabyte, as far as the gateway reads it."""
    before, sent = gateway.memory_mib, 0
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.http_port)
    writer.write(b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    block = b"10000\r\n" + bytes(65_536) + b"\r\n"
    try:
        while sent < 2**30:
            writer.write(block)
            await writer.drain()
            sent += 65_536
    except ConnectionError:
        pass
    assert sent < 2**28, "the gateway hangs up"
    assert gateway.memory_mib - before < 64
    assert gateway.health() == 200
    writer.close()
    del reader


async def test_response_to_a_rejected_large_body_arrives(gateway: GatewayProcess) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.http_port)
    writer.write(b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1073741824\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), BUSY_TIMEOUT_S)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"body too large" in answer
    writer.close()


async def test_rejected_client_that_is_still_sending_receives_the_response(gateway: GatewayProcess) -> None:
    """A connection that is closed with unread data is reset, and the client can lose the response."""

    def request() -> bytes:
        with socket.create_connection(("127.0.0.1", gateway.http_port), BUSY_TIMEOUT_S) as client:
            client.sendall(b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n")
            assert client.recv(1, socket.MSG_PEEK), "the gateway responds before the body"
            for _ in range(5):
                client.sendall(bytes(1000))
                time.sleep(0.05)
            return b"".join(iter(lambda: client.recv(4096), b""))

    answer = await asyncio.to_thread(request)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"body too large" in answer


async def test_unknown_paths_and_methods_give_standard_errors(gateway: GatewayProcess) -> None:
    is_refusal(await ask(gateway, "GET", "/v2/sessions"), 404, "unknown path")
    is_refusal(await ask(gateway, "GET", SESSIONS), 405, "unknown method")


@pytest.mark.parametrize("problem", ["full", "draining", "gone"])
async def test_session_is_rejected_without_capacity(gateway: GatewayProcess, hosts: Hosts, problem: str) -> None:
    counted = sum(gateway.metric("SessionsRefused"))
    if problem == "full":
        hosts.put(Tier.ASR, "asr-1", slots=0)
    elif problem == "draining":
        hosts.put(Tier.ASR, "asr-1", draining=True)
    else:
        del hosts.present[Tier.ASR, "asr-1"]
    answer = await gateway.answers(503, "srtp")
    is_refusal(answer, 503, "no capacity")
    assert answer.headers["Retry-After"] == "5"
    await holds("the refusal is counted", lambda: sum(gateway.metric("SessionsRefused")) > counted)


@pytest.mark.parametrize("transport", ["srtp", "websocket"])
async def test_a_full_region_redirects_to_the_others(start: Start, hosts: Hosts, transport: str) -> None:
    there = ["https://api.us-west-2.voice.test", "https://api.eu-west-1.voice.test"]
    gateway = await (await start(OTHER_REGIONS=",".join(there)).ready()).accepts_callers()
    assert (await ask(gateway, "POST", SESSIONS, json={"transport": transport})).status_code == 201
    hosts.put(Tier.ASR, "asr-1", slots=0)
    answer = await gateway.answers(503, transport)
    assert answer.json()["elsewhere"] == there
    assert f"or at {there[0]}" in is_refusal(answer, 503, "no capacity")


async def test_a_session_stays_with_the_region_that_opened_it(start: Start) -> None:
    """A caller of the regions' shared name receives the URL of the region's own API, and can follow and close the
    session there.
    """
    gateway = await (await start(API_URL="https://api.us-west-2.voice.test").ready()).accepts_callers()
    opened = (await ask(gateway, "POST", SESSIONS, json={"transport": "srtp"})).json()
    assert opened["events"] == f"https://api.us-west-2.voice.test/v1/sessions/{opened['id']}/events"


async def test_unsupported_language_error_lists_the_supported_ones(start: Start, hosts: Hosts) -> None:
    hosts.put(Tier.ASR, "asr-1", languages=("de", "en"))
    hosts.put(Tier.ASR, "asr-2", languages=("de", "fr"))
    await hosts.beat()
    gateway = await (await start().ready()).accepts_callers()
    for language in ("fr", "en", "xx-YY"):
        answer = await ask(gateway, "POST", SESSIONS, json={"transport": "srtp", "language": language})
        said = is_refusal(answer, 400, "unsupported language")
        assert f"{language!r}" in said, said
        assert "they have de;" in said, said
    for known in ({"language": "de-CH"}, {}):
        answer = await ask(gateway, "POST", SESSIONS, json={"transport": "srtp", **known})
        assert answer.status_code == 201, answer.text


async def test_websocket_session_is_rejected_without_a_vad_host(start: Start, store: Redis, hosts: Hosts) -> None:
    """SRTP reaches the VAD tier directly, through its own load balancer."""
    del hosts.present[Tier.VAD, "vad-1"]
    await HostRegistry(store, Tier.VAD).remove("vad-1")
    gateway = await start().ready()
    answer = await gateway.answers(503)  # a heartbeat in flight restores the host for a while
    assert is_refusal(answer, 503, "no capacity").startswith("every VAD host")
    await holds("the refusal is counted", lambda: sum(gateway.metric("SessionsRefused")) == 1)
    assert (await ask(gateway, "POST", SESSIONS, json={"transport": "srtp"})).status_code == 201


async def statuses(gateway: GatewayProcess, caller: str, count: int) -> collections.Counter[int]:
    """Send this number of requests over one connection; a client library would be slower than the gateway."""
    body = b'{"transport": "srtp"}'
    head = (
        f"POST {SESSIONS} HTTP/1.1\r\nHost: [::1]\r\n{CALLER_HEADER}: {caller}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.http_port)
    found: collections.Counter[int] = collections.Counter()
    for _ in range(count):
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        found[int(answer.split(b" ", 2)[1])] += 1
        await reader.readexactly(int(re.findall(rb"content-length: (\d+)", answer)[0]))
    writer.close()
    return found


@pytest.mark.parametrize("asked", [1_000, pytest.param(10_000, marks=pytest.mark.nightly)])
async def test_sessions_per_key_are_limited(start: Start, store: Redis, asked: int) -> None:
    gateway = await start(CALLER_SESSIONS=100).ready()
    await asyncio.gather(*(statuses(gateway, "first", 10) for _ in range(40)))  # creates objects that are created once
    before = await gateway.objects()
    callers = (statuses(gateway, "greedy", asked // 20) for _ in range(20))
    outcomes = sum(await asyncio.gather(*callers), collections.Counter())
    assert outcomes.total() == asked
    assert outcomes[201] == await store.zcard(state.build_caller_sessions_key("greedy")) <= 100
    assert outcomes[429] >= asked - 100
    keys = {key async for key in store.scan_iter("session:[0-9]*", count=1000)}
    assert len(keys) == 100 + outcomes[201]
    assert all([await store.ttl(key) > 0 for key in keys])
    await gateway.holds_no_more_than(before + 0.2 * asked)
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": "srtp"}, headers={CALLER_HEADER: "modest"})
    assert answer.status_code == 201


async def test_creations_per_second_are_limited(start: Start) -> None:
    gateway = await start(CALLER_CREATIONS_PER_S=3).ready()
    async with gateway.client() as client:
        begin = time.monotonic()
        asked = (client.post(SESSIONS, json={"transport": "srtp"}) for _ in range(40))
        answers = await asyncio.gather(*asked)
        seconds = math.ceil(time.monotonic() - begin) + 1  # maximum duration of these requests
        refused = [answer for answer in answers if answer.status_code == 429]
        assert len(answers) - len(refused) <= 3 * seconds
        assert "3 sessions a second" in is_refusal(refused[0], 429, "too many requests")
        await asyncio.sleep(1.2)
        assert (await client.post(SESSIONS, json={"transport": "srtp"})).status_code == 201


async def test_a_caller_above_its_rate_still_gets_its_share(start: Start) -> None:
    gateway = await start(CALLER_CREATIONS_PER_S=1).ready()
    opened = 0
    async with gateway.client() as client, asyncio.timeout(BUSY_TIMEOUT_S):
        while opened < 3:
            opened += (await client.post(SESSIONS, json={"transport": "srtp"})).status_code == 201
            await asyncio.sleep(0.2)


async def test_session_is_closed_once(gateway: GatewayProcess, store: Redis) -> None:
    opened = await gateway.open()
    assert await opened.close() == 204
    assert await store.hget(state.build_session_key(opened.ssrc), "state") == b"closed"
    assert await opened.close() == 204, "closing again changes nothing"


@pytest.mark.parametrize(("method", "suffix"), [("DELETE", ""), ("GET", "/events")])
async def test_session_requires_its_own_token(gateway: GatewayProcess, store: Redis, method: str, suffix: str) -> None:
    opened, other = await gateway.open(), await gateway.open()
    path = f"{SESSIONS}/{opened.id}{suffix}"
    is_refusal(await ask(gateway, method, path), 401, "no token")
    is_refusal(await ask(gateway, method, path, headers={TOKEN_HEADER: "a.b.c"}), 401, "invalid token")
    is_refusal(await ask(gateway, method, path, headers=other.headers), 403, "foreign token")
    await store.hset(
        state.build_session_key(opened.ssrc), SessionField.ID, other.id
    )  # has the number of an earlier one
    is_refusal(await ask(gateway, method, path, headers=opened.headers), 404, "unknown session")
    await store.delete(state.build_session_key(opened.ssrc))
    is_refusal(await ask(gateway, method, path, headers=opened.headers), 404, "unknown session")


async def test_expired_token_is_rejected(start: Start) -> None:
    gateway = await start(TOKEN_TTL_S=1).ready()
    opened = await gateway.open()
    await asyncio.sleep(1.5)
    answer = await ask(gateway, "DELETE", f"{SESSIONS}/{opened.id}", headers=opened.headers)
    assert "expired" in is_refusal(answer, 401, "invalid token")


async def test_pages_of_allowed_origins_may_send_requests(gateway: GatewayProcess) -> None:
    for origin, allowed in (("http://page.test", True), ("http://evil.test", False)):
        asking = {
            "Origin": origin,
            "Access-Control-Request-Method": "GET",
            "Access-Control-Request-Headers": f"{TOKEN_HEADER}, {session_api.LAST_EVENT_ID_HEADER}",
        }
        answer = await ask(gateway, "OPTIONS", SESSIONS, headers=asking)
        assert answer.is_success is allowed
        assert ("Access-Control-Allow-Origin" in answer.headers) is allowed


async def test_without_allowed_origins_pages_are_rejected(start: Start) -> None:
    gateway = await start().ready()
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": "srtp"}, headers={"Origin": "http://page.test"})
    assert "Access-Control-Allow-Origin" not in answer.headers


async def test_idle_connection_is_closed(gateway: GatewayProcess) -> None:
    with socket.create_connection(("127.0.0.1", gateway.media_port)) as idle:
        idle.settimeout(BUSY_TIMEOUT_S)
        assert await asyncio.to_thread(idle.recv, 1) == b""


async def test_timer_does_not_keep_a_closed_connection_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_HEAD_TIMEOUT_S", 3600)
    config, made = (
        uvicorn.Config(Starlette(), ws="none", log_config=None),
        list[weakref.ref[http.RequestHeadTimeoutProtocol]](),
    )
    protocol_type = http.RequestHeadTimeoutProtocol.with_connection_limit()

    def make() -> http.RequestHeadTimeoutProtocol:
        protocol = protocol_type(config, ServerState(), {})
        made.append(weakref.ref(protocol))
        return protocol

    def is_gone() -> bool:
        gc.collect()
        return bool(made) and made[0]() is None

    async with await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0) as listening:
        _, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
        writer.close()
        await holds("it is gone", is_gone)


async def test_nothing_secret_is_logged(gateway: GatewayProcess, store_server: StoreServer) -> None:
    del store_server
    opened = await gateway.open("srtp")
    await opened.close()
    await holds("a line for the session", lambda: any(str(opened.ssrc) in line for line in gateway.lines))
    text = "".join(gateway.lines)
    for secret in (opened.token, opened.described["media"]["srtp"]["key"], gateway.environment["VOICE_TOKEN_KEY"]):
        assert secret not in text
    assert all("level" in line or "_aws" in line for line in map(json.loads, gateway.lines))


async def test_description_is_openapi_and_names_every_route(gateway: GatewayProcess) -> None:
    async with gateway.client() as client:
        for port in (gateway.http_port, gateway.media_port):
            described = (await client.get(f"http://127.0.0.1:{port}/openapi.json")).json()
            openapi_spec_validator.validate(described)
    state: Any = SimpleNamespace(settings=SimpleNamespace(allowed_origins=(), authorizer="none"))
    routes = [*apps.create_session_api(state).routes, *apps.create_media_api(state).routes]
    served = {route.path for route in routes if isinstance(route, Route | WebSocketRoute)}
    assert set(described["paths"]) == served
