"""Task protection while calls are active, against a simulated ECS endpoint and a store with the tier's user."""

import asyncio
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.exceptions import ConnectionError as NotYet

from images.conftest import until
from voice_blueprint.contract.environment import VALKEY_PASSWORD
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.state import REVISION_KEY_BY_TIER, STATE_USERS
from voice_runtime import protection
from voice_runtime.protection import (
    AGENT_URI_VARIABLE,
    MAX_PROTECTION_AFTER_REPLACEMENT_S,
    METADATA_URI_VARIABLE,
    RENEWAL_INTERVAL_S,
    TaskProtection,
)

PATIENCE_S = 60


class EcsAgent:
    """The endpoints that ECS provides to a container.

    Attributes:
        asked: Bodies of the protection requests.
    """

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.refuses = False
        self.reply = "failure"
        self.is_ready = True
        self.metadata_requests = 0
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                assert self.path == "/task"
                agent.metadata_requests += 1
                self._send({"Cluster": "voice", "Family": "gateway", "Revision": "7"}, 200 if agent.is_ready else 503)

            def do_PUT(self) -> None:
                assert self.path == "/task-protection/v1/state"
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                agent.asked.append(body)
                self._send({agent.reply: {"Reason": "DEPLOYMENT_BLOCKED"}} if agent.refuses else {"protection": body})

            def _send(self, said: dict[str, Any], status: int = 200) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(said).encode())

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def agent() -> Iterator[EcsAgent]:
    made = EcsAgent()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture(params=[Tier.GATEWAY, Tier.AGENT])
def tier(request: pytest.FixtureRequest) -> Tier:
    return Tier(request.param)


