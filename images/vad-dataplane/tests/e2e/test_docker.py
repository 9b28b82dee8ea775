"""The program in a real Docker container, with the arguments that a host's user data renders.

Docker's seccomp profile refuses system calls by capability, which no other test of the program covers.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from audio import silence, speech
from docker_engine import (
    HUGE_PAGES,
    MODULE,
    Docker,
    archive_of_build,
    rendered_arguments,
    reserve_huge_pages,
    return_huge_pages,
)
from network import QUEUES, Network
from running import AsrHost, Caller, DataPlane, Store, wait_for

from voice_blueprint import huge_pages

PAGES = 256
AF_XDP = pytest.mark.parametrize("path", ["af_xdp"], indirect=True, scope="session")


@pytest.fixture(scope="module")
def docker(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Docker]:
    folder = tmp_path_factory.mktemp("docker")
    engine = Docker(folder, network)
    engine.load(archive_of_build(folder))
    reserve_huge_pages(PAGES)
    yield engine
    return_huge_pages()
    engine.stop()


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return rendered_arguments(tmp_path_factory.mktemp("rendered"))


@AF_XDP
def test_a_host_starts_with_its_rendered_arguments(
    docker: Docker, rendered: list[str], store: Store, plane: DataPlane, tmp_path: Path
) -> None:
    plane.environment["VOICE_VAD_MODULE"] = MODULE
    plane.command = docker.command(rendered, tmp_path, plane.environment)
    asr = AsrHost(store, plane.port("VOICE_CHUNK_PORT"))
    plane.start()
    plane.knows_host()
    used = PAGES - int((HUGE_PAGES / "free_hugepages").read_text())
    needed = huge_pages.calculate_huge_page_count(plane.port("VOICE_MAX_SESSIONS"), QUEUES, size_mib=2)
    swapped = QUEUES * (huge_pages.VAD_BYTES_PER_QUEUE >> 20) / 2
    assert needed - swapped - 0.2 * needed <= used <= needed, "voice_blueprint/huge_pages.py has the program's sizes"
    caller = Caller(plane, 0x1234)
    store.open_session(caller.ssrc)
    caller.enter()
    caller.say(silence(2) + speech() + silence(3))
    wait_for("the end of the utterance", lambda: asr.has_ended(caller.ssrc))
    asr.die()


@AF_XDP
def test_without_sys_nice_docker_denies_memory_placement(
    docker: Docker, rendered: list[str], plane: DataPlane, tmp_path: Path
) -> None:
    plane.environment["VOICE_VAD_MODULE"] = MODULE
    fewer = [option for option in rendered if option != "--cap-add=SYS_NICE"]
    plane.command = docker.command(fewer, tmp_path, plane.environment)
    with pytest.raises(AssertionError, match="set_mempolicy: Operation not permitted"):
        plane.start()
