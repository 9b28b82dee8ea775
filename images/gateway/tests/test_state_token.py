"""The sidecar with a stand-in for Microsoft Entra: its requests, its file, and the effect of failures."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs

import httpx2
import pytest
from pydantic import ValidationError

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.json_server import JsonServer
from voice_gateway import state_token


class Entra(JsonServer):
    """Responds as the token endpoint does.

    Https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.refuses = False
        self.lives_s = 1
        super().__init__()
        self.url += "/"

    def respond(self, path: str, body: str) -> tuple[int, object]:
        self.asked.append((path, parse_qs(body)))
        token = {"token_type": "Bearer", "expires_in": self.lives_s, "access_token": f"t{len(self.asked)}"}
        return (401, {"error": "invalid_client"}) if self.refuses else (200, token)


@pytest.fixture
def entra() -> Iterator[Entra]:
    found = Entra()
    yield found
    found.stop()


@pytest.fixture
def environment(entra: Entra, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "identity").write_text("a.service.account\n")
    return {
        "AZURE_CLIENT_ID": "client",
        "AZURE_TENANT_ID": "tenant",
        "AZURE_AUTHORITY_HOST": entra.url,
        "AZURE_FEDERATED_TOKEN_FILE": str(tmp_path / "identity"),
        "VOICE_STATE_TOKEN_FILE": str(tmp_path / "token"),
        "PYTHONPATH": ":".join(filter(None, sys.path)),
    }


def wait_for(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + BUSY_TIMEOUT_S
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_the_token_file_is_renewed_before_expiry(entra: Entra, environment: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "token"
    with subprocess.Popen([sys.executable, "-m", "voice_gateway.state_token"], env=environment) as program:
        wait_for(lambda: file.exists() and file.read_text() == "t2")
        program.terminate()
    assert file.stat().st_mode & 0o777 == 0o640, "other users may not read it"
    path, form = entra.asked[0]
    assert path == "/tenant/oauth2/v2.0/token"
    assert form["client_assertion"] == ["a.service.account"]
    assert form["scope"] == ["https://redis.azure.com/.default"]
    assert form["client_assertion_type"] == ["urn:ietf:params:oauth:client-assertion-type:jwt-bearer"]


def test_a_failed_renewal_keeps_the_last_token_and_is_retried(
    entra: Entra, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = state_token.TokenSettings()
    entra.lives_s = 3600
    with httpx2.Client() as client:
        assert state_token.refresh_token_file(settings, client) == 1800
        entra.refuses = True
        assert state_token.refresh_token_file(settings, client) == state_token.RETRY_DELAY_S
        assert (tmp_path / "token").read_text() == "t1"
        entra.stop()
        assert state_token.refresh_token_file(settings, client) == state_token.RETRY_DELAY_S


@pytest.mark.parametrize(("token", "lives_s", "is_valid"), [("t", 1, True), ("", 1, False), ("t", 0, False)])
def test_an_empty_or_expired_token_is_not_written(token: str, lives_s: int, is_valid: bool, tmp_path: Path) -> None:
    (tmp_path / "identity").write_text("a.service.account\n")
    settings = state_token.TokenSettings(
        azure_client_id="c",
        azure_tenant_id="t",
        azure_federated_token_file=tmp_path / "identity",
        voice_state_token_file=tmp_path / "token",
    )
    assert settings.azure_authority_host == "https://login.microsoftonline.com/"
    answer = httpx2.Response(200, json={"access_token": token, "expires_in": lives_s})
    with httpx2.Client(transport=httpx2.MockTransport(lambda _: answer)) as client:
        assert state_token.refresh_token_file(settings, client) == (0.5 if is_valid else state_token.RETRY_DELAY_S)
    assert (tmp_path / "token").exists() is is_valid


@pytest.mark.parametrize("name", ["AZURE_CLIENT_ID", "AZURE_TENANT_ID"])
def test_an_empty_variable_is_not_accepted(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for variable, value in environment.items():
        monkeypatch.setenv(variable, "" if variable == name else value)
    with pytest.raises(ValidationError, match=name.lower()):
        state_token.TokenSettings()


def test_missing_variables_are_reported_in_one_line(environment: dict[str, str]) -> None:
    del environment["AZURE_CLIENT_ID"]
    run = subprocess.run(
        [sys.executable, "-m", "voice_gateway.state_token"],
        env=environment, capture_output=True, text=True, timeout=BUSY_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (2, "AZURE_CLIENT_ID is not set\n")