@pytest.fixture
def port(tmp_path: Path, tier: Tier) -> Iterator[int]:
    """Start a store with the tier's user and its production permissions."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (acl,) = (each.acl for each in STATE_USERS if each.tier is tier)
    arguments = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(tmp_path), "--save", ""]
    with subprocess.Popen(["redis-server", *arguments], stdout=subprocess.DEVNULL) as server:
        limit = time.monotonic() + PATIENCE_S
        while True:
            try:
                Redis(port=port).execute_command("ACL", "SETUSER", "tier", "nopass", *acl.split())  # type: ignore[no-untyped-call]
                break
            except NotYet:
                assert time.monotonic() < limit
                time.sleep(0.05)
        yield port
        server.terminate()


class Task:
    """A task of revision 7 whose calls the test controls."""

    def __init__(self, agent: EcsAgent, port: int, tier: Tier, password: str = "") -> None:
        self.calls = 0
        self.store = AsyncRedis(port=port, username="tier", password="any")
        environment = {AGENT_URI_VARIABLE: agent.url, METADATA_URI_VARIABLE: agent.url, VALKEY_PASSWORD.name: password}
        self.protection = TaskProtection(self.store, tier, lambda: self.calls > 0, environment)

    async def update(self, now: float) -> None:
        await self.protection.update("7", now)


async def test_task_protection_follows_the_calls(agent: EcsAgent, port: int, tier: Tier) -> None:
    task = Task(agent, port, tier)
    await task.update(0.0)
    assert agent.asked == [], "an idle task may be stopped"
    task.calls = 1
    await task.update(10.0)
    await task.update(20.0)
    assert agent.asked == [{"ProtectionEnabled": True, "ExpiresInMinutes": 6}]
    await task.update(9.0 + RENEWAL_INTERVAL_S)
    assert len(agent.asked) == 1
    await task.update(10.0 + RENEWAL_INTERVAL_S)
    assert len(agent.asked) == 2, "renewed before it expires"
    task.calls = 0
    await task.update(11.0 + RENEWAL_INTERVAL_S)
    assert agent.asked[2:] == [{"ProtectionEnabled": False}]
    await task.store.aclose()


@pytest.mark.parametrize("newest", ["8", "6"], ids=["update", "rollback"])
async def test_a_replaced_task_is_protected_for_an_hour(agent: EcsAgent, port: int, tier: Tier, newest: str) -> None:
    """Its load balancer continues to send it calls, so unlimited protection would block a deployment forever."""
    task = Task(agent, port, tier)
    task.calls = 1
    await task.update(0.0)
    Redis(port=port).set(REVISION_KEY_BY_TIER[tier], newest)
    await task.update(200.0)
    await task.update(199.0 + MAX_PROTECTION_AFTER_REPLACEMENT_S)
    assert all(each["ProtectionEnabled"] for each in agent.asked)
    await task.update(200.0 + MAX_PROTECTION_AFTER_REPLACEMENT_S)
    assert agent.asked[-1] == {"ProtectionEnabled": False}
    Redis(port=port).set(REVISION_KEY_BY_TIER[tier], "7")  # the deployment was rolled back to this revision
    await task.update(300.0 + MAX_PROTECTION_AFTER_REPLACEMENT_S)
    assert agent.asked[-1] == {"ProtectionEnabled": True, "ExpiresInMinutes": 6}
    await task.store.aclose()


async def test_requests_refused_by_ecs_are_retried(agent: EcsAgent, port: int, tier: Tier) -> None:
    task = Task(agent, port, tier)
    task.calls, agent.refuses = 1, True
    await task.update(0.0)
    await task.update(10.0)
    assert len(agent.asked) == 2
    await task.store.aclose()


async def test_a_starting_task_stores_its_revision(agent: EcsAgent, port: int, tier: Tier) -> None:
    task = Task(agent, port, tier)
    revision = await task.protection.publish_revision()
    assert revision == "7:e3b0c442", "eight digits of SHA-256 of the password, which tasks of other releases compare"
    kept = Redis(port=port)
    assert kept.get(REVISION_KEY_BY_TIER[tier]) == revision.encode()
    assert 0 < int(str(kept.ttl(REVISION_KEY_BY_TIER[tier]))) <= 86_400
    await task.store.aclose()


async def test_a_task_with_another_password_replaces_those_of_the_same_revision(
    agent: EcsAgent, port: int, tier: Tier
) -> None:
    """`voice rotate` deploys the current revision again, so that tasks read the new password."""
    old, new = Task(agent, port, tier, "before the rotation"), Task(agent, port, tier, "after the rotation")
    revision, old.calls = await old.protection.publish_revision(), 1
    await old.protection.update(revision, 0.0)
    assert agent.asked[-1]["ProtectionEnabled"] is True
    assert await new.protection.publish_revision() != revision
    await old.protection.update(revision, 10.0)
    await old.protection.update(revision, 10.0 + MAX_PROTECTION_AFTER_REPLACEMENT_S)
    assert agent.asked[-1] == {"ProtectionEnabled": False}
    assert b"rotation" not in (Redis(port=port).get(REVISION_KEY_BY_TIER[tier]) or b""), (
        "the store's value contains no secret"
    )
    for task in (old, new):
        await task.store.aclose()


async def test_tasks_with_the_same_password_do_not_replace_each_other(agent: EcsAgent, port: int, tier: Tier) -> None:
    first, second = Task(agent, port, tier, "any"), Task(agent, port, tier, "any")
    assert await first.protection.publish_revision() == await second.protection.publish_revision()
    for task in (first, second):
        await task.store.aclose()


@pytest.mark.parametrize("names", [(), (AGENT_URI_VARIABLE,), (METADATA_URI_VARIABLE,)])
async def test_other_services_are_not_queried(names: tuple[str, ...]) -> None:
    environment = dict.fromkeys(names, "http://127.0.0.1:1")
    await TaskProtection(AsyncRedis(port=1), Tier.GATEWAY, lambda: True, environment).run()


async def test_a_running_task_is_checked_repeatedly(
    agent: EcsAgent, port: int, tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ECS may not answer while a task starts, and may refuse the protection for a while."""
    monkeypatch.setattr(protection, "CHECK_INTERVAL_S", 0.01)
    task = Task(agent, port, tier)
    task.calls, agent.refuses, agent.is_ready = 1, True, False
    running = asyncio.create_task(task.protection.run())
    await until(lambda: agent.metadata_requests > 1)
    assert agent.asked == []
    agent.is_ready = True
    await until(lambda: len(agent.asked) > 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await task.store.aclose()


@pytest.mark.parametrize(("reply", "reason"), [("failure", "DEPLOYMENT_BLOCKED"), ("error", "DEPLOYMENT_BLOCKED")])
async def test_the_reason_of_a_refusal_is_logged(
    agent: EcsAgent, caplog: pytest.LogCaptureFixture, reply: str, reason: str
) -> None:
    task = Task(agent, 1, Tier.GATEWAY)
    task.calls, agent.refuses, agent.reply = 1, True, reply
    await task.update(0.0)
    assert [record.message for record in caplog.records] == ["protection refused"]
    assert reason in caplog.records[0].__dict__["fields"]["reason"]


async def test_a_task_keeps_its_state_while_ecs_or_the_store_is_unavailable(
    agent: EcsAgent, caplog: pytest.LogCaptureFixture
) -> None:
    task = Task(agent, 1, Tier.GATEWAY)
    task.calls = 1
    await task.update(0.0)
    assert agent.asked == [{"ProtectionEnabled": True, "ExpiresInMinutes": 6}], "the store is not necessary for it"
    agent.server.shutdown()
    agent.server.server_close()
    for now in (RENEWAL_INTERVAL_S, RENEWAL_INTERVAL_S + 1):
        await task.update(now)
    assert [record.message for record in caplog.records] == ["protection failed"] * 2
