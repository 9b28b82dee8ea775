"""`voice images manifest` and `verify`: the signed content of a file, and a registry's signatures."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.blueprint.documents import ABSENT, Edits, edit_document
from tests.registry import Registry, SigningKey, registry
from voice_blueprint.signing import format_digest_manifest, is_signature_valid
from voice_ops.cli import app

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
def local_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registry(tmp_path_factory.mktemp("registry")) as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        yield running


def test_cosign_signatures_are_verified() -> None:
    assert is_signature_valid(COSIGN_KEY, COSIGN_SIGNATURE, COSIGN_TEXT)
    assert not is_signature_valid(COSIGN_KEY, COSIGN_SIGNATURE, COSIGN_TEXT.replace(b"634a", b"634b"))
    assert not is_signature_valid(COSIGN_KEY, "no base64", COSIGN_TEXT)


def write_file(edits: Edits, folder: Path) -> Path:
    file = folder / "deployment.yaml"
    file.write_text(edit_document(edits))
    return file


def signing_edits(images: dict[str, str], key: SigningKey, *, of: dict[str, str] | None = None) -> Edits:
    """Return a file's images with the key's signature of them or of others."""
    signature = key.sign(format_digest_manifest(images if of is None else of).encode())
    return {"images": images, "image_signing": {"public_key": key.public, "signature": signature}}


def test_the_signed_content_is_printed(tmp_path: Path) -> None:
    images = {"telemetry": f"sha256:{'b' * 64}", "gateway": f"sha256:{'a' * 64}"}
    shown = voice("manifest", write_file({"images": images}, tmp_path)).stdout
    assert json.loads(shown) == images
    assert shown == format_digest_manifest(images)


def test_the_signature_of_each_image_is_requested(local_registry: Registry, tmp_path: Path) -> None:
    key = SigningKey(tmp_path, "pipeline")
    images = {
        "gateway": local_registry.push("gateway", "signed", key=key),
        "telemetry": local_registry.push("telemetry", "unsigned"),
        "vad-dataplane": local_registry.push("vad-dataplane", "stranger", key=SigningKey(tmp_path, "stranger")),
        "whisper-engine": local_registry.push("whisper-engine", "swapped"),
    }
    local_registry.sign("whisper-engine", images["whisper-engine"], key, names=images["gateway"])
    found = voice(
        "verify", write_file(signing_edits(images, key), tmp_path), "--registry", f"{local_registry.host}/voice"
    )
    assert found.exit_code == 1
    shown = {line.split(":")[0]: line for line in found.stdout.splitlines()}
    assert {"✓ images", "✓ gateway", "✗ telemetry", "✗ vad-dataplane", "✗ whisper-engine"} == set(shown)
    assert f"cannot read a signature of {images['telemetry']}" in shown["✗ telemetry"]
    assert "not made with the key of the file" in shown["✗ vad-dataplane"]
    assert f"is for {images['gateway']}, not for {images['whisper-engine']}" in shown["✗ whisper-engine"]


def test_the_list_of_digests_is_signed_too(local_registry: Registry, tmp_path: Path) -> None:
    key = SigningKey(tmp_path, "pipeline")
    images = {"gateway": local_registry.push("gateway", "alone", key=key)}
    for of, listed in ((images, True), ({"gateway": f"sha256:{'a' * 64}"}, False)):
        file = write_file(signing_edits(images, key, of=of), tmp_path)
        asked = voice("verify", file, "--registry", f"{local_registry.host}/voice", "--json")
        assert json.loads(asked.stdout)["signed"] == {"images": listed, "gateway": True}
        assert asked.exit_code == (0 if listed else 1)


def test_a_file_without_a_key_is_refused(tmp_path: Path) -> None:
    refused = voice("verify", write_file({"image_signing": ABSENT}, tmp_path), "--registry", "localhost:1/voice")
    assert refused.exit_code == 2
    assert "has no image_signing" in refused.stderr
