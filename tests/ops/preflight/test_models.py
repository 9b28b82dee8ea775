"""Licenses and access to weights; a local server replaces Hugging Face and accepts one token."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.blueprint.documents import Edits
from tests.ops.preflight.conftest import load_edited
from voice_ops.preflight.models import check_deployment_file, check_licences, check_model_access
from voice_ops.preflight.report import CheckStatus


@pytest.fixture
def hub() -> Iterator[str]:
    """Serve a hub with one gated, one hidden and one broken repository."""
    status = {"Voxtral-Small-24B-2507": 200, "Voxtral-4B-TTS-2603": 403, "Qwen3-8B": 500}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers["Authorization"] == "Bearer mine"
            repository = self.path.split("/")[-2] if self.path.endswith("/auth-check") else ""
            self.send_response(status[repository] if known else 401)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_access_is_queried_with_the_token(hub: str, tmp_path: Path) -> None:
    deployment = load_edited({}, tmp_path, "production-azure")
    rows = {row.question: row for row in check_model_access(deployment, {"HF_TOKEN": "mine", "HF_ENDPOINT": hub})}
    found = {asked.removeprefix("weights of "): row for asked, row in rows.items() if asked.startswith("weights")}
    assert found["mistralai/Voxtral-Small-24B-2507"].status is CheckStatus.PASSED
    gated = found["mistralai/Voxtral-4B-TTS-2603"]
    assert gated.status is CheckStatus.BLOCKING
    assert gated.remedy == f"accept the terms at {hub}/mistralai/Voxtral-4B-TTS-2603 as the token's owner"
    assert found["Qwen/Qwen3-8B"].status is CheckStatus.UNKNOWN


def test_a_wrong_token_blocks_and_is_not_shown(hub: str, tmp_path: Path) -> None:
    deployment = load_edited({}, tmp_path, "production-azure")
    rows = list(check_model_access(deployment, {"HF_TOKEN": "another", "HF_ENDPOINT": hub}))
    assert [row.status for row in rows if row.question.startswith("weights")] == [CheckStatus.BLOCKING] * 3
    assert "another" not in str(rows)


def test_an_unreachable_hub_is_reported(tmp_path: Path) -> None:
    deployment = load_edited({}, tmp_path, "both")
    environment = {"HF_TOKEN": "mine", "HF_ENDPOINT": "http://127.0.0.1:9"}
    row = list(check_model_access(deployment, environment))[-1]
    assert row.status is CheckStatus.UNKNOWN
    assert row.result.startswith("cannot reach http://127.0.0.1:9: ")


def test_without_a_token_no_request_is_made(tmp_path: Path) -> None:
    rows = list(check_model_access(load_edited({}, tmp_path, "both"), {}))
    assert {row.status for row in rows if row.question.startswith("weights")} == {CheckStatus.SKIPPED}


AGREEMENT = {"model": "voxtral-4b-tts", "reference": "contract 4711 of 2026-10-01"}


@pytest.mark.parametrize(
    ("edits", "status", "message"),
    [
        ({}, CheckStatus.PASSED, "CC-BY-NC-4.0"),
        ({"azure.commercial": True}, CheckStatus.BLOCKING, "CC-BY-NC-4.0"),
        (
            {"azure.commercial": True, "azure.model_agreements": [AGREEMENT]},
            CheckStatus.PASSED,
            "CC-BY-NC-4.0; agreement: contract 4711 of 2026-10-01",
        ),
    ],
)
def test_a_license_must_allow_the_use(edits: Edits, status: CheckStatus, message: str, tmp_path: Path) -> None:
    rows = {row.question: row for row in check_licences(load_edited(edits, tmp_path, "production-azure"))}
    row = rows["licence of voxtral-4b-tts"]
    assert (row.status, row.result) == (status, message)


def test_images_without_a_digest_are_listed(tmp_path: Path) -> None:
    assert [row.status for row in check_deployment_file(load_edited({}, tmp_path))] == [CheckStatus.PASSED]
    (row,) = check_deployment_file(load_edited({"images": {}}, tmp_path))
    assert (row.status, "whisper-engine" in row.result) == (CheckStatus.WARNING, True)
