"""Sessions are opened and closed by those who may, and every refusal says why."""

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

from blueprint.contract import session_api
from blueprint.contract.network import Tier
from blueprint.contract.session_api import CALLER_HEADER, MOST_END_OF_TURN_MS, TOKEN_HEADER
from blueprint.contract.state import SessionField
from images.conftest import PATIENCE_S, StoreServer
from images.gateway.tests.conftest import Start
from images.gateway.tests.running import GatewayProcess, Hosts, Opened, holds
from voice_gateway import apps, server
from voice_gateway.session_routes import SessionRequest
from voice_runtime import state
from voice_runtime.hosts import HostRegistry
from voice_runtime.replies import text

pytestmark = pytest.mark.usefixtures("hosts")
SESSIONS = session_api.SESSIONS_PATH


async def ask(gateway: GatewayProcess, method: str, path: str, **options: Any) -> httpx2.Response:
    async with gateway.client() as client:
        return await client.request(method, path, **options)


def is_refusal(answer: httpx2.Response, status: int, error: str) -> str:
    """Assert that an answer is a refusal as the API describes it; return its detail."""
    body = answer.json()
    jsonschema.validate(body, session_api.ERROR)
    assert (answer.status_code, body["error"]) == (status, error)
    return str(body["detail"])


async def test_session_for_a_browser(gateway: GatewayProcess, store: Redis) -> None:
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": "websocket", "language": "de-AT"})
    found = answer.json()
    jsonschema.validate(found, session_api.SESSION)
    assert answer.status_code == 201
    assert found["media"] == {"websocket": f"ws://127.0.0.1:{gateway.media_port}/v1/sessions/{found['id']}/audio"}
    assert (
        httpx2.URL(f"https://x.test/live{SESSIONS}").join(found["events"]).path
        == f"/live{SESSIONS}/{found['id']}/events"
    )
    left = datetime.datetime.fromisoformat(found["expires_at"]) - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(seconds=270) < left <= datetime.timedelta(seconds=300)
    record = await store.hgetall(state.session(Opened(gateway, found).ssrc))
    assert record[b"kind"] == b"gateway"
    assert record[b"language"] == b"de-AT"
    assert b"srtp_key" not in record


@pytest.mark.parametrize(("asked", "kept"), [({}, 600), ({"end_of_turn_ms": 0}, 0), ({"end_of_turn_ms": 5000}, 5000)])
async def test_silence_that_ends_a_turn_is_the_sessions(
    gateway: GatewayProcess, store: Redis, asked: dict[str, int], kept: int
) -> None:
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": "websocket", **asked})
    assert answer.status_code == 201
    ssrc = Opened(gateway, answer.json()).ssrc
    assert await store.hget(state.session(ssrc), SessionField.END_OF_TURN_MS) == str(kept).encode()


@pytest.mark.parametrize("asked", [-1, MOST_END_OF_TURN_MS + 1, "soon"])
async def test_silence_that_ends_no_turn_is_refused(gateway: GatewayProcess, asked: object) -> None:
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": "websocket", "end_of_turn_ms": asked})
    assert "end_of_turn_ms" in is_refusal(answer, 400, "bad request")


async def test_session_for_a_native_caller(gateway: GatewayProcess, store: Redis) -> None:
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": "srtp"})
    found = answer.json()
    jsonschema.validate(found, session_api.SESSION)
    srtp = found["media"]["srtp"]
    assert (srtp["host"], srtp["port"]) == ("127.0.0.1", gateway.rtp_port)
    assert srtp["ssrc"] == Opened(gateway, found).ssrc
    assert f"{srtp['ssrc']:08x}" not in found["id"], "a name shows no SSRC"
    assert len(base64.b64decode(srtp["key"], validate=True)) == 30
    record = await store.hgetall(state.session(srtp["ssrc"]))
    assert record[b"kind"] == b"external"
    assert text(record[b"srtp_key"]) == srtp["key"]
    assert text(record[b"media"]) == "96 L16/16000/1 20"
    assert (srtp["payload_type"], srtp["codec"], srtp["rate"]) == (96, "L16", 16_000)


