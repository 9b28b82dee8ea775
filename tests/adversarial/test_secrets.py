"""A secret that is planted in the tree, a template, a log or a layer is found; and none is there."""

import gzip
import io
import json
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from images.gateway.tests.conftest import Start
from images.gateway.tests.running import TOKEN_KEY, holds
from tests.adversarial.secret_scan import in_archive, in_text, main
from tests.contract.sources import SANDBOX
from tests.synthesized import ROOT

# In parts: whole they would be found in this file.
PLANTED = {
    "AWS Access Key": "AKIA" + "Q3EGRIK5XN2MPL7T",
    "GitHub Token": "ghp_" + "x7Kq2" * 7 + "a",
    "Private Key": "-----BEGIN " + "RSA PRIVATE KEY-----MIIEpAIBAAKCAQEA1c7+9z5Pad7OejecsQ0bu==",
    "Slack Token": "xoxb-" + "263594206564-2343594206574-FGqddMF8t08v8N7Oq4i57vs1",
    "Basic Auth Credentials": "rediss://gateway:" + "Sup3rGeheim@store.internal:6379",
    "Hugging Face token": "hf_" + "aB3dE5gH7jK9" * 2 + "mN1pQ3sT5v",
    "JSON Web Token": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiJjYWxsZXIifQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
}
secret = pytest.mark.parametrize(("kind", "planted"), PLANTED.items(), ids=PLANTED)


def test_the_tree_has_no_secret() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607
    # Parsers are given tokens that nobody has signed.
    names = [name for name in listed.stdout.split("\0") if name and "/corpus/" not in name]
    assert len(names) > 1000
    files = [(name, (ROOT / name).read_bytes()) for name in names if (ROOT / name).is_file()]
    texts = [(name, content.decode("utf-8", "replace")) for name, content in files if b"\0" not in content[:512]]
    assert [found for name, text in texts for found in in_text(name, text)] == []


def test_no_template_has_a_secret() -> None:
    assert [
        found for tier, template in SANDBOX.items() for found in in_text(tier, json.dumps(template, indent=1))
    ] == []


@secret
def test_one_in_a_file_of_the_tree_is_found(kind: str, planted: str) -> None:
    text = (ROOT / "ops/cli.py").read_text(encoding="utf-8")
    assert f"ops/cli.py:{text.count(chr(10)) + 1}: {kind}" in in_text("ops/cli.py", f'{text}KEY = "{planted}"\n')


@secret
def test_one_in_a_template_is_found(kind: str, planted: str) -> None:
    text = json.dumps(SANDBOX["vad"]).replace("systemctl", f"systemctl {planted} ", 1)
    assert planted in text
    assert f"vad:1: {kind}" in in_text("vad", text)


async def test_no_log_has_a_secret_and_one_in_a_log_is_found(start: Start) -> None:
    password = PLANTED["GitHub Token"]
    gateway = start(VALKEY_PASSWORD=password)
    await holds("it says that the store refuses the password", lambda: bool(gateway.lines))
    log = "".join(gateway.lines)
    assert log
    assert list(in_text("log", log)) == []
    assert TOKEN_KEY not in log
    assert list(in_text("log", f"{log}AUTH {password}\n"))


def layer(files: dict[str, str]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return written.getvalue()


@secret
def test_one_in_a_layer_is_found_though_the_next_deletes_it(kind: str, planted: str, tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    layers = [layer({"app/settings.py": f"a = 1\nkey = '{planted}'\n"}), layer({"app/.wh.settings.py": ""})]
    with tarfile.open(archive, "w") as tar:
        for number, content in enumerate(map(gzip.compress, layers)):
            member = tarfile.TarInfo(f"blobs/sha256/{number}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    assert list(in_archive(archive)) == [f"image.tar/blobs/sha256/0/app/settings.py:2: {kind}"]
    assert main([str(archive)]) == 1


def test_a_layer_without_secrets_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = tmp_path / "image.tar"
    archive.write_bytes(
        layer({"readme": "the key is in Secrets Manager", "library.so": "\0" + PLANTED["GitHub Token"]})
    )
    assert main([str(archive)]) == 0
    assert re.search("no secrets in .*image.tar", capsys.readouterr().out)
