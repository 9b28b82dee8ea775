"""What Azure means when it refuses, in a line each."""

from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)

from ops.preflight.questions import Refusal, first_line

UNREGISTERED = {"MissingSubscriptionRegistration", "MissingRegistrationForResourceProvider"}
THROTTLED = 429
DENIED = 403


def explain(error: Exception) -> Refusal:
    """Say what an exception of the SDKs means, and what to do about it."""
    message = first_line(str(getattr(error, "message", None) or error))
    if isinstance(error, ClientAuthenticationError):
        code = code_of(error)
        reason = f"the credentials are refused ({code})" if code else f"no credentials: {message}"
        return Refusal(reason, "sign in again with `az login`", no_credentials=True)
    if isinstance(error, ServiceRequestError | ServiceResponseError):
        return Refusal(f"Azure was not reached: {message}", "check the network and any proxy")
    if not isinstance(error, HttpResponseError):
        return Refusal(message, "see the message; `az account show` shows who is signed in")
    if error.status_code == THROTTLED:
        return Refusal(f"throttled after its retries ({code_of(error) or THROTTLED})", "run it again in a minute")
    if code_of(error) in UNREGISTERED:
        return Refusal(
            f"a resource provider is not registered ({code_of(error)})",
            "register what the message names: az provider register --namespace Microsoft.Quota",
        )
    if error.status_code == DENIED:
        remedy = "have the role Reader on the subscription, and for quotas Quota Request Operator"
        return Refusal(f"denied: {message}", remedy)
    return Refusal(message, "see the message")


def code_of(error: HttpResponseError) -> str:
    """Return the error code that ARM gave, or nothing."""
    return str(error.error.code) if error.error and error.error.code else ""
