"""What AWS means when it refuses, in a line each."""

import typer
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)
from botocore.exceptions import ConnectionError as ConnectionFailed
from botocore.parsers import ResponseParserError

from ops.exits import FAILED
from ops.output import stop
from ops.preflight.questions import Refusal, first_line

EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
NOT_ACCEPTED = {
    "AuthFailure",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
THROTTLED = {
    "LimitExceededException",
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
}
FORBIDDEN = 403
ERRORS = (BotoCoreError, ClientError, ResponseParserError)
"""What boto3 raises: the last where a proxy, say, answers with a page of its own."""
NO_CREDENTIALS = (
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)

SIGN_IN = "sign in again, for example with `aws sso login`"


def code_of(error: ClientError) -> str:
    """Return the error code that the service gave."""
    return str(error.response.get("Error", {}).get("Code", "unknown"))


def is_denied(error: ClientError) -> bool:
    """Whether a policy forbids the call; services have several codes for it, and one HTTP status."""
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == FORBIDDEN


def explain(error: Exception) -> Refusal:
    """Say what an exception of boto3 means, and what to do about it."""
    if isinstance(error, NO_CREDENTIALS):
        found = "no credentials" if isinstance(error, NoCredentialsError) else first_line(str(error))
        return Refusal(found, "check AWS_PROFILE, or " + SIGN_IN, no_credentials=True)
    if isinstance(error, ConnectionFailed | HTTPClientError):
        return Refusal(f"AWS was not reached: {first_line(str(error))}", "check the network, the region and any proxy")
    if isinstance(error, ResponseParserError):
        return Refusal("the answer is none of AWS's", "check any proxy and AWS_ENDPOINT_URL")
    if not isinstance(error, ClientError):
        return Refusal(first_line(str(error)), "see the message; `aws configure list` shows what is configured")
    code, message = code_of(error), first_line(str(error.response.get("Error", {}).get("Message", "")))
    if code in EXPIRED | NOT_ACCEPTED:
        words = "have expired" if code in EXPIRED else "are not accepted"
        return Refusal(f"the credentials {words} ({code})", SIGN_IN, no_credentials=True)
    if code in THROTTLED:
        attempts = error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0) + 1
        return Refusal(
            f"throttled at {error.operation_name} after {attempts} attempts ({code})",
            "run it again in a minute; AWS_RETRY_MODE=adaptive waits longer",
        )
    if is_denied(error):
        remedy = f"allow {error.operation_name}, or let somebody run it who may"
        return Refusal(f"denied: {error.operation_name} ({code or FORBIDDEN})", remedy)
    return Refusal(f"{error.operation_name}: {code}: {message}", "see the message")


def failed(error: Exception) -> typer.Exit:
    """Say what an exception of boto3 means; raise what this returns, where a command cannot go on."""
    refusal = explain(error)
    return stop(f"{refusal.found}; {refusal.remedy}", FAILED)
