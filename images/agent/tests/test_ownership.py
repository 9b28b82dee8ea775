"""A conversation belongs to the caller who opened it: no other caller can take over, read or end it."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator

import pytest
import websockets
from redis.asyncio import Redis
from websockets.asyncio.client import ClientConnection

from images.agent.tests.conftest import KEY, Place, running_agent
from images.agent.tests.engines import Engines
from images.agent.tests.test_server import refused
from images.conftest import BUSY_TIMEOUT_S, until
from voice_agent import tokens
from voice_agent.twilio import compute_signature

ANNA, EVE = "Bearer of-anna", "Bearer of-eve"
CALL = "CA0123456789abcdef"
ACCOUNT = "AC0123456789abcdef0123456789abcdef"
AUTH_TOKEN = "12345"
TWILIO = "/v1/twilio"


@pytest.fixture
async def place(engines: Engines, store: Redis) -> AsyncIterator[Place]:
    engines.names = {ANNA: "anna", EVE: "eve"}
    async with running_agent(engines, store, conversations=3) as place:
        yield place


@contextlib.asynccontextmanager
async def call(place: Place, key: str = "", account: str = "", **headers: str) -> AsyncIterator[ClientConnection]:
    """Call as Twilio does, and wait until the agent runs the conversation."""
    held = place.agent.conversation_count
    start = {"streamSid": "MZ1", "callSid": CALL, "accountSid": account, "customParameters": {"key": key}}
    async with websockets.connect(f"ws{place.url[4:]}{TWILIO}", additional_headers=headers) as socket:
        await socket.send(json.dumps({"event": "connected"}))
        await socket.send(json.dumps({"event": "start", "start": start}))
        await until(lambda: place.agent.conversation_count > held or socket.close_code is not None)
        yield socket


async def conversations(store: Redis) -> set[str]:
    """Return the names of conversations with a connection."""
    keys = [key.decode() async for key in store.scan_iter("conversation:*:lease")]
    return {key.split(":")[1] for key in keys}


async def leased(store: Redis, count: int) -> set[str]:
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while len(found := await conversations(store)) != count:
            await asyncio.sleep(0.01)
    return found


async def test_a_call_id_with_the_key_of_another_caller_is_rejected(place: Place, store: Redis) -> None:
    async with call(place, "of-anna") as victim:
        [name] = await leased(store, 1)
        assert re.fullmatch("call-[0-9a-f]{32}", name)
        await store.rpush(f"conversation:{name}", json.dumps({"role": "user", "content": "my secret"}))
        async with call(place, "of-eve"):
            assert len(await leased(store, 2)) == 2
        async with call(place):
            assert len(await leased(store, 2)) == 2
        assert victim.close_code is None
    assert await store.lrange(f"conversation:{name}", 0, -1)
    await until(lambda: place.agent.conversation_count == 0)
    # It continues with its own key, as a telephone call does after each <Connect>.
    async with call(place, "of-anna"):
        assert await leased(store, 1) == {name}


async def test_only_a_call_that_the_gateway_may_accept_later_must_reconnect(place: Place, engines: Engines) -> None:
    for engines.refuses, code in ((429, 1008), (503, 1013)):
        async with call(place, "of-anna") as socket:
            await socket.wait_closed()
            assert socket.close_code == code


async def test_an_unknown_call_cannot_be_resumed(place: Place, store: Redis) -> None:
    names = set()
    for _ in range(2):
        async with call(place):
            names |= await leased(store, 1)
        await until(lambda: place.agent.conversation_count == 0)
        await leased(store, 0)
    assert len(names) == 2
    assert all(re.fullmatch("[0-9a-f]{32}", name) for name in names), "a name that cannot be guessed"


@pytest.mark.parametrize("path", ["/v1/conversations/{id}", "/v1/realtime?conversation={id}"])
async def test_a_token_resumes_a_conversation_only_for_its_caller(place: Place, path: str) -> None:
    url = f"ws{place.url[4:]}"
    async with websockets.connect(f"{url}/v1/realtime", additional_headers={"Authorization": ANNA}) as victim:
        opened = json.loads(await victim.recv())["session"]["conversation"]
        token = {"X-Voice-Token": opened["token"]}
        for key in ({"Authorization": EVE}, {}):
            with pytest.raises(websockets.InvalidStatus) as caught:
                await websockets.connect(url + path.format(id=opened["id"]), additional_headers=token | key)
            assert caught.value.response.status_code == 403
        assert victim.close_code is None
        async with websockets.connect(
            url + path.format(id=opened["id"]), additional_headers=token | {"Authorization": ANNA}
        ) as again:
            await again.recv()
            await victim.wait_closed()
            assert victim.close_code == 1008


async def test_without_caller_names_the_token_suffices(place: Place) -> None:
    async with place.call() as caller:
        conversation = caller.messages[0]
    path = f"/v1/conversations/{conversation['id']}"
    assert (await refused(place, path))[0] == 401
    async with place.call(path, conversation["token"]) as caller:
        assert caller.messages[0]["id"] == conversation["id"]


@pytest.fixture
async def signed_place(engines: Engines, store: Redis) -> AsyncIterator[Place]:
    async with running_agent(engines, store, twilio_account=ACCOUNT, twilio_token=AUTH_TOKEN) as place:
        yield place


def test_signatures_match_twilios_algorithm() -> None:
    """The example of https://www.twilio.com/docs/usage/security#validating-requests: URL, then names and values."""
    url = "https://mycompany.com/myapp.php?foo=1&bar=2"
    parameters = "CallSidCA1234567890ABCDECaller+14158675309Digits1234From+14158675309To+18005551212"
    assert compute_signature(AUTH_TOKEN, url + parameters) == "RSOYDt4T1cUTdK1PDd93/VVr8B8="


@pytest.mark.parametrize("sent", ["", "eA==", compute_signature("another", "wss://127.0.0.1/v1/twilio")])
async def test_requests_without_a_twilio_signature_are_rejected(signed_place: Place, sent: str) -> None:
    with pytest.raises(websockets.InvalidStatus) as caught:
        async with call(signed_place, **{"X-Twilio-Signature": sent}):
            pass
    assert caught.value.response.status_code == 403
    assert len(signed_place.agent.unauthenticated) == 0


async def test_calls_need_a_twilio_signature_of_the_account(signed_place: Place, store: Redis) -> None:
    signed = {"X-Twilio-Signature": compute_signature(AUTH_TOKEN, f"wss{signed_place.url[4:]}{TWILIO}")}
    for foreign in ("AC1", "AC0", ""):
        async with call(signed_place, account=foreign, **signed) as socket:
            await socket.wait_closed()
            assert socket.close_code == 1008
    names = set()
    for _ in range(2):
        async with call(signed_place, account=ACCOUNT, **signed):
            names |= await leased(store, 1)
        await until(lambda: signed_place.agent.conversation_count == 0)
        await leased(store, 0)
    assert len(names) == 1


@pytest.mark.parametrize("other", ["a", "c", "bb", ""])
def test_a_token_is_that_of_one_conversation(other: str) -> None:
    token = tokens.create_token(KEY, "b", 60, "anna")
    assert tokens.verify_conversation_token(KEY, token, "b") == "anna"
    assert tokens.verify_conversation_token(KEY, token, other) is None
