"""boto3 clients with which CloudFormation calls this server's services, through the same APIs as other clients."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

import boto3
from botocore.awsrequest import AWSRequest
from botocore.client import BaseClient
from botocore.config import Config

_configured_endpoints: list[str] = []
_creation_lock = threading.Lock()


def set_endpoint(url: str) -> None:
    """Set the server's endpoint for the adapters."""
    _configured_endpoints[:] = [url]
    _create_client.cache_clear()


def get_client(service: str, *, region: str, account: str) -> BaseClient:
    with _creation_lock:  # botocore's session cannot create two clients concurrently
        return _create_client(service, region, account)


@lru_cache(maxsize=256)
def _create_client(service: str, region: str, account: str) -> BaseClient:
    # `Any`, since the name is not a literal, and mypy takes five seconds to check 400 overloads.
    session: Any = boto3.Session(aws_access_key_id="sandbox", aws_secret_access_key="sandbox", region_name=region)  # noqa: S106
    new_client: BaseClient = session.client(
        service,
        endpoint_url=_configured_endpoints[0],
        config=Config(
            retries={"total_max_attempts": 1},
            s3={"addressing_style": "path"},
            # Integrity checksums of S3 uploads take time and are not useful on the loopback interface.
            request_checksum_calculation="when_required",
        ),
    )

    def add_account_header(request: AWSRequest, **_: object) -> None:
        request.headers["x-moto-account-id"] = account

    new_client.meta.events.register("before-sign.*.*", add_account_header)
    return new_client
