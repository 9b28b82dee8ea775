"""Explanations of Azure's errors, one line each."""

from azure.core.exceptions import (
    ClientAuthenticationError,
    DecodeError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)

from voice_ops.preflight.questions import Refusal, first_line

UNREGISTERED = {"MissingSubscriptionRegistration", "MissingRegistrationForResourceProvider"}
THROTTLED = 429
DENIED = 403


def explain(error: Exception) -> Refusal:
    """Return an explanation of an SDK exception, with a remedy."""
    message = first_line(str(getattr(error, "message", None) or error))
    if isinstance(error, ClientAuthenticationError):
        code = error_code(error)
        reason = f"the credentials are refused ({code})" if code else f"no credentials: {message}"
        return Refusal(reason, "sign in again with `az login`", no_credentials=True)
    if isinstance(error, ServiceRequestError | ServiceResponseError):
        return Refusal(f"Azure was not reached: {message}", "check the network and any proxy")
    if isinstance(error, DecodeError):
        return Refusal("the answer is none of Azure's", "check any proxy")
    if not isinstance(error, HttpResponseError):
        return Refusal(message, "see the message; `az account show` shows who is signed in")
    if error.status_code == THROTTLED:
        return Refusal(f"throttled after its retries ({error_code(error) or THROTTLED})", "run it again in a minute")
    if error_code(error) in UNREGISTERED:
        return Refusal(
            f"a resource provider is not registered ({error_code(error)})",
            "register what the message names: az provider register --namespace Microsoft.Quota",
        )
    if error.status_code == DENIED:
        remedy = "have the role Reader on the subscription, and for quotas Quota Request Operator"
        return Refusal(f"denied: {message}", remedy)
    return Refusal(message, "see the message")


def error_code(error: HttpResponseError) -> str:
    """Return ARM's error code, or an empty text."""
    return str(error.error.code) if error.error and error.error.code else ""
