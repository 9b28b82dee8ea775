"""`voice call` and `voice loadtest` authenticate to a server that checks credentials like API Gateway."""

import json
import re
import wave
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from typer.testing import CliRunner

from voice_ops.call.access import AuthorizerType, CredentialsError, create_header_provider
from voice_ops.cli import app
from voice_ops.exits import FAILED, INVALID_INPUT

KEY_ID, SECRET = "AKIDEXAMPLE", "not-a-secret"
ADMITTED_STATUS = 418
"""Response to authenticated clients; neither command uses it otherwise."""


class Gate(BaseHTTPRequestHandler):
    """Server that accepts one signer, one API key and one token."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        known = (
            self.headers.get("x-api-key") == "the-key"
            or self.headers.get("Authorization") == "Bearer the-token"
            or self._is_signed(body)
        )
        answer = json.dumps({"error": "known" if known else "unknown caller"}).encode()
        self.send_response(ADMITTED_STATUS if known else 403)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _is_signed(self, body: bytes) -> bool:
        said = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=\S+/(\d+)/([a-z0-9-]+)/execute-api/aws4_request, "
            r"SignedHeaders=(\S+), Signature=(\S+)",
            self.headers.get("Authorization", ""),
        )
        if said is None:
            return False
        signed = {name: self.headers[name] for name in said[3].split(";")}
        request = AWSRequest("POST", f"http://{signed['host']}{self.path}", data=body, headers=signed)
        request.context["timestamp"] = self.headers["X-Amz-Date"]
        judge = SigV4Auth(Credentials(KEY_ID, SECRET), "execute-api", said[2])
        return judge.signature(judge.string_to_sign(request, judge.canonical_request(request)), request) == said[4]

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    gate = ThreadingHTTPServer(("127.0.0.1", 0), Gate)
    Thread(target=gate.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{gate.server_port}/prod"
    gate.shutdown()
    gate.server_close()


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    file = tmp_path / "speech.wav"
    with wave.open(str(file), "wb") as out:
        out.setparams((1, 2, 16_000, 0, "NONE", ""))
        out.writeframes(bytes(32_000))
    return file


@pytest.fixture(autouse=True)
def caller(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ACCESS_KEY_ID", KEY_ID), ("SECRET_ACCESS_KEY", SECRET), ("DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HELD", "the-key")
    monkeypatch.setenv("TOKEN", "the-token")


AUTHENTICATIONS = [
    (["--auth", "iam"], ADMITTED_STATUS),
    (["--auth", "api-key", "--api-key-env", "HELD"], ADMITTED_STATUS),
    (["--api-key-env", "HELD"], ADMITTED_STATUS),
    (["--auth", "jwt", "--api-key-env", "TOKEN"], ADMITTED_STATUS),
    (["--auth", "jwt", "--api-key-env", "HELD"], 403),
    ([], 403),
]


@pytest.mark.parametrize(
    ("options", "status"), AUTHENTICATIONS, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
@pytest.mark.parametrize("command", ["call", "loadtest"])
def test_callers_authenticate(server: str, recording: Path, command: str, options: list[str], status: int) -> None:
    asked = {
        "call": ["call", str(recording), "--server", server],
        "loadtest": ["loadtest", server, "--api", "session", "--audio", str(recording)],
    }
    done = CliRunner().invoke(app, [*asked[command], *options])
    assert done.exit_code == FAILED
    assert str(status) in done.stderr


@pytest.mark.parametrize("command", ["call", "loadtest"])
def test_a_wrong_secret_is_refused(server: str, recording: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    test_callers_authenticate(server, recording, command, ["--auth", "iam"], 403)


def test_region_is_derived_from_the_server_name() -> None:
    server = "https://abc.execute-api.eu-west-1.amazonaws.com/prod"
    headers = create_header_provider(AuthorizerType.IAM, None, server)("POST", f"{server}/v1/sessions", b"{}")
    assert "/eu-west-1/execute-api/" in headers["Authorization"]


def test_missing_credentials_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for auth, secret, said in (
        (AuthorizerType.JWT, None, "requires a secret"),
        (AuthorizerType.API_KEY, None, "requires a secret"),
        (AuthorizerType.IAM, "x", "does not use --api-key-env"),
    ):
        with pytest.raises(CredentialsError, match=said):
            create_header_provider(auth, secret, "http://localhost")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(CredentialsError, match="localhost does not contain one: set AWS_REGION"):
        create_header_provider(AuthorizerType.IAM, None, "http://localhost")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(CredentialsError, match="none were found: set AWS_PROFILE"):
        create_header_provider(AuthorizerType.IAM, None, "http://localhost")


def test_load_test_of_another_api_only_accepts_a_bearer_key(server: str) -> None:
    done = CliRunner().invoke(app, ["loadtest", server, "--api", "chat", "--model", "m", "--auth", "iam"])
    assert done.exit_code == INVALID_INPUT
    assert "--auth only applies to session" in done.stderr
