"""Refusals: status, time of the next try, and the words of OpenAI's clients."""

import json

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from voice_gateway.refusals import (
    Refusal,
    build_busy_refusal,
    build_draining_refusal,
    build_no_capacity_refusal,
    build_retry_after_header,
    build_store_unavailable_refusal,
    build_unknown_session_refusal,
    handle_archive_error,
    handle_client_disconnect,
    handle_http_exception,
    handle_store_error,
    to_openai_error,
    to_openai_response,
)

CONNECTION = HTTPConnection({"type": "http"})


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


@pytest.mark.parametrize(
    ("error", "status", "body"),
    [
        (Refusal(403, "foreign token", "wrong"), 403, {"error": "foreign token", "detail": "wrong"}),
        (HTTPException(404), 404, {"error": "unknown path", "detail": "Not Found"}),
        (HTTPException(405), 405, {"error": "unknown method", "detail": "Method Not Allowed"}),
        (HTTPException(413), 413, {"error": "refused", "detail": "Request Entity Too Large"}),
    ],
)
async def test_starlettes_own_errors_have_the_format_of_refusals(
    error: HTTPException, status: int, body: dict[str, str]
) -> None:
    answer = await handle_http_exception(CONNECTION, error)
    assert (answer.status_code, json.loads(bytes(answer.body))) == (status, body)


async def test_failures_of_store_and_archive_say_when_to_try_again() -> None:
    for handle, error, retry_s in (
        (handle_store_error, "state store away", "2"),
        (handle_archive_error, "archive unavailable", "5"),
    ):
        answer = await handle(CONNECTION, OSError())
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, retry_s)
        assert json.loads(bytes(answer.body))["error"] == error


async def test_a_client_that_has_left_is_no_error_of_the_server() -> None:
    assert (await handle_client_disconnect(CONNECTION, OSError())).status_code == 400


def test_a_refusal_for_openais_clients_has_its_status_and_headers() -> None:
    answer = to_openai_response(build_busy_refusal())
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert json.loads(bytes(answer.body))["error"]["code"] == "busy"
    unnamed = to_openai_error(HTTPException(400, "no field is named"))
    assert (unnamed["param"], unnamed["code"]) == (None, None)


def test_a_refusal_without_other_regions_names_none() -> None:
    assert json.loads(bytes(build_no_capacity_refusal("full").to_response().body)) == {
        "error": "no capacity", "detail": "full",
    }  # fmt: skip
    answer = build_no_capacity_refusal("full", ["https://a.test"]).to_response()
    assert json.loads(bytes(answer.body))["elsewhere"] == ["https://a.test"]
