"""`voice images manifest` and `verify`: what is signed of a file, and what a registry has of it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from blueprint.signing import manifest, verified
from ops.cli import app
from tests.blueprint.documents import ABSENT, Edits, edited
from tests.registry import Registry, SigningKey, registry

# Made by cosign: cosign.pub and dir-img-cosign-valid of signature/fixtures in containers/image.
COSIGN_KEY = """\
-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEFNLqFhf4fiN6o/glAuYnq2jYUeL0
vRuLu/z39pmbVwS9ff5AYnlwaP9sxREajdLY9ynM6G1sy6AAmb7Z63TsLg==
-----END PUBLIC KEY-----
"""
COSIGN_TEXT = (
    b'{"critical":{"identity":{"docker-reference":"192.168.64.2:5000/cosign-signed-single-sample"},'
    b'"image":{"docker-manifest-digest":"sha256:634a8f35b5f16dcf4aaa0822adc0b1964bb786fca12f6831de8ddc45e5986a00"},'
    b'"type":"cosign container image signature"},"optional":null}'
)
COSIGN_SIGNATURE = "MEYCIQDmtamqYPjMg81nqeBhptrPls44aA/r7PwLmspINJY4MwIhANKRpqe2E9UCBtGFdPoz/8jAbaQm4uP4h+IpwKTE6ClR"


def voice(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["images", *map(str, arguments)])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registry(tmp_path_factory.mktemp("registry")) as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        yield running


def test_what_cosign_signed_is_verified() -> None:
    assert verified(COSIGN_KEY, COSIGN_SIGNATURE, COSIGN_TEXT)
    assert not verified(COSIGN_KEY, COSIGN_SIGNATURE, COSIGN_TEXT.replace(b"634a", b"634b"))
    assert not verified(COSIGN_KEY, "no base64", COSIGN_TEXT)


def written(edits: Edits, folder: Path) -> Path:
    file = folder / "deployment.yaml"
    file.write_text(edited(edits))
    return file


def signed(images: dict[str, str], key: SigningKey, *, of: dict[str, str] | None = None) -> Edits:
    """A file's images, and the key's signature of them or of others."""
    signature = key.sign(manifest(images if of is None else of).encode())
    return {"images": images, "image_signing": {"public_key": key.public, "signature": signature}}


def test_what_is_signed_is_printed(tmp_path: Path) -> None:
    images = {"telemetry": f"sha256:{'b' * 64}", "gateway": f"sha256:{'a' * 64}"}
    shown = voice("manifest", written({"images": images}, tmp_path)).stdout
    assert json.loads(shown) == images
    assert shown == manifest(images)


def test_each_image_is_asked_for(served: Registry, tmp_path: Path) -> None:
    key = SigningKey(tmp_path, "pipeline")
    images = {
        "gateway": served.push("gateway", "signed", key=key),
        "telemetry": served.push("telemetry", "unsigned"),
        "vad-dataplane": served.push("vad-dataplane", "stranger", key=SigningKey(tmp_path, "stranger")),
        "whisper-engine": served.push("whisper-engine", "swapped"),
    }
    served.sign("whisper-engine", images["whisper-engine"], key, names=images["gateway"])
    found = voice("verify", written(signed(images, key), tmp_path), "--registry", f"{served.host}/voice")
    assert found.exit_code == 1
    shown = {line.split(":")[0]: line for line in found.stdout.splitlines()}
    assert {"✓ images", "✓ gateway", "✗ telemetry", "✗ vad-dataplane", "✗ whisper-engine"} == set(shown)
    assert f"no signature of {images['telemetry']} can be read" in shown["✗ telemetry"]
    assert "not by the file's key" in shown["✗ vad-dataplane"]
    assert f"is for {images['gateway']}, not for {images['whisper-engine']}" in shown["✗ whisper-engine"]


def test_the_list_of_digests_is_signed_too(served: Registry, tmp_path: Path) -> None:
    key = SigningKey(tmp_path, "pipeline")
    images = {"gateway": served.push("gateway", "alone", key=key)}
    for of, listed in ((images, True), ({"gateway": f"sha256:{'a' * 64}"}, False)):
        file = written(signed(images, key, of=of), tmp_path)
        asked = voice("verify", file, "--registry", f"{served.host}/voice", "--json")
        assert json.loads(asked.stdout)["signed"] == {"images": listed, "gateway": True}
        assert asked.exit_code == (0 if listed else 1)


def test_a_file_without_a_key_is_refused(tmp_path: Path) -> None:
    refused = voice("verify", written({"image_signing": ABSENT}, tmp_path), "--registry", "localhost:1/voice")
    assert refused.exit_code == 2
    assert "has no image_signing" in refused.stderr
