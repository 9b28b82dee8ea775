"""Explains AWS errors, each in one line."""

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

from voice_ops.exits import FAILED
from voice_ops.output import create_exit
from voice_ops.preflight.questions import RequestFailure, extract_first_line

EXPIRED_CREDENTIALS_CODES = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
INVALID_CREDENTIALS_CODES = {
    "AuthFailure",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
THROTTLING_CODES = {
    "LimitExceededException",
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
}
HTTP_FORBIDDEN = 403
AWS_ERRORS = (BotoCoreError, ClientError, ResponseParserError)
"""Exceptions from boto3. ``ResponseParserError`` is raised, for example, if a proxy responds with its own page."""
CREDENTIAL_ERRORS = (
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)

SIGN_IN_REMEDY = "sign in again, for example with `aws sso login`"


def get_error_code(error: ClientError) -> str:
    """Return the error code of the service."""
    return str(error.response.get("Error", {}).get("Code", "unknown"))


def is_access_denied(error: ClientError) -> bool:
    """Return True if a policy denied the call. Services use different error codes, but the same HTTP status."""
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == HTTP_FORBIDDEN


def explain_error(error: Exception) -> RequestFailure:
    """Convert a boto3 exception to a refusal, with an explanation and a remedy."""
    if isinstance(error, CREDENTIAL_ERRORS):
        result = (
            "no credentials were found" if isinstance(error, NoCredentialsError) else extract_first_line(str(error))
        )
        return RequestFailure(result, "check AWS_PROFILE, or " + SIGN_IN_REMEDY, lacks_credentials=True)
    if isinstance(error, ConnectionFailed | HTTPClientError):
        return RequestFailure(
            f"cannot reach AWS: {extract_first_line(str(error))}",
            "check the network, the region and the proxy settings",
        )
    if isinstance(error, ResponseParserError):
        return RequestFailure("the response did not come from AWS", "check the proxy settings and AWS_ENDPOINT_URL")
    if not isinstance(error, ClientError):
        return RequestFailure(
            extract_first_line(str(error)), "see the message; `aws configure list` shows what is configured"
        )
    code, message = get_error_code(error), extract_first_line(str(error.response.get("Error", {}).get("Message", "")))
    if code in EXPIRED_CREDENTIALS_CODES | INVALID_CREDENTIALS_CODES:
        problem = "have expired" if code in EXPIRED_CREDENTIALS_CODES else "are not accepted"
        return RequestFailure(f"the credentials {problem} ({code})", SIGN_IN_REMEDY, lacks_credentials=True)
    if code in THROTTLING_CODES:
        attempts = error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0) + 1
        return RequestFailure(
            f"{error.operation_name} was throttled in {attempts} attempts ({code})",
            "run it again in a minute; AWS_RETRY_MODE=adaptive waits longer",
        )
    if is_access_denied(error):
        remedy = f"allow {error.operation_name}, or use credentials with this permission"
        return RequestFailure(f"access denied: {error.operation_name} ({code or HTTP_FORBIDDEN})", remedy)
    return RequestFailure(f"{error.operation_name}: {code}: {message}", "see the message")


def report_aws_error(error: Exception) -> typer.Exit:
    """Print the explanation of a boto3 exception, and return the exception that ends the command."""
    refusal = explain_error(error)
    return create_exit(f"{refusal.result}; {refusal.remedy}", FAILED)
