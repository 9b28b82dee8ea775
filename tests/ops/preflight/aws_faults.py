"""Faults that moto does not simulate: injected below botocore's retries and parsers, above the network."""

from __future__ import annotations

import json

import botocore.handlers
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from moto.core.botocore_stubber import MockRawResponse


def fail(
    monkeypatch: pytest.MonkeyPatch, service: str, code: str, *, status: int = 400, xml: bool = False
) -> list[str]:
    """Fail every call of a service with an error code; return a list with an entry for each call.

    Args:
        service: Name of the service in botocore, such as ``service-quotas``.
        xml: Whether the service speaks the query protocol.
    """
    body = json.dumps({"__type": code, "message": "planted"})
    if xml:
        error = f"<Error><Code>{code}</Code><Message>planted</Message></Error>"
        body = f"<ErrorResponse>{error}<RequestId>1</RequestId></ErrorResponse>"
    sent: list[str] = []

    def refuse(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        sent.append(request.url)
        raw = MockRawResponse(body)
        return AWSResponse(request.url, status, HTTPHeaders.from_dict({"x-amzn-errortype": code}), raw)

    handlers = [(f"before-send.{service}", refuse), *botocore.handlers.BUILTIN_HANDLERS]
    monkeypatch.setattr(botocore.handlers, "BUILTIN_HANDLERS", handlers)
    return sent
