"""Signatures of images in a registry, in cosign's format. They are read with skopeo, which uses docker's login."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from voice_blueprint.file.model.deployment import Deployment, ImageSigning
from voice_blueprint.signing import format_digest_manifest, is_signature_valid

_SIGNATURE_ANNOTATION = "dev.cosignproject.cosign/signature"


class RegistryError(Exception):
    """The signatures in a registry cannot be read."""


def check_signatures(deployment: Deployment, key: ImageSigning, registry: str) -> Iterator[tuple[str, str | None]]:
    """Yield the name and the problem for the file's list of digests and for each image.

    The problem is ``None`` if the signature is valid.

    Raises:
        RegistryError: skopeo is not installed.
    """
    is_manifest_signed = is_signature_valid(
        key.public_key, key.signature, format_digest_manifest(deployment.images).encode()
    )
    yield "images", None if is_manifest_signed else "the signature does not match the digests in the file"
    for image, digest in deployment.images.items():
        yield image.value, _find_signature_problem(f"{registry}/{image.value}", digest, key.public_key)


def _find_signature_problem(repository: str, digest: str, public_key: str) -> str | None:
    with TemporaryDirectory() as folder:
        name = f"docker://{repository}:{digest.replace(':', '-')}.sig"
        try:
            fetched = subprocess.run(  # noqa: S603  no shell
                ["skopeo", "copy", "--quiet", name, f"dir:{folder}"],  # noqa: S607
                capture_output=True,
                text=True,
                check=False,
            )
        except FileNotFoundError:
            raise RegistryError("skopeo, which reads signatures from registries, is not installed") from None
        if fetched.returncode:
            return f"cannot read a signature of {digest}: {fetched.stderr.strip().splitlines()[-1]}"
        signatures = list(_read_signed_payloads(Path(folder), public_key))
    if not signatures:
        return f"the signature was not made with the key of the file: {digest}"
    named = [text["critical"]["image"]["docker-manifest-digest"] for text in signatures]
    return None if digest in named else f"the signature is for {named[0]}, not for {digest}"


def _read_signed_payloads(folder: Path, public_key: str) -> Iterator[Mapping[str, Any]]:
    for layer in json.loads((folder / "manifest.json").read_bytes())["layers"]:
        text = (folder / layer["digest"].removeprefix("sha256:")).read_bytes()
        if is_signature_valid(public_key, layer["annotations"][_SIGNATURE_ANNOTATION], text):
            yield json.loads(text)
