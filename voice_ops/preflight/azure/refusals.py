"""Explanations of Azure errors, each with a remedy."""

from azure.core.exceptions import (
    ClientAuthenticationError,
    DecodeError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)

from voice_ops.preflight.questions import RequestFailure, extract_first_line

UNREGISTERED_ERROR_CODES = {"MissingSubscriptionRegistration", "MissingRegistrationForResourceProvider"}
THROTTLED_STATUS = 429
DENIED_STATUS = 403


def explain_error(error: Exception) -> RequestFailure:
    """Explain an exception from an Azure SDK in one line, with a remedy."""
    message = extract_first_line(str(getattr(error, "message", None) or error))
    if isinstance(error, ClientAuthenticationError):
        code = extract_error_code(error)
        reason = f"the credentials were rejected ({code})" if code else f"no credentials were found: {message}"
        return RequestFailure(reason, "sign in again with `az login`", lacks_credentials=True)
    if isinstance(error, ServiceRequestError | ServiceResponseError):
        return RequestFailure(f"cannot reach Azure: {message}", "check the network and the proxy settings")
    if isinstance(error, DecodeError):
        return RequestFailure("the response did not come from Azure", "check the proxy settings")
    if not isinstance(error, HttpResponseError):
        return RequestFailure(message, "see the message; `az account show` shows who is signed in")
    if error.status_code == THROTTLED_STATUS:
        return RequestFailure(
            f"the request was throttled after retries ({extract_error_code(error) or THROTTLED_STATUS})",
            "run it again in a minute",
        )
    if extract_error_code(error) in UNREGISTERED_ERROR_CODES:
        return RequestFailure(
            f"a resource provider is not registered ({extract_error_code(error)})",
            "register the provider in the message, such as az provider register --namespace Microsoft.Quota",
        )
    if error.status_code == DENIED_STATUS:
        remedy = "sign in with the role Reader on the subscription, and Quota Request Operator for quotas"
        return RequestFailure(f"access denied: {message}", remedy)
    return RequestFailure(message, "see the message")


def extract_error_code(error: HttpResponseError) -> str:
    """Return the error code from Azure Resource Manager, or an empty string if there is none."""
    return str(error.error.code) if error.error and error.error.code else ""