async def test_session_of_a_caller_with_aes_gcm(gateway: GatewayProcess, store: Redis) -> None:
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": "srtp", "suite": "AEAD_AES_128_GCM"})
    found = answer.json()
    jsonschema.validate(found, session_api.SESSION)
    srtp = found["media"]["srtp"]
    assert srtp["suite"] == "AEAD_AES_128_GCM"
    assert len(base64.b64decode(srtp["key"], validate=True)) == 28
    assert text((await store.hgetall(state.session(srtp["ssrc"])))[b"srtp_key"]) == srtp["key"]
    assert f"a=crypto:1 AEAD_AES_128_GCM inline:{srtp['key']}" in srtp["sdp"].split("\r\n")


@pytest.mark.parametrize(
    ("transport", "suite"), [("srtp", "AES_256_CM_HMAC_SHA1_80"), ("websocket", "AEAD_AES_128_GCM")]
)
async def test_suites_that_are_not_there_are_refused(gateway: GatewayProcess, transport: str, suite: str) -> None:
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": transport, "suite": suite})
    assert answer.status_code == 400
    assert "suite" in answer.json()["detail"]


async def test_srtp_goes_where_udp_comes_in(start: Start) -> None:
    """On Azure a load balancer of its own takes UDP, under another name."""
    gateway = await (await start(RTP_HOST="rtp.callers.dev").ready()).takes_callers()
    for wanted, told in (("srtp", "rtp.callers.dev"), ("websocket", "127.0.0.1")):
        media = (await ask(gateway, "POST", SESSIONS, json={"transport": wanted})).json()["media"][wanted]
        assert (media["host"] if wanted == "srtp" else urlsplit(media).hostname) == told


async def test_session_of_a_telephone(gateway: GatewayProcess, store: Redis) -> None:
    wanted = {"codec": "PCMA", "packet_ms": 30}
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": "srtp", "media": wanted})
    found = answer.json()
    jsonschema.validate(found, session_api.SESSION)
    srtp = found["media"]["srtp"]
    assert text((await store.hgetall(state.session(srtp["ssrc"])))[b"media"]) == "8 PCMA/8000/1 30"
    described = srtp["sdp"].split("\r\n")
    assert f"m=audio {srtp['port']} RTP/SAVP 8 101 13" in described
    assert {"a=rtpmap:8 PCMA/8000", "a=ptime:30", f"a=ssrc:{srtp['ssrc']} cname:{srtp['ssrc']}"} <= set(described)
    assert f"a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:{srtp['key']}" in described


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
        ({"payload_type": 0}, "payload type 0"),
    ],
)
async def test_media_that_the_data_plane_does_not_take_is_refused(
    gateway: GatewayProcess, media: dict[str, object], detail: str
) -> None:
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": "srtp", "media": media})
    assert detail in is_refusal(answer, 400, "unsupported media")


async def test_a_websocket_has_no_media(gateway: GatewayProcess) -> None:
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": "websocket", "media": {}})
    assert "L16 at 16000 Hz" in is_refusal(answer, 400, "unsupported media")


def test_request_is_what_the_api_describes() -> None:
    described, ours = session_api.SESSION_REQUEST, SessionRequest.model_json_schema()
    assert ours["additionalProperties"] is described["additionalProperties"]
    assert ours["required"] == described["required"]
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


async def test_body_that_says_how_large_it_is_is_refused_unread(gateway: GatewayProcess) -> None:
    answer = await ask(gateway, "POST", SESSIONS, content=b"x" * 5000)
    assert "4096 bytes" in is_refusal(answer, 413, "body too large")


