"""Authenticates callers of the session API, for each kind of `authorizer` in a deployment file."""

import os
import re
from collections.abc import Callable, Generator
from enum import StrEnum
from urllib.parse import urlsplit

import httpx2

Headers = dict[str, str]
HeaderProvider = Callable[[str, str, bytes], Headers]
"""Function that returns additional headers for the method, URL and body of a request."""

_SIGNING_SERVICE = "execute-api"
_API_GATEWAY_HOST_PATTERN = re.compile(rf"\.{_SIGNING_SERVICE}\.([a-z0-9-]+)\.amazonaws\.com$")


class AuthorizerType(StrEnum):
    """Kinds of authorizer, named as in the deployment file."""

    IAM = "iam"
    JWT = "jwt"
    API_KEY = "api-key"
    NONE = "none"


class CredentialsError(ValueError):
    """Credentials are missing or invalid."""


def read_secret(variable: str | None) -> str | None:
    """Return the key or token from an environment variable, or ``None`` if no variable is specified.

    Raises:
        CredentialsError: The variable is not set, or contains characters that a header cannot contain.
    """
    if variable is None:
        return None
    secret = os.environ.get(variable, "").strip()
    if not secret:
        raise CredentialsError(f"--api-key-env {variable}: that variable is not set; export {variable}=... first")
    if not secret.isascii():
        raise CredentialsError(
            f"--api-key-env {variable}: the value contains characters that are not allowed in an HTTP header"
        )
    return secret


def create_header_provider(auth: AuthorizerType | None, secret: str | None, server: str) -> HeaderProvider:
    """Return a function that authenticates requests to a server.

    Args:
        auth: Kind of authorizer. The default is an API key if there is a secret, and otherwise no authorizer.
        secret: The API key or token.

    Raises:
        CredentialsError: A secret, credentials or a region is missing, or an unused secret is specified.
    """
    auth = auth or (AuthorizerType.NONE if secret is None else AuthorizerType.API_KEY)
    if auth in {AuthorizerType.JWT, AuthorizerType.API_KEY} and secret is None:
        raise CredentialsError(
            f"--auth {auth} requires a secret: export it in a variable and specify --api-key-env NAME"
        )
    if auth in {AuthorizerType.IAM, AuthorizerType.NONE} and secret is not None:
        raise CredentialsError(f"--auth {auth} does not use --api-key-env; omit it")
    match auth:
        case AuthorizerType.IAM:
            return _create_signing_provider(server)
        case AuthorizerType.JWT:
            return lambda *_: {"Authorization": f"Bearer {secret}"}
        case AuthorizerType.API_KEY:
            return lambda *_: {"x-api-key": str(secret)}
        case AuthorizerType.NONE:
            return lambda *_: {}


def _create_signing_provider(server: str) -> HeaderProvider:
    # Imported here, since these modules would slow down every other command.
    import boto3  # noqa: PLC0415
    from botocore.auth import SigV4Auth  # noqa: PLC0415
    from botocore.awsrequest import AWSRequest  # noqa: PLC0415

    session = boto3.Session()
    credentials = session.get_credentials()
    if credentials is None:
        raise CredentialsError("--auth iam requires AWS credentials, and none were found: set AWS_PROFILE")
    host = urlsplit(server).hostname or ""
    named = _API_GATEWAY_HOST_PATTERN.search(host)
    region = named[1] if named else session.region_name
    if region is None:
        raise CredentialsError(f"--auth iam requires a region, and {host} does not contain one: set AWS_REGION")

    def sign(method: str, url: str, body: bytes) -> Headers:
        request = AWSRequest(method, url, data=body)
        # Credentials of a role expire, so they are read again for each request.
        SigV4Auth(credentials.get_frozen_credentials(), _SIGNING_SERVICE, region).add_auth(request)
        return dict(request.headers.items())

    return sign


class ClientAuth(httpx2.Auth):
    """Authentication of an httpx client with additional headers."""

    requires_request_body = True

    def __init__(self, headers_for: HeaderProvider) -> None:
        self._headers_for = headers_for

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Add the headers for the caller's authentication to the request."""
        request.headers.update(self._headers_for(request.method, str(request.url), request.content))
        yield request
