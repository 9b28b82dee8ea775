"""A host pulls images that the pipeline's key has signed, from a real registry."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.registry import Registry, SigningKey, registry
from tests.userdata import hosts
from tests.userdata.machine import Machine
from tests.userdata.test_failures import assert_abandoned
from voice_blueprint.signing import extract_pem_body
from voice_userdata import HostImageConfig, HostUserDataConfig, render_bake_script

TELEMETRY = "telemetry"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return SigningKey(tmp_path_factory.mktemp("key"), "ours")


@pytest.fixture
def machine(machine: Machine, served: Registry) -> Machine:
    machine.environment = served.environment
    return machine


def boot(served: Registry, key: SigningKey, port: int, digest: str) -> HostUserDataConfig:
    """Return a host with two images in the registry: a signed data plane, and the given telemetry."""
    signed = served.push("vad-dataplane", "signed", key=key)
    uris = {"vad-dataplane": signed, TELEMETRY: digest}
    host = hosts.vad(port)
    containers = tuple(
        replace(container, image_uri=uri(served, container.name, uris[container.name])) for container in host.containers
    )
    return replace(host, containers=containers, signing_key=extract_pem_body(key.public))


def uri(served: Registry, name: str, digest: str) -> str:
    return f"{served.host}/voice/{name}@{digest}"


def test_signed_images_are_pulled(served: Registry, ours: SigningKey, machine: Machine, ready_port: int) -> None:
    host = boot(served, ours, ready_port, served.push(TELEMETRY, "good", key=ours))
    assert machine.launch(host).returncode == 0, machine.log
    assert [line.split()[-1] for line in machine.transcript if line.startswith("docker pull")] == [
        container.image_uri for container in host.containers
    ]
    assert not any("an-ecr-password" in line for line in machine.transcript)


def unsigned(served: Registry, _ours: SigningKey) -> str:
    return served.push(TELEMETRY, "unsigned")


def signed_by_another(served: Registry, _ours: SigningKey) -> str:
    with TemporaryDirectory() as folder:
        return served.push(TELEMETRY, "stranger", key=SigningKey(Path(folder), "another"))


def signature_of_another_image(served: Registry, ours: SigningKey) -> str:
    digest = served.push(TELEMETRY, "swapped")
    served.sign(TELEMETRY, digest, ours, names=served.push(TELEMETRY, "signed-too"))
    return digest


def tampered_text(served: Registry, ours: SigningKey) -> str:
    """Change the signed text in the registry: another digest, the same signature."""
    other, digest = served.push(TELEMETRY, "before"), served.push(TELEMETRY, "after")
    served.sign(TELEMETRY, digest, ours, names=other)
    texts = [blob for blob in served.blobs() if b"docker-manifest-digest" in blob.read_bytes()]
    for text in texts:
        text.write_bytes(text.read_bytes().replace(other.encode(), digest.encode()))
    return digest


@pytest.mark.parametrize("wrong", [unsigned, signed_by_another, signature_of_another_image, tampered_text])
def test_another_image_is_not_pulled(
    wrong: Callable[[Registry, SigningKey], str],
    served: Registry,
    ours: SigningKey,
    machine: Machine,
    ready_port: int,
) -> None:
    digest = wrong(served, ours)
    host = boot(served, ours, ready_port, digest)
    reason = f"images: {uri(served, TELEMETRY, digest)} is not signed with the key of image_signing"
    assert_abandoned(machine, host, reason)
    assert not any("docker pull" in line and TELEMETRY in line for line in machine.transcript)


def test_unsigned_images_are_not_baked(served: Registry, ours: SigningKey, machine: Machine, tmp_path: Path) -> None:
    machine.set("images")
    images = {TELEMETRY: uri(served, TELEMETRY, served.push(TELEMETRY, "unsigned-too"))}
    script = tmp_path / "bake"
    script.write_text(
        render_bake_script(HostImageConfig("us-east-1", images, signing_key=extract_pem_body(ours.public)), "bake")
    )
    baked = machine.run(script)
    assert baked.returncode != 0
    assert "is not signed with the key" in baked.stderr