async def test_upload_without_end_takes_no_memory(gateway: GatewayProcess) -> None:
    """A gigabyte, as far as the gateway lets it come."""
    before, sent = gateway.memory_mib, 0
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.http_port)
    writer.write(b"POST /v1/sessions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
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


async def test_refusal_of_a_large_body_can_be_read(gateway: GatewayProcess) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.http_port)
    writer.write(b"POST /v1/sessions HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"body too large" in answer
    writer.close()


async def test_unknown_paths_and_methods_are_refused_in_the_same_form(gateway: GatewayProcess) -> None:
    is_refusal(await ask(gateway, "GET", "/v2/sessions"), 404, "unknown path")
    is_refusal(await ask(gateway, "GET", SESSIONS), 405, "unknown method")


@pytest.mark.parametrize("problem", ["full", "draining", "gone"])
async def test_no_session_without_capacity(gateway: GatewayProcess, hosts: Hosts, problem: str) -> None:
    counted = sum(gateway.metric("SessionsRefused"))
    if problem == "full":
        hosts.put(Tier.ASR, "asr-1", slots=0)
    elif problem == "draining":
        hosts.put(Tier.ASR, "asr-1", draining=True)
    else:
        del hosts.present[Tier.ASR, "asr-1"]
    answer = await gateway.answers(503, "srtp")
    is_refusal(answer, 503, "no capacity")
    assert int(answer.headers["Retry-After"]) > 0
    await holds("the refusal is counted", lambda: sum(gateway.metric("SessionsRefused")) > counted)


@pytest.mark.parametrize("transport", ["srtp", "websocket"])
async def test_a_full_region_tells_of_the_others(start: Start, hosts: Hosts, transport: str) -> None:
    there = ["https://api.us-west-2.voice.test", "https://api.eu-west-1.voice.test"]
    gateway = await (await start(OTHER_REGIONS=",".join(there)).ready()).takes_callers()
    assert (await ask(gateway, "POST", SESSIONS, json={"transport": transport})).status_code == 201
    hosts.put(Tier.ASR, "asr-1", slots=0)
    answer = await gateway.answers(503, transport)
    assert answer.json()["elsewhere"] == there
    assert f"or at {there[0]}" in is_refusal(answer, 503, "no capacity")


async def test_a_session_stays_with_the_region_that_opened_it(start: Start) -> None:
    """A caller who asked at a name of all regions is told of the region's own API, and can follow and close there."""
    gateway = await (await start(API_URL="https://api.us-west-2.voice.test").ready()).takes_callers()
    opened = (await ask(gateway, "POST", SESSIONS, json={"transport": "srtp"})).json()
    assert opened["events"] == f"https://api.us-west-2.voice.test/v1/sessions/{opened['id']}/events"


async def test_language_that_no_engine_has_is_refused_with_those_that_there_are(start: Start, hosts: Hosts) -> None:
    hosts.put(Tier.ASR, "asr-1", languages=("de", "en"))
    hosts.put(Tier.ASR, "asr-2", languages=("de", "fr"))
    await hosts.beat()
    gateway = await (await start().ready()).takes_callers()
    for language in ("fr", "en", "xx-YY"):
        answer = await ask(gateway, "POST", SESSIONS, json={"transport": "srtp", "language": language})
        said = is_refusal(answer, 400, "unsupported language")
        assert f"{language!r}" in said, said
        assert "they have de;" in said, said
    for known in ({"language": "de-CH"}, {}):
        answer = await ask(gateway, "POST", SESSIONS, json={"transport": "srtp", **known})
        assert answer.status_code == 201, answer.text


async def test_no_websocket_session_without_a_vad_host(start: Start, store: Redis, hosts: Hosts) -> None:
    """SRTP goes to the VAD tier by itself, through its own load balancer."""
    del hosts.present[Tier.VAD, "vad-1"]
    await HostRegistry(store, Tier.VAD).leave("vad-1")
    gateway = await start().ready()
    answer = await gateway.answers(503)  # a heartbeat that was on its way brings the host back for a while
    assert is_refusal(answer, 503, "no capacity").startswith("every VAD host")
    await holds("the refusal is counted", lambda: sum(gateway.metric("SessionsRefused")) == 1)
    assert (await ask(gateway, "POST", SESSIONS, json={"transport": "srtp"})).status_code == 201


async def statuses(gateway: GatewayProcess, caller: str, count: int) -> collections.Counter[int]:
    """Ask for so many sessions over one connection; a client library would take longer than the gateway."""
    body = b'{"transport": "srtp"}'
    head = f"POST {SESSIONS} HTTP/1.1\r\nHost: x\r\n{CALLER_HEADER}: {caller}\r\nContent-Length: {len(body)}\r\n\r\n"
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
async def test_sessions_of_one_key_are_bounded(start: Start, store: Redis, asked: int) -> None:
    gateway = await start(CALLER_SESSIONS=100).ready()
    await asyncio.gather(*(statuses(gateway, "first", 10) for _ in range(40)))  # makes what is made once
    before = await gateway.objects()
    callers = (statuses(gateway, "greedy", asked // 20) for _ in range(20))
    outcomes = sum(await asyncio.gather(*callers), collections.Counter())
    assert outcomes.total() == asked
    assert outcomes[201] == await store.zcard(state.caller_sessions("greedy")) <= 100
    assert outcomes[429] >= asked - 100
    assert len({key async for key in store.scan_iter("session:[0-9]*", count=1000)}) == 100 + outcomes[201]
    await gateway.holds_no_more_than(before + 0.2 * asked)
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": "srtp"}, headers={CALLER_HEADER: "modest"})
    assert answer.status_code == 201


async def test_creations_a_second_are_limited(start: Start) -> None:
    gateway = await start(CALLER_CREATIONS_PER_S=3).ready()
    async with gateway.client() as client:
        begin = time.monotonic()
        asked = (client.post(SESSIONS, json={"transport": "srtp"}) for _ in range(40))
        answers = await asyncio.gather(*asked)
        seconds = math.ceil(time.monotonic() - begin) + 1  # that these requests may have been in
        refused = [answer for answer in answers if answer.status_code == 429]
        assert len(answers) - len(refused) <= 3 * seconds
        assert "3 sessions a second" in is_refusal(refused[0], 429, "too many requests")
        await asyncio.sleep(1.2)
        assert (await client.post(SESSIONS, json={"transport": "srtp"})).status_code == 201


async def test_session_is_closed_once(gateway: GatewayProcess, store: Redis) -> None:
    opened = await gateway.open()
    assert await opened.close() == 204
    assert await store.hget(state.session(opened.ssrc), "state") == b"closed"
    assert await opened.close() == 204, "closing again changes nothing"


@pytest.mark.parametrize(("method", "suffix"), [("DELETE", ""), ("GET", "/events")])
async def test_session_opens_with_its_own_token_only(
    gateway: GatewayProcess, store: Redis, method: str, suffix: str
) -> None:
    opened, other = await gateway.open(), await gateway.open()
    path = f"{SESSIONS}/{opened.id}{suffix}"
    is_refusal(await ask(gateway, method, path), 401, "no token")
    is_refusal(await ask(gateway, method, path, headers={TOKEN_HEADER: "a.b.c"}), 401, "invalid token")
    is_refusal(await ask(gateway, method, path, headers=other.headers), 403, "foreign token")
    await store.delete(state.session(opened.ssrc))
    is_refusal(await ask(gateway, method, path, headers=opened.headers), 404, "unknown session")


async def test_expired_token_opens_nothing(start: Start) -> None:
    gateway = await start(TOKEN_TTL_S=1).ready()
    opened = await gateway.open()
    await asyncio.sleep(1.5)
    answer = await ask(gateway, "DELETE", f"{SESSIONS}/{opened.id}", headers=opened.headers)
    assert "expired" in is_refusal(answer, 401, "invalid token")


async def test_pages_of_allowed_origins_may_ask(gateway: GatewayProcess) -> None:
    for origin, allowed in (("http://page.test", True), ("http://evil.test", False)):
        asking = {
            "Origin": origin,
            "Access-Control-Request-Method": "GET",
            "Access-Control-Request-Headers": f"{TOKEN_HEADER}, {session_api.LAST_EVENT_ID_HEADER}",
        }
        answer = await ask(gateway, "OPTIONS", SESSIONS, headers=asking)
        assert answer.is_success is allowed
        assert ("Access-Control-Allow-Origin" in answer.headers) is allowed


async def test_without_allowed_origins_no_page_may_ask(start: Start) -> None:
    gateway = await start().ready()
    answer = await ask(gateway, "POST", SESSIONS, json={"transport": "srtp"}, headers={"Origin": "http://page.test"})
    assert "Access-Control-Allow-Origin" not in answer.headers


async def test_connection_that_asks_for_nothing_is_closed(gateway: GatewayProcess) -> None:
    with socket.create_connection(("127.0.0.1", gateway.media_port)) as idle:
        idle.settimeout(PATIENCE_S)
        assert await asyncio.to_thread(idle.recv, 1) == b""


async def test_connection_that_is_gone_is_not_kept_by_its_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_TIMEOUT_S", 3600)
    config, made = uvicorn.Config(Starlette(), ws="none"), list[weakref.ref[server.ImpatientProtocol]]()

    def make() -> server.ImpatientProtocol:
        protocol = server.ImpatientProtocol(config, ServerState(), {})
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
    nobody: Any = SimpleNamespace(settings=SimpleNamespace(allowed_origins=()))
    routes = [*apps.session_api(nobody).routes, *apps.media_api(nobody).routes]
    served = {route.path for route in routes if isinstance(route, Route | WebSocketRoute)}
    assert set(described["paths"]) == served
