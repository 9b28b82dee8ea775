"""A probe compares a release with the previous one."""

import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from voice_ops.call.session import AccessRejectedError, CallError, Session
from voice_ops.rollout import probe
from voice_ops.rollout.aws import create_probe
from voice_ops.rollout.probe import MAX_PROBE_ATTEMPTS, CallMeasurement, calculate_word_error_rate


@pytest.mark.parametrize(
    ("reference", "transcript", "wrong"),
    [
        ("Go on, please.", "go on please", 0.0),
        ("one two three four", "one two four", 0.25),
        ("one two three four", "one too three three four", 0.5),
        ("one two", "", 1.0),
        ("one two", "three four five", 1.5),
    ],
)
def test_words_are_counted_regardless_of_case_and_punctuation(reference: str, transcript: str, wrong: float) -> None:
    assert calculate_word_error_rate(reference, transcript) == wrong


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (CallMeasurement(0.10, 1.0), ""),
        (CallMeasurement(0.16, 1.0), "16% of the words are wrong, 10% before"),
        (CallMeasurement(0.10, 2.0), ""),
        (CallMeasurement(0.10, 2.1), "takes 2.10 s, compared with 1.00 s before"),
    ],
)
def test_a_release_is_compared_with_the_previous_one(now: CallMeasurement, reason: str) -> None:
    assert reason in now.describe_regression(CallMeasurement(0.10, 1.0))
    assert bool(reason) == bool(now.describe_regression(CallMeasurement(0.10, 1.0)))


GOOD = CallMeasurement(0.0, 1.0)
UNREACHABLE = CallError("https://api.voice.example.com/v1/sessions returned 503: no capacity")
EXPIRED = AccessRejectedError("https://api.voice.example.com/v1/sessions returned 401: the token has expired")
Calls = Callable[..., tuple[Callable[[], str], list[float]]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Calls:
    """Return a function that creates a probe whose successive calls have these results, and its pauses."""

    def create(*results: CallMeasurement | CallError) -> tuple[Callable[[], str], list[float]]:
        left, pauses = iter((GOOD, *results)), list[float]()

        def measure_call(*_: object) -> CallMeasurement:
            result = next(left)
            if isinstance(result, CallError):
                raise result
            return result

        monkeypatch.setattr(probe, "measure_call", measure_call)
        monkeypatch.setattr(time, "sleep", pauses.append)
        said, text = tmp_path / "said.wav", tmp_path / "said.txt"
        text.write_text("go on please", encoding="utf-8")
        return create_probe("https://api.voice.example.com", None, None, said, text), pauses

    return create


def test_a_call_that_fails_is_made_again_before_a_rollout_is_rolled_back(calls: Calls) -> None:
    compare, pauses = calls(UNREACHABLE, UNREACHABLE, GOOD)
    assert compare() == ""
    assert len(pauses) == 2


def test_calls_that_fail_one_after_another_roll_a_rollout_back(calls: Calls) -> None:
    compare, pauses = calls(*[UNREACHABLE] * MAX_PROBE_ATTEMPTS)
    assert compare() == f"{MAX_PROBE_ATTEMPTS} calls failed one after another, the last with: {UNREACHABLE}"
    assert len(pauses) == MAX_PROBE_ATTEMPTS - 1


def test_a_worse_call_is_not_made_again(calls: Calls) -> None:
    compare, pauses = calls(CallMeasurement(0.5, 1.0))
    assert "50% of the words are wrong" in compare()
    assert pauses == []


def test_a_token_that_expires_ends_the_probe_and_not_the_rollout(
    calls: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    compare, pauses = calls(EXPIRED)
    assert (compare(), compare(), pauses) == ("", "", [])
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("returned 401: the token has expired") == 1
    assert "no more test calls are made, and only alarms roll the rollout back" in said


@pytest.mark.parametrize(
    ("code", "body", "kind"),
    [
        (401, '{"error": "Unauthorized", "detail": "UNAUTHORIZED"}', AccessRejectedError),
        (403, '{"error": "User is not authorized", "detail": "ACCESS_DENIED"}', AccessRejectedError),
        (403, "<html>Forbidden</html>", AccessRejectedError),
        (403, '["WAF_FILTERED"]', AccessRejectedError),
        (403, '{"error": "Forbidden", "detail": "WAF_FILTERED"}', CallError),
        (503, "", CallError),
    ],
)
async def test_rejected_credentials_are_distinguished_from_other_failures(
    code: int, body: str, kind: type[CallError]
) -> None:
    """The web firewall blocks an address with too many requests regardless of its credentials."""
    transport = httpx2.MockTransport(lambda _: httpx2.Response(code, text=body))
    async with httpx2.AsyncClient(transport=transport) as client:
        with pytest.raises(CallError) as raised:
            await Session.open(client, "https://api.voice.example.com", "websocket")
    assert type(raised.value) is kind
