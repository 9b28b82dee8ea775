"""Every command line that the shipped deployment files render for an engine, a cache or a router of a cell."""

import itertools
import socket
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.blueprint.launch.samples import DEPLOYMENTS, deployment, launchers
from tests.synthesized import shipped, user_data
from tests.userdata.machine import Machine
from voice_blueprint.contract.images import Image
from voice_blueprint.engines.launch import Launcher
from voice_blueprint.engines.launch.lmcache import LmcacheServer
from voice_blueprint.engines.launch.pd_router import PdRouter
from voice_blueprint.engines.launch.vllm import VllmServer
from voice_blueprint.file.model.aws import AsrFleet, Engine

REFUSED_DEPLOYMENT = "seed"
"""Shipped deployment file that the checks refuse."""


@dataclass(frozen=True)
class OnHost(Launcher):
    """A container of an EC2 host, as its user data starts it."""

    argv: tuple[str, ...]
    variables: Mapping[str, str]

    def build_command(self) -> tuple[str, ...]:
        """Return the arguments of ``docker run`` after the image."""
        return self.argv

    def build_environment(self) -> dict[str, str]:
        """Return the variables of its environment file."""
        return dict(self.variables)


@cache
def rendered() -> dict[str, Launcher]:
    """Return the processes that can be tested without a GPU, by file and name.

    vLLM-Omni does not support CPUs, so its output is compared with its table of flags.
    """
    found: dict[str, Launcher] = {}
    for file in DEPLOYMENTS:
        for name, launcher in launchers(deployment(file)):
            if isinstance(launcher, VllmServer | LmcacheServer | PdRouter):
                found[f"{file}: {name}"] = launcher
        for fleet in vllm_fleets(file):
            found[f"{file}: {fleet.name}, user data"] = on_host(file, fleet.name)
    return found


def vllm_fleets(file: str) -> Iterator[AsrFleet]:
    """Yield a file's fleets whose hosts run vLLM; none for a file that is never deployed."""
    aws = deployment(file).aws_section
    if aws and file != REFUSED_DEPLOYMENT:
        yield from (fleet for fleet in aws.asr if fleet.engine is Engine.VLLM)


@cache
def on_host(file: str, fleet: str) -> OnHost:
    """Run the user data of a fleet's launch template in a fake root folder, and return its vLLM container."""
    (template,) = shipped(file)[f"asr-{fleet}"].properties("EC2::LaunchTemplate")
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        machine = Machine(Path(folder), server.getsockname()[1])
        for disk in ("nvme1n1", "nvme2n1"):
            machine.write(f"sys/block/{disk}/device/model", "Amazon EC2 NVMe Instance Storage        \n")
        script = Path(folder) / "user-data"
        script.write_text(user_data(template), encoding="utf-8")
        machine.set("fail", "systemctl start")  # the boot ends after it has written the units that it would start
        machine.run(script)
        machine.boot()
        name = Image.ASR_VLLM.value
        argv = _after_image(machine.file(f"run/voice/{name}.arguments").splitlines())
        lines = machine.file(f"run/voice/{name}.env").splitlines()
        return OnHost(tuple(argv), dict(line.partition("=")[::2] for line in lines if "=" in line))


def _after_image(arguments: list[str]) -> list[str]:
    """Return the container's own command, after the options of ``docker run`` and the image."""
    image, *argv = itertools.dropwhile(lambda argument: argument.startswith("-"), arguments)
    assert "@sha256:" in image, f"{image} is no image"
    return argv
