"""Requests for a client secret, without a store; test_client_sockets.py covers OpenAI's own package."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from redis.exceptions import RedisError
from starlette.requests import Request

from voice_gateway import client_secrets
from voice_gateway.client_secrets import create_client_secret
from voice_gateway.refusals import Refusal
from voice_runtime.sessions import Session, SessionKind, SessionState

EXPIRES_AT = datetime(2026, 11, 29, 12, 0, 0, 900_000, UTC)


class Api:
    """The route, with a gateway that opens every session.

    Attributes:
        gateway: The gateway.
        opened: Requests for sessions, and the settings that are kept for the socket.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.gateway = SimpleNamespace(
            settings=SimpleNamespace(token_ttl_s=300),
            sessions=SimpleNamespace(start_grace_period=AsyncMock()),
            tokens=SimpleNamespace(create=lambda session_id: (f"secret of {session_id}", EXPIRES_AT)),
        )
        self.authenticate = AsyncMock(return_value="shop")
        monkeypatch.setattr(client_secrets, "authenticate_by_key", self.authenticate)
        monkeypatch.setattr(client_secrets, "open_session", self._open_session)

    async def _open_session(self, _: object, caller: str, request: Any, *, realtime: str) -> Session:
        assert caller == "shop"
        self.opened.append((request.model_dump(exclude_unset=True), json.loads(realtime)))
        self.session = Session(
            ssrc=7, id="s7", state=SessionState.OPEN, kind=SessionKind.GATEWAY, caller=caller,
            expires_at=2_000_000_000, language=request.language, end_of_turn_ms=request.end_of_turn_ms or 600,
            realtime=realtime,
        )  # fmt: skip
        return self.session

    async def post(self, body: bytes) -> tuple[int, dict[str, Any], dict[str, str]]:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        app = SimpleNamespace(state=SimpleNamespace(gateway=self.gateway))
        response = await create_client_secret(Request({"type": "http", "headers": [], "app": app}, receive))
        return response.status_code, json.loads(bytes(response.body)), dict(response.headers)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    return Api(monkeypatch)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"session": {"type": "transcription"}}'])
async def test_a_secret_without_settings_opens_a_session_with_the_defaults(api: Api, body: bytes) -> None:
    """Its session waits for the page as long as the secret is valid."""
    status, answer, headers = await api.post(body)
    assert (status, headers["cache-control"]) == (200, "no-store")
    assert (answer["value"], answer["expires_at"]) == ("secret of s7", 1_795_953_600)
    assert (answer["session"]["type"], answer["session"]["id"]) == ("transcription", "sess_s7")
    assert answer["session"]["audio"]["input"]["format"] == {"type": "audio/pcm", "rate": 24_000}
    ((request, realtime),) = api.opened
    assert request == {"transport": "websocket", "language": None, "end_of_turn_ms": None, "prompt": None}
    assert realtime == {}
    api.gateway.sessions.start_grace_period.assert_awaited_once_with(api.session, 300)


async def test_settings_apply_to_the_session_and_to_the_socket(api: Api) -> None:
    """Only settings that the server has sent replace the defaults of the socket."""
    about = {
        "format": {"type": "audio/pcmu"},
        "transcription": {"language": "de", "prompt": "A call", "keywords": ["Valkey"]},
        "turn_detection": {"type": "server_vad", "silence_duration_ms": 0},
    }
    _, answer, _ = await api.post(json.dumps({"session": {"audio": {"input": about}}}).encode())
    ((request, realtime),) = api.opened
    assert request == {
        "transport": "websocket", "language": "de", "end_of_turn_ms": 0, "prompt": "A call. Valkey",
    }  # fmt: skip
    assert realtime == about
    assert answer["session"]["audio"]["input"]["turn_detection"] == about["turn_detection"]


async def test_a_secret_without_turn_detection_is_one_without(api: Api) -> None:
    _, answer, _ = await api.post(b'{"session": {"audio": {"input": {"turn_detection": null}}}}')
    ((request, realtime),) = api.opened
    assert (request["end_of_turn_ms"], realtime) == (None, {"turn_detection": None})
    assert answer["session"]["audio"]["input"]["turn_detection"] is None


@pytest.mark.parametrize(
    ("body", "parameter", "message"),
    [
        ({"session": {"type": "realtime"}}, "session.type", "of an agent"),
        ({"session": {"type": "a"}}, "session.type", "of an agent"),
        ({"session": {"audio": {"input": {"format": {"type": "a"}}}}}, "session.audio.input.format.type", "audio/pcm"),
        ({"zzz": 1, "session": 1}, "session", "an object"),
        ([], "body", "an object"),
        ({"session": {"type": "realtime", "audio": 1}}, "session.type", "of an agent"),
    ],
)
async def test_an_invalid_body_is_refused_with_its_first_invalid_field(
    api: Api, body: object, parameter: str, message: str
) -> None:
    status, answer, _ = await api.post(json.dumps(body).encode())
    assert (status, answer["error"]["param"]) == (400, parameter)
    assert message in answer["error"]["message"]
    assert ("of an agent" in answer["error"]["message"]) == (parameter == "session.type")
    assert api.opened == []


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [(RedisError(), 503, "server_error"), (Refusal(401, "no token", "send a key"), 401, "authentication_error")],
)
async def test_refusals_have_the_format_of_openai(api: Api, error: Exception, status: int, kind: str) -> None:
    api.authenticate.side_effect = error
    found, answer, _ = await api.post(b"{}")
    assert (found, answer["error"]["type"]) == (status, kind)
