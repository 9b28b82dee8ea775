"""The data plane's image: duplicated values are equal."""

import re

import pytest

from voice_blueprint.contract.images import Image
from voice_blueprint.images import BuiltImage, TcpHealthCheck, load_image_specs
from voice_constructs.aws.vad import DATAPLANE_CAPABILITIES

SPEC = load_image_specs()[Image.VAD_DATAPLANE]
assert isinstance(SPEC, BuiltImage)
FOLDER = SPEC.folder
DOCKERFILE = (FOLDER / "Dockerfile").read_text(encoding="utf-8")


def test_hosts_grant_the_capabilities_that_the_image_is_tested_with() -> None:
    assert SPEC.capabilities == DATAPLANE_CAPABILITIES


def test_load_balancers_check_the_port_of_the_image() -> None:
    assert SPEC.health == TcpHealthCheck(port="contract.VAD_HEALTH")


@pytest.mark.parametrize("pattern", [r"-mcpu=\S+(?= ;;)", r"sed -i -E '[^']+'"])
def test_the_data_plane_is_cross_compiled_like_a_native_build(pattern: str) -> None:
    [found] = re.findall(pattern, DOCKERFILE)
    cross = [(FOLDER / "cross" / name).read_text(encoding="utf-8") for name in ("arm64.ini", "run.sh")]
    assert sum(text.count(found) for text in cross) == 1


def test_the_sysroot_contains_the_libraries_of_the_build() -> None:
    wanted = (FOLDER / "cross/sysroot.txt").read_text(encoding="utf-8").split()
    in_the_base = {"libstdc++6"}
    assert {*re.findall(r'"([a-z0-9-]+-dev)=', DOCKERFILE)} == {*wanted} - in_the_base
