"""Refusals: status, time of the next try, and the words of OpenAI's clients."""

import pytest

from voice_gateway.refusals import (
    Refusal,
    build_busy_refusal,
    build_draining_refusal,
    build_no_capacity_refusal,
    build_retry_after_header,
    build_store_unavailable_refusal,
    build_unknown_session_refusal,
    to_openai_error,
)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (413, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "server_error"),
        (503, "server_error"),
    ],
)
def test_errors_have_openais_type(status: int, kind: str) -> None:
    told = to_openai_error(Refusal(status, "no capacity", "files: too many"))
    assert told == {
        "message": "files: too many",
        "type": kind,
        "param": "files" if status == 400 else None,
        "code": "no_capacity",
    }


@pytest.mark.parametrize(
    ("refusal", "status", "retry_s"),
    [
        (build_no_capacity_refusal("full"), 503, "5"),
        (build_draining_refusal(), 503, "1"),
        (build_busy_refusal(), 503, "1"),
        (build_store_unavailable_refusal(), 503, "2"),
        (build_unknown_session_refusal(), 404, None),
        (Refusal(429, "too many requests", "later", build_retry_after_header(7)), 429, "7"),
    ],
    ids=lambda each: each.error if isinstance(each, Refusal) else None,
)
def test_a_refusal_has_its_status_and_when_to_try_again(refusal: Refusal, status: int, retry_s: str | None) -> None:
    answer = refusal.to_response()
    assert (answer.status_code, answer.headers.get("Retry-After")) == (status, retry_s)


def test_a_full_region_names_the_others() -> None:
    refusal = build_no_capacity_refusal("full", ["https://a.test", "https://b.test"])
    assert refusal.detail == "full, or at https://a.test or https://b.test"
    assert refusal.elsewhere == ["https://a.test", "https://b.test"]
