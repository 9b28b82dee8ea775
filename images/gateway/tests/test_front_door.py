"""A gateway's own request to the public host name: success, and each kind of failure."""

import asyncio
import json
import ssl
from pathlib import Path
from unittest.mock import AsyncMock, Mock, patch
from unittest.mock import call as calls

import pytest

from images.gateway.tests.clocks import VirtualTime
from images.gateway.tests.front_doors import DAYS, door, localhost_certificate, server
from images.gateway.tests.running import GatewayProcess
from voice_blueprint.contract.session_api import SESSION_PATH, TOKEN_HEADER
from voice_gateway.public_hosts import PROBE_ID, PublicHostProber
from voice_sandbox.loopback import find_free_port

observe = calls.observe


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return localhost_certificate(tmp_path_factory.mktemp("front-door"))


def observed(door: PublicHostProber, lines: list[str]) -> dict[str, float]:
    door.metrics.flush()
    values = [json.loads(line) for line in lines]
    return {name: each[name] for each in values for name in each.keys() & {"FrontDoorAnswers", "CertificateDays"}}


async def test_a_successful_check_publishes_the_certificates_remaining_days(certificate: Path) -> None:
    async with server(certificate, b"HTTP/1.1 200 OK\r\n\r\n") as port:
        found, lines = door(port, certificate)
        assert await found.check_hosts()
    values = observed(found, lines)
    assert values["FrontDoorAnswers"] == 1
    assert DAYS - 1 < values["CertificateDays"] <= DAYS


@pytest.mark.parametrize("answer", [b"HTTP/1.1 503 Service Unavailable\r\n\r\n", b"", b"nonsense\r\n"])
async def test_an_unexpected_response_is_not_counted(certificate: Path, answer: bytes) -> None:
    async with server(certificate, answer) as port:
        found, lines = door(port, certificate)
        assert not await found.check_hosts()
    assert observed(found, lines) == {"FrontDoorAnswers": 0}


async def test_an_untrusted_certificate_is_not_counted(certificate: Path) -> None:
    async with server(certificate, b"HTTP/1.1 200 OK\r\n\r\n") as port:
        found, lines = door(port)
        assert not await found.check_hosts()
    assert observed(found, lines) == {"FrontDoorAnswers": 0}


async def test_a_refused_connection_is_not_counted() -> None:
    found, lines = door(find_free_port())
    assert not await found.check_hosts()
    assert observed(found, lines) == {"FrontDoorAnswers": 0}


async def test_an_unresponsive_server_is_not_counted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voice_gateway.public_hosts.PROBE_TIMEOUT_S", 0.2)
    async with server(certificate, None) as port:
        found, lines = door(port, certificate)
        assert not await found.check_hosts()
    assert observed(found, lines) == {"FrontDoorAnswers": 0}


@pytest.mark.parametrize(
    ("api_host", "answer", "answers"),
    [
        ("localhost", b"HTTP/1.1 401 Unauthorized\r\n\r\n", 1),
        ("localhost", b"HTTP/1.1 403 Forbidden\r\n\r\n", 0),  # no route, no mapping of the name, or a web firewall
        ("localhost", b"HTTP/1.1 504 Gateway Timeout\r\n\r\n", 0),
        ("api.invalid", b"", 0),  # the name does not resolve
        ("127.0.0.1", b"HTTP/1.1 401 Unauthorized\r\n\r\n", 0),  # the certificate is another name's
    ],
)
async def test_the_session_api_s_name_has_to_answer_too(
    certificate: Path, api_host: str, answer: bytes, answers: int
) -> None:
    async with server(certificate, b"HTTP/1.1 200 OK\r\n\r\n", answer) as port:
        found, lines = door(port, certificate, api_host)
        assert await found.check_hosts() == bool(answers)
    assert observed(found, lines)["FrontDoorAnswers"] == answers


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "GET /healthz answers 503 Service Unavailable"),
        (b"HTTP/1.1 2000\r\n\r\n", "GET /healthz answers 2000"),
        (b"", "GET /healthz answers nothing"),
    ],
)
async def test_the_log_contains_an_unexpected_status(
    certificate: Path, caplog: pytest.LogCaptureFixture, answer: bytes, reason: str
) -> None:
    async with server(certificate, answer) as port:
        await door(port, certificate)[0].check_hosts()
    assert [record.__dict__["fields"] for record in caplog.records] == [{"host": "localhost", "reason": reason}]


async def test_public_names_are_requested_on_port_443(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = AsyncMock(side_effect=OSError)
    monkeypatch.setattr("voice_gateway.public_hosts.asyncio.open_connection", connect)
    metrics = Mock()
    assert not await PublicHostProber("media.voice.test", metrics, api_host="api.voice.test").check_hosts()
    assert [call.args for call in connect.call_args_list] == [("media.voice.test", 443), ("api.voice.test", 443)]
    for call in connect.call_args_list:
        assert call.kwargs["ssl"].verify_mode is ssl.CERT_REQUIRED
        assert call.kwargs["server_hostname"] == call.args[0]
    assert metrics.mock_calls == [observe("FrontDoorAnswers", 0)]


@pytest.mark.parametrize(
    ("days", "values"),
    [
        ((30.0, 20.0), [observe("FrontDoorAnswers", 1), observe("CertificateDays", 20.0)]),
        ((None, 20.0), [observe("FrontDoorAnswers", 0), observe("CertificateDays", 20.0)]),
        ((30.0, None), [observe("FrontDoorAnswers", 0), observe("CertificateDays", 30.0)]),
        ((None, None), [observe("FrontDoorAnswers", 0)]),
    ],
)
async def test_the_certificate_that_expires_first_counts(days: tuple[float | None, ...], values: list[object]) -> None:
    metrics = Mock()
    with patch.object(PublicHostProber, "_try_probe", AsyncMock(side_effect=days)):
        found = PublicHostProber("media.voice.test", metrics, api_host="api.voice.test")
        assert await found.check_hosts() == (None not in days)
    assert metrics.mock_calls == values


async def test_public_names_are_requested_every_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, requested_at = VirtualTime(monkeypatch, "voice_gateway.public_hosts"), list[float]()

    async def check(_: PublicHostProber) -> bool:
        requested_at.append(clock.now)
        return True

    monkeypatch.setattr(PublicHostProber, "check_hosts", check)
    running = asyncio.create_task(PublicHostProber("media.voice.test", Mock()).run())
    await clock.run_for(150)
    running.cancel()
    assert requested_at == pytest.approx([0, 60, 120])


async def test_the_gateway_answers_the_request_to_the_session_api_with_401(gateway: GatewayProcess) -> None:
    async with gateway.client() as client:
        answer = await client.delete(SESSION_PATH.format(id=PROBE_ID), headers={TOKEN_HEADER: PROBE_ID})
    assert answer.status_code == 401
