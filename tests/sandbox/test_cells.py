"""Two cells of a deployment, deployed by the real CDK to a local AWS, with real gateways."""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import ExitStack, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

import voice_blueprint
from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.cell import Cell, call_of
from tests.blueprint.documents import ABSENT, DEPLOYMENTS, Edits, edit_document, parse_yaml
from voice_blueprint.contract import environment as variables
from voice_ops.cli import app
from voice_sandbox.loopback import find_free_port
from voice_sandbox.rehearsals.aws import Rehearsal
from voice_sandbox.rehearsals.cdk import Cdk

FILE = DEPLOYMENTS / "sandbox.yaml"
EDITS: Edits = {
    "aws.availability_zones": ["us-east-1a"],
    "aws.asr": parse_yaml(FILE.read_text(encoding="utf-8"))["aws"]["asr"][:1],
    "aws.agents": ABSENT,
    "aws.host_images": ABSENT,
    "load": {"calls": 60, "peak_factor": 2},
}
NUMBERS = (1, 2)
"""Deployed cells. The load requires three cells; the third is never deployed, like a lost cell."""
NEWER_DIGEST = f"sha256:{'9' * 64}"

pytestmark = [pytest.mark.sandbox, pytest.mark.nightly]


class Account:
    """A local AWS with the deployment files of its cells."""

    def __init__(self, rehearsal: Rehearsal, files: dict[int, Path]) -> None:
        self.rehearsal, self.files = rehearsal, files

    def deploy(self, number: int) -> None:
        Cdk(self.rehearsal.aws, voice_blueprint.load(self.files[number]), self.rehearsal.home).deploy()

    def stacks(self) -> set[str]:
        return {each["StackName"] for each in self._client("cloudformation").describe_stacks()["Stacks"]}

    def task(self, number: int) -> tuple[str, dict[str, str]]:
        """Return image and environment of a cell's gateway task in ECS."""
        resources = self._client("cloudformation").describe_stack_resources(StackName=f"sandbox-{number}-edge")
        (task,) = (
            each["PhysicalResourceId"]
            for each in resources["StackResources"]
            if each["ResourceType"] == "AWS::ECS::TaskDefinition"
        )
        found = self._client("ecs").describe_task_definition(taskDefinition=task)["taskDefinition"]
        container = found["containerDefinitions"][0]
        return container["image"], {each["name"]: each["value"] for each in container["environment"]}

    def voice(self, command: str, number: int) -> None:
        result = CliRunner().invoke(app, [command, str(self.files[number]), "--yes"])
        assert result.exit_code == 0, result.output

    def _client(self, service: Any) -> Any:  # noqa: ANN401  boto3's
        return self.rehearsal.session.client(service, endpoint_url=self.rehearsal.aws.endpoint)


def write(folder: Path, number: int, **edits: str) -> Path:
    file = folder / f"cell-{number}.yaml"
    cells = {"cells": {"calls": 100, "number": number}}
    file.write_text(edit_document({**EDITS, **cells, **edits}, FILE.read_text(encoding="utf-8")), encoding="utf-8")
    return file


def local_variables(environment: dict[str, str], cells: dict[int, Cell]) -> dict[str, str]:
    """Return the variables on cells with the addresses of this machine; a cell that is not deployed has none."""
    cells_there = environment[variables.CELLS.name]
    assert cells_there.count(",") == 2
    urls = {
        number: cells[number].gateway.url if number in cells else f"http://127.0.0.1:{find_free_port()}"
        for number in (1, 2, 3)
    }

    def local(value: str) -> str:
        return re.sub(r"https://(api|media)\.c(\d)\.voice\.example\.com", lambda found: urls[int(found[2])], value)

    return {"VOICE_CELLS": local(cells_there), "VOICE_API_URL": local(environment[variables.API_URL.name])}


async def wait_until_calls_arrive(asked: Cell, call: str, at: Cell) -> None:
    """Wait until a call that is sent to one cell is opened by another."""
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while True:
            with suppress(httpx2.TransportError):  # a cell that was just lost or is not ready
                answer = await asked.post(call, follow=True)
                if answer.status_code == HTTPStatus.CREATED and answer.json()["events"].startswith(at.gateway.url):
                    return
            await asyncio.sleep(0.2)


def test_two_cells_share_the_calls_and_are_upgraded_and_removed_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("voice_ops.prune.drain", "voice_ops.aws.deletion", "voice_ops.teardown.external_resources"):
        monkeypatch.setattr(f"{module}.POLL_INTERVAL_S", 0.2)
    files = {number: write(tmp_path, number) for number in NUMBERS}
    with Rehearsal(voice_blueprint.load(files[1])) as rehearsal:
        account = Account(rehearsal, files)
        rehearsal.bootstrap()
        for name, value in rehearsal.aws.build_environment(rehearsal.home).items():
            monkeypatch.setenv(name, value)
        for number in NUMBERS:
            account.deploy(number)
        asyncio.run(calls_arrive(account, tmp_path))

        both = account.stacks()
        assert {f"sandbox-{number}-edge" for number in NUMBERS} < both
        account.voice("teardown", 1)
        assert account.stacks() == {name for name in both if not name.startswith("sandbox-1-")}
        assert account.task(2)
        account.voice("teardown", 2)
        assert dict(rehearsal.count_remaining_resources()) == {"role": len(NUMBERS)}


async def calls_arrive(account: Account, folder: Path) -> None:
    rtp_port = find_free_port(socket.SOCK_DGRAM)
    cells = {number: Cell(folder / f"cell-{number}", rtp_port) for number in NUMBERS}
    one, two = cells.values()
    tasks = {number: account.task(number) for number in NUMBERS}
    both, image = list(cells.values()), tasks[1][0]
    with ExitStack() as running:
        for number, cell in cells.items():
            running.enter_context(cell.running(**local_variables(tasks[number][1], cells)))
        # Each call is routed by its hash, independent of the cell that receives the request.
        for call, cell in ((call_of(both, cell), cell) for cell in both):
            for asked in both:
                await wait_until_calls_arrive(asked, call, cell)
        # A full cell redirects.
        two.fill()
        for asked in both:
            await wait_until_calls_arrive(asked, call_of(both, two), one)
        two.empty()
        await wait_until_calls_arrive(one, call_of(both, two), two)
        # While the first cell is upgraded, its calls are routed to the second, which is not changed.
        write(folder, 1, **{"images.gateway": NEWER_DIGEST})
        account.deploy(1)
        assert account.task(1)[0] != image
        assert account.task(2) == tasks[2]
        one.gateway.kill()
        await wait_until_calls_arrive(two, call_of(both, one), two)
        one.gateway.start()
        await wait_until_calls_arrive(two, call_of(both, one), one)
        # The second cell is lost.
        two.gateway.kill()
        await wait_until_calls_arrive(one, call_of(both, two), one)
