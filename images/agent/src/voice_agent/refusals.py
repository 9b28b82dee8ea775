"""Refusals of callers."""

import json

from starlette.responses import JSONResponse

HTTP_SERVICE_UNAVAILABLE = 503
FORWARDED_STATUSES = (401, 403, 429, HTTP_SERVICE_UNAVAILABLE)
"""Statuses of gateway responses that are forwarded to the caller, since they concern the caller and not the agent."""


class RefusedError(Exception):
    """The caller is refused."""

    def __init__(self, status: int, error: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.error = error

    @classmethod
    def from_response(cls, status: int, body: bytes | bytearray) -> "RefusedError":
        """Convert a refusal by the gateway to a refusal by the agent."""
        try:
            response = json.loads(body)
            error, detail = response["error"], response["detail"]
        except (ValueError, KeyError, TypeError):
            error, detail = "refused", f"the gateway answers {status}"
        return cls(status if status in FORWARDED_STATUSES else HTTP_SERVICE_UNAVAILABLE, str(error), str(detail))

    def to_response(self) -> JSONResponse:
        """Return the HTTP response for the caller."""
        headers = {"Retry-After": "1"} if self.status == HTTP_SERVICE_UNAVAILABLE else None
        return JSONResponse({"error": self.error, "detail": str(self)}, self.status, headers)


class NoFreeSlotError(RefusedError):
    """This process has no free slot for the caller, but another process may have one."""

    def __init__(self, error: str, detail: str) -> None:
        super().__init__(HTTP_SERVICE_UNAVAILABLE, error, detail)
