"""The repository, templates, logs and layers contain no secrets, and planted secrets are detected."""

import gzip
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from images.gateway.tests.conftest import Start
from images.gateway.tests.running import TOKEN_KEY, holds
from tests.contract.sources import SANDBOX
from tests.synthesized import ROOT
from voice_ops.images.secret_scan import main, scan_archive, scan_text
from voice_userdata.render import unpack_script

# Split, because complete secrets would be detected in this file.
PLANTED_SECRETS = {
    "AWS Access Key": "AKIA" + "Q3EGRIK5XN2MPL7T",
    "GitHub Token": "ghp_" + "x7Kq2" * 7 + "a",
    "Private Key": "-----BEGIN " + "RSA PRIVATE KEY-----MIIEpAIBAAKCAQEA1c7+9z5Pad7OejecsQ0bu==",
    "Slack Token": "xoxb-" + "263594206564-2343594206574-FGqddMF8t08v8N7Oq4i57vs1",
    "Basic Auth Credentials": "rediss://gateway:" + "Sup3rGeheim@store.internal:6379",
    "Hugging Face token": "hf_" + "aB3dE5gH7jK9" * 2 + "mN1pQ3sT5v",
    "JSON Web Token": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiJjYWxsZXIifQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
}
secret = pytest.mark.parametrize(("kind", "planted"), PLANTED_SECRETS.items(), ids=PLANTED_SECRETS)


def test_the_repository_contains_no_secret() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607
    # Parsers are given unsigned tokens.
    names = [name for name in listed.stdout.split("\0") if name and "/corpus/" not in name]
    assert len(names) > 1000
    files = [(name, (ROOT / name).read_bytes()) for name in names if (ROOT / name).is_file()]
    texts = [(name, content.decode("utf-8", "replace")) for name, content in files if b"\0" not in content[:512]]
    assert [found for name, text in texts for found in scan_text(name, text)] == []


def deployed_text(template: Mapping[str, Any]) -> str:
    """Return a template with its strings as deployed, and user data with its steps decompressed."""
    return unpack_script(json.dumps(template, indent=1).replace("\\n", "\n").replace('\\"', '"'))


def test_no_template_contains_a_secret() -> None:
    assert [found for tier, template in SANDBOX.items() for found in scan_text(tier, deployed_text(template))] == []


@secret
def test_a_secret_in_a_repository_file_is_detected(kind: str, planted: str) -> None:
    text = (ROOT / "voice_ops/cli.py").read_text(encoding="utf-8")
    assert f"voice_ops/cli.py:{text.count(chr(10)) + 1}: {kind}" in scan_text(
        "voice_ops/cli.py", f'{text}KEY = "{planted}"\n'
    )


@secret
def test_a_secret_in_a_template_is_detected(kind: str, planted: str) -> None:
    text = deployed_text(SANDBOX["vad"]).replace("systemctl", f"systemctl {planted} ", 1)
    assert planted in text
    line = text[: text.index(planted)].count("\n") + 1
    assert f"vad:{line}: {kind}" in scan_text("vad", text)


async def test_logs_contain_no_secret_and_a_planted_one_is_detected(start: Start) -> None:
    password = PLANTED_SECRETS["GitHub Token"]
    gateway = start(VALKEY_PASSWORD=password)
    await holds("it says that the store refuses the password", lambda: bool(gateway.lines))
    log = "".join(gateway.lines)
    assert log
    assert list(scan_text("log", log)) == []
    assert TOKEN_KEY not in log
    assert list(scan_text("log", f"{log}AUTH {password}\n"))


def layer(files: dict[str, str]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return written.getvalue()


@secret
def test_a_secret_in_a_layer_is_detected_although_the_next_layer_deletes_it(
    kind: str, planted: str, tmp_path: Path
) -> None:
    archive = tmp_path / "image.tar"
    layers = [layer({"app/settings.py": f"a = 1\nkey = '{planted}'\n"}), layer({"app/.wh.settings.py": ""})]
    with tarfile.open(archive, "w") as tar:
        for number, content in enumerate(map(gzip.compress, layers)):
            member = tarfile.TarInfo(f"blobs/sha256/{number}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    assert list(scan_archive(archive)) == [f"image.tar/blobs/sha256/0/app/settings.py:2: {kind}"]
    assert main([str(archive)]) == 1


def test_a_layer_without_secrets_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = tmp_path / "image.tar"
    archive.write_bytes(
        layer({"readme": "the key is in Secrets Manager", "library.so": "\0" + PLANTED_SECRETS["GitHub Token"]})
    )
    assert main([str(archive)]) == 0
    assert re.search("no secrets in .*image.tar", capsys.readouterr().out)
