"""The data plane's image: what stands in two places is the same in both."""

import re

import pytest

from blueprint.contract.images import Image
from blueprint.images import BuiltImage, TcpHealth, specs
from voice_constructs.aws.vad import DATAPLANE_CAPABILITIES

SPEC = specs()[Image.VAD_DATAPLANE]
assert isinstance(SPEC, BuiltImage)
FOLDER = SPEC.folder
DOCKERFILE = (FOLDER / "Dockerfile").read_text(encoding="utf-8")


def test_hosts_give_it_the_capabilities_that_it_is_tried_with() -> None:
    assert SPEC.capabilities == DATAPLANE_CAPABILITIES


def test_load_balancers_ask_the_port_that_the_image_says() -> None:
    assert SPEC.health == TcpHealth(port="contract.VAD_HEALTH")


@pytest.mark.parametrize("what", [r"-mcpu=\S+(?= ;;)", r"sed -i -E '[^']+'"])
def test_it_is_cross_compiled_as_it_is_built(what: str) -> None:
    [found] = re.findall(what, DOCKERFILE)
    cross = [(FOLDER / "cross" / name).read_text(encoding="utf-8") for name in ("arm64.ini", "run.sh")]
    assert sum(text.count(found) for text in cross) == 1


def test_the_sysroot_has_the_libraries_of_the_build() -> None:
    wanted = (FOLDER / "cross/sysroot.txt").read_text(encoding="utf-8").split()
    in_the_base = {"libstdc++6"}
    assert {*re.findall(r'"([a-z0-9-]+-dev)=', DOCKERFILE)} == {*wanted} - in_the_base
