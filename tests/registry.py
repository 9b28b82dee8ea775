"""Local container registry over TLS with ECR's user name, images and signatures."""

import base64
import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from voice_sandbox.hosts.certificates import CertificateAuthority
from voice_sandbox.hosts.servers import ServerProcess
from voice_sandbox.loopback import find_free_port

PASSWORD = "an-ecr-password"
_PASSWORD_HASH = "AWS:$2b$05$JgxU4CgiNh03t6cnQON8wehVmQjit12T1hQ6TQV4IhPeMTaDiKPAa"  # bcrypt hash of the password above
_CONFIG_MEDIA_TYPE = "application/vnd.oci.image.config.v1+json"
_LAYER_MEDIA_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
_SIGNATURE_MEDIA_TYPE = "application/vnd.dev.cosign.simplesigning.v1+json"
_MANIFEST_MEDIA_TYPE = "application/vnd.oci.image.manifest.v1+json"


class SigningKey:
    """A pipeline's key pair, stored in a folder by name."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = folder / f"{name}.pem"
        if not self._file.exists():
            _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(self._file))
        self.public = _openssl("ec", "-in", str(self._file), "-pubout").decode()

    def sign(self, content: bytes) -> str:
        """Return a signature in the format of `cosign sign-blob`."""
        return _base64(_openssl("dgst", "-sha256", "-sign", str(self._file), given=content))


@dataclass(frozen=True)
class Registry:
    """A running registry.

    Attributes:
        host: Its name and port.
        environment: Variables for clients: they trust its certificate, and skopeo signs in.
    """

    host: str
    environment: dict[str, str]
    _folder: Path

    def push(self, image: str, content: str, *, key: SigningKey | None = None, tag: str | None = None) -> str:
        """Push an image of one file, tagged with its name by default, and optionally a signature.

        Returns:
            Digest of the image.
        """
        digest = self._push(_image(content), image, tag or content)
        if key:
            self.sign(image, digest, key)
        return digest

    def sign(self, image: str, digest: str, key: SigningKey, *, names: str | None = None) -> None:
        """Add a signature to an image; it may contain another digest.

        Follows cosign's specification of signatures (specs/SIGNATURE_SPEC.md of sigstore/cosign).
        """
        text = {
            "critical": {
                "identity": {"docker-reference": f"{self.host}/voice/{image}"},
                "image": {"docker-manifest-digest": names or digest},
                "type": "cosign container image signature",
            },
            "optional": None,
        }
        payload = json.dumps(text, separators=(",", ":")).encode()
        self._push(_signature(payload, key.sign(payload)), image, f"{digest.replace(':', '-')}.sig")

    def _push(self, blobs: "Blobs", image: str, tag: str) -> str:
        with TemporaryDirectory() as layout:
            blobs.write(Path(layout))
            digest = Path(layout) / "digest"
            name = f"docker://{self.host}/voice/{image}:{tag}"
            command = ["skopeo", "copy", "--quiet", "--digestfile", str(digest), f"oci:{layout}", name]
            subprocess.run(command, env=os.environ | self.environment, check=True)  # noqa: S603
            return digest.read_text()

    def blobs(self) -> list[Path]:
        """Return the stored blobs."""
        return list((self._folder / "storage").rglob("data"))


@contextmanager
def registry(folder: Path) -> Iterator[Registry]:
    """Run Debian's registry on this machine, initially empty."""
    authority = CertificateAuthority(folder / "authority")
    certificate, key = authority.issue("localhost", folder)
    port = find_free_port()
    (folder / "users").write_text(_PASSWORD_HASH + "\n")
    settings = {
        "version": 0.1,
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "storage")}},
        "http": {"addr": f"127.0.0.1:{port}", "tls": {"certificate": str(certificate), "key": str(key)}},
        "auth": {"htpasswd": {"realm": "ecr", "path": str(folder / "users")}},
    }
    (folder / "registry.yaml").write_text(json.dumps(settings))
    host = f"localhost:{port}"
    login = {"auths": {host: {"auth": _base64(f"AWS:{PASSWORD}".encode())}}}
    (folder / "auth.json").write_text(json.dumps(login))
    environment = {
        "CURL_CA_BUNDLE": str(authority.file),
        "SSL_CERT_FILE": str(authority.file),
        "REGISTRY_AUTH_FILE": str(folder / "auth.json"),
    }
    command = ["docker-registry", "serve", str(folder / "registry.yaml")]
    server = ServerProcess(command, folder / "registry.log", "127.0.0.1", port)
    try:
        yield Registry(host, environment, folder)
    finally:
        server.close()


class Blobs:
    """Content of an OCI layout: blobs by digest and one manifest."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    def add(self, kind: str, data: bytes, **annotations: str) -> dict[str, object]:
        """Add a blob and return its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        self._blobs[digest] = data
        descriptor: dict[str, object] = {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}
        return descriptor | ({"annotations": annotations} if annotations else {})

    def write(self, folder: Path) -> None:
        files = folder / "blobs/sha256"
        files.mkdir(parents=True)
        *_, manifest = self._blobs.values()
        index = {"schemaVersion": 2, "manifests": [self.add(_MANIFEST_MEDIA_TYPE, manifest)]}
        for digest, data in self._blobs.items():
            (files / digest).write_bytes(data)
        (folder / "index.json").write_text(json.dumps(index))
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


def _image(content: str) -> Blobs:
    """Create an image whose one layer has one empty file."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(content))
    return _blobs(_LAYER_MEDIA_TYPE, gzip.compress(tar.getvalue(), mtime=0), tar.getvalue())


def _signature(payload: bytes, signature: str) -> Blobs:
    return _blobs(_SIGNATURE_MEDIA_TYPE, payload, payload, **{"dev.cosignproject.cosign/signature": signature})


def _blobs(kind: str, layer: bytes, unpacked: bytes, **annotations: str) -> Blobs:
    blobs = Blobs()
    diff = f"sha256:{hashlib.sha256(unpacked).hexdigest()}"
    config = {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [diff]}}
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST_MEDIA_TYPE,
        "config": blobs.add(_CONFIG_MEDIA_TYPE, json.dumps(config).encode()),
        "layers": [blobs.add(kind, layer, **annotations)],
    }
    blobs.add(_MANIFEST_MEDIA_TYPE, json.dumps(manifest).encode())
    return blobs


def _openssl(*arguments: str, given: bytes = b"") -> bytes:
    return subprocess.run(["openssl", *arguments], input=given, capture_output=True, check=True).stdout  # noqa: S603, S607


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
