"""Endpoints other than AWS: an HTML page of a proxy with a success status, and a server that does not respond."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError
from typer.testing import CliRunner

from tests.synthesized import ROOT
from voice_ops.aws import session as sessions
from voice_ops.aws.refusals import AWS_ERRORS, explain_error
from voice_ops.cli import app
from voice_ops.timeouts import CONNECT_TIMEOUT_S, MAX_ATTEMPTS, READ_TIMEOUT_S

HTML = b"<!DOCTYPE html>\n<html><body><p>Sign in to the guest network<br></body></html>"
XHTML = b'<?xml version="1.0"?>\n<html xmlns="http://www.w3.org/1999/xhtml"><body><p>Sign in</p></body></html>'
TEXT, LIST = b"blocked by policy", b'["blocked"]'
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "autoscaling": ("describe_auto_scaling_instances", {}),
    "cloudformation": ("describe_stacks", {}),
    "cloudwatch": ("describe_alarms", {}),
    "ec2": ("describe_instances", {}),
    "ecs": ("list_tasks", {}),
    "elasticache": ("describe_replication_groups", {}),
    "s3": ("list_buckets", {}),
    "secretsmanager": ("list_secrets", {}),
    "service-quotas": ("list_services", {}),
    "ssm": ("get_parameter", {"Name": "store"}),
    "sts": ("get_caller_identity", {}),
}
"""A call of every protocol that the operator's commands use."""


@contextmanager
def answering(body: bytes) -> Iterator[str]:
    class Proxy(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST  # noqa: N815  the library's names

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_RETRY_MODE", "AWS_MAX_ATTEMPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


@pytest.mark.parametrize("body", [HTML, XHTML, TEXT, LIST], ids=["html", "xhtml", "text", "list"])
@pytest.mark.parametrize("service", CALLS)
def test_an_html_response_instead_of_aws_is_an_error(
    service: str, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    operation, request = CALLS[service]
    with answering(body) as endpoint:
        session: Any = sessions.create_session("us-east-1")
        client = session.client(service, endpoint_url=endpoint)
        with pytest.raises(AWS_ERRORS) as raised:
            getattr(client, operation)(**request)
    # botocore turns a non-XML response of S3 into status 500.
    of_s3 = service == "s3" and body != XHTML
    assert explain_error(raised.value).result == (
        "ListBuckets: 500: Internal Server Error" if of_s3 else "the response did not come from AWS"
    )


@pytest.mark.parametrize("arguments", [["drain", "i-0123456789abcdef0"], ["rotate"], ["restore"], ["status"]])
def test_a_command_reports_an_html_response_in_one_line(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(ROOT / "deployments/sandbox.yaml")
    with answering(HTML) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        result = CliRunner().invoke(app, [arguments[0], file, *arguments[1:]])
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit)
    assert "the response did not come from AWS" in result.output.replace("\n", " ")
    assert "no state store" not in result.output


def test_an_unresponsive_endpoint_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, over = [], threading.Event()

    class Hanging(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            over.wait(30)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hanging)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(sessions, "READ_TIMEOUT_S", 0.2)
    monkeypatch.setattr("time.sleep", lambda _: None)
    try:
        client = sessions.create_session("us-east-1").client(
            "sts", endpoint_url=f"http://127.0.0.1:{server.server_port}"
        )
        with pytest.raises(ReadTimeoutError):
            client.get_caller_identity()
    finally:
        over.set()
        server.shutdown()
        server.server_close()
    assert len(asked) == MAX_ATTEMPTS


def test_every_client_has_timeouts() -> None:
    config: Any = sessions.create_session("us-east-1").client("ecs").meta.config
    assert (config.connect_timeout, config.read_timeout) == (CONNECT_TIMEOUT_S, READ_TIMEOUT_S)
    assert config.retries["mode"] == "standard"


def test_retries_are_configurable_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_RETRY_MODE", "adaptive")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "7")
    config: Any = sessions.create_session("us-east-1").client("ecs").meta.config
    assert (config.retries["mode"], config.retries["total_max_attempts"]) == ("adaptive", 7)


def test_a_bucket_policy_with_html_is_not_mistaken_for_a_proxy_page() -> None:
    with answering(b'{"Version": "2012-10-17", "Statement": []}') as endpoint:
        client = sessions.create_session("us-east-1").client("s3", endpoint_url=endpoint)
        assert client.get_bucket_policy(Bucket="logs")["Policy"].startswith("{")
