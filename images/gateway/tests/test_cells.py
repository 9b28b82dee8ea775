"""A call belongs to a cell by its hash; another one serves it while that one is lost or full."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import httpx2
import pytest

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.cell import SESSIONS, Cell, call_of, owner
from voice_gateway.cells import CellRouter
from voice_gateway.settings import GatewaySettings
from voice_ops.call.session import Session

APIS = [f"https://api.c{number}.voice.test" for number in range(1, 9)]


def cells(apis: list[str]) -> CellRouter:
    return CellRouter(apis[0], {api: f"{api}/healthz" for api in apis})


def test_a_new_cell_moves_only_the_calls_that_it_receives() -> None:
    calls = [str(number) for number in range(8_000)]
    before = {call: cells(APIS[:-1]).rank_cells(call)[0] for call in calls}
    after = {call: cells(APIS).rank_cells(call)[0] for call in calls}
    assert all(900 < count < 1_100 for count in Counter(after.values()).values())
    assert {after[call] for call in calls if after[call] != before[call]} == {"api.c8.voice.test"}


def test_a_gateway_must_be_in_its_own_list() -> None:
    with pytest.raises(ValueError, match="VOICE_CELLS does not contain this cell"):
        GatewaySettings(**{**SETTINGS, "api_url": "https://api.c9.voice.test"})
    assert GatewaySettings(**SETTINGS).cells == {"https://api.c1.voice.test": "https://media.c1.voice.test/healthz"}


async def test_a_cell_is_checked_again_after_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    router, clock, checks = cells(APIS[:2]), iter((3.0, 7.9, 8.1)), list[str]()

    async def check(name: str) -> bool:
        checks.append(name)
        return True

    monkeypatch.setattr(router, "_check_health", check)
    monkeypatch.setattr("voice_gateway.cells.time", SimpleNamespace(monotonic=lambda: next(clock)))
    call = next(each for each in map(str, range(99)) if router.rank_cells(each)[0] != router.own_name)
    for count in (1, 1, 2):
        assert await router.select_cell(call, ()) == "api.c2.voice.test"
        assert checks == ["api.c2.voice.test"] * count


def test_gateways_of_all_versions_rank_cells_alike() -> None:
    """Gateways share no state, so during an update, two versions must send a call to the same cell."""
    assert [name.split(".")[1] for name in cells(APIS[:4]).rank_cells("call-1")] == ["c4", "c2", "c3", "c1"]
    assert [name.split(".")[1] for name in cells(APIS[:4]).rank_cells("call-2")] == ["c2", "c3", "c1", "c4"]


async def test_requests_for_a_cell_share_a_running_check(monkeypatch: pytest.MonkeyPatch) -> None:
    router, may_answer, checks = cells(APIS[:2]), asyncio.Event(), list[str]()

    async def check(name: str) -> bool:
        checks.append(name)
        await may_answer.wait()
        return True

    clock = iter((100.0, 200.0, 200.1))
    monkeypatch.setattr(router, "_check_health", check)
    monkeypatch.setattr("voice_gateway.cells.time", SimpleNamespace(monotonic=lambda: next(clock)))
    call = next(each for each in map(str, range(99)) if router.rank_cells(each)[0] != router.own_name)
    selecting = [asyncio.create_task(router.select_cell(call, ())) for _ in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    may_answer.set()
    assert [await each for each in selecting] == ["api.c2.voice.test"] * 2
    assert checks == ["api.c2.voice.test"]


@pytest.mark.parametrize("own", [0, 1])
async def test_only_its_own_cell_is_not_checked(monkeypatch: pytest.MonkeyPatch, own: int) -> None:
    router = CellRouter(APIS[own], {api: f"{api}/healthz" for api in APIS[:2]})
    check = AsyncMock(return_value=False)
    monkeypatch.setattr(router, "_check_health", check)
    other = f"api.c{2 - own}.voice.test"
    assert await router.select_cell("any", [other]) == router.own_name
    check.assert_not_awaited()
    assert await router.select_cell("any", [router.own_name]) is None
    check.assert_awaited_once_with(other)


async def test_a_call_without_a_cell_that_has_capacity_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    router = cells(APIS[:2])
    monkeypatch.setattr(router, "_check_health", AsyncMock(return_value=False))
    assert await router.select_cell("any", ["api.c2.voice.test"]) == "api.c1.voice.test"
    assert await router.select_cell("any", ["api.c1.voice.test"]) is None, "the other does not answer"
    assert await router.select_cell("any", ["api.c1.voice.test", "api.c2.voice.test"]) is None
    assert router.parse_cell_names("api.c2.voice.test,api.c9.voice.test") == {"api.c2.voice.test"}
    assert router.get_api_url("api.c2.voice.test") == APIS[1]


@pytest.mark.parametrize(("status", "is_healthy"), [(200, True), (204, False), (307, False), (503, False)])
async def test_a_cell_is_healthy_if_its_health_check_answers_200(
    caplog: pytest.LogCaptureFixture, status: int, is_healthy: bool
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status} Any\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        router = CellRouter(APIS[0], {APIS[0]: "", APIS[1]: f"http://127.0.0.1:{port}/healthz"})
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            selected = await router.select_cell("any", ["api.c1.voice.test"])
    assert selected == ("api.c2.voice.test" if is_healthy else None)
    logged = [record.__dict__["fields"] for record in caplog.records if record.name == "voice_gateway.cells"]
    assert logged == ([] if is_healthy else [{"cell": "api.c2.voice.test"}])


async def test_a_cell_that_does_not_answer_within_a_second_is_unhealthy(monkeypatch: pytest.MonkeyPatch) -> None:
    created: list[float] = []

    def create(*, timeout: float) -> AsyncMock:
        created.append(timeout)
        client = AsyncMock()
        client.__aenter__.return_value.get.side_effect = httpx2.ConnectTimeout("late")
        return client

    monkeypatch.setattr("voice_gateway.cells.httpx2.AsyncClient", create)
    assert await cells(APIS[:2]).select_cell("any", ["api.c1.voice.test"]) is None
    assert created == [1.0]


SETTINGS: dict[str, Any] = {
    "deployment": "test", "fleet": "gateway", "http_port": 1, "media_port": 2, "rtp_port": 3, "token_key": "k" * 44,
    "token_ttl_s": 1, "authorizer": "none", "media_host": "media.c1.voice.test", "idle_timeout_s": 1,
    "drain_timeout_s": 1, "reconnect_grace_s": 1, "end_of_turn_ms": 1, "session_max_s": 1, "caller_sessions": 1,
    "caller_creations_per_s": 1, "max_connections": 1, "allowed_origins": "", "api_url": "https://api.c1.voice.test",
    "cells": "https://api.c1.voice.test=https://media.c1.voice.test/healthz",
}  # fmt: skip


@pytest.fixture
async def two(tmp_path: Path, rtp_port: int) -> AsyncIterator[list[Cell]]:
    found = [Cell(tmp_path / name, rtp_port) for name in ("one", "two")]
    addresses = ",".join(each.address for each in found)
    with ExitStack() as running:
        for each in found:
            running.enter_context(each.running(VOICE_CELLS=addresses, VOICE_API_URL=each.gateway.url))
        for each, other in (found, found[::-1]):
            await each.serves_what_is_full_at(other)
        yield found


async def test_every_cell_routes_a_call_by_its_hash(two: list[Cell]) -> None:
    landed = Counter[str]()
    for call in map(str, range(20)):
        for asked in two:
            answer = await asked.post(call, follow=True)
            assert answer.status_code == 201, answer.text
            assert answer.json()["events"].startswith(f"{owner(two, call).gateway.url}/v1/sessions/")
        landed[owner(two, call).gateway.url] += 1
    assert len(landed) == 2


async def test_a_full_cell_redirects_and_a_single_cell_rejects(two: list[Cell]) -> None:
    one, other = two
    call = call_of(two, one)
    one.fill()
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while (answer := await one.post(call)).status_code == 201:
            await asyncio.sleep(0.1)
    assert (answer.status_code, answer.headers["Location"]) == (
        307, f"{other.gateway.url}{SESSIONS}?full={one.name}"
    )  # fmt: skip
    for asked in two:
        answer = await asked.post(call, follow=True)
        assert answer.json()["events"].startswith(other.gateway.url)
    other.fill()
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while (answer := await one.post(call, follow=True)).status_code == 201:
            await asyncio.sleep(0.1)
    assert (answer.status_code, answer.json()["error"]) == (503, "no capacity")


async def test_calls_of_a_lost_cell_are_routed_elsewhere(two: list[Cell]) -> None:
    one, other = two
    call = call_of(two, other)
    assert (await one.post(call)).headers["Location"] == f"{other.gateway.url}{SESSIONS}"
    other.gateway.kill()
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while (answer := await one.post(call)).status_code == 307:
            await asyncio.sleep(0.1)
    assert answer.status_code == 201
    assert answer.json()["events"].startswith(one.gateway.url)


async def test_voice_call_follows_redirects_to_the_cell(two: list[Cell]) -> None:
    for each in two:
        async with each.gateway.client() as client:
            session = await Session.open(client, each.gateway.url, "websocket")
            assert session.media.websocket
            await session.close()
