"""Trace context (W3C Recommendation, 2021) for the engines; Pipecat sends none, and its spans hold whole prompts."""

import secrets


class Trace:
    """One conversation's trace; every request to an engine is a span of its own."""

    def __init__(self) -> None:
        self._id = secrets.token_hex(16)

    def headers(self) -> dict[str, str]:
        """Return what a request carries."""
        return {"traceparent": f"00-{self._id}-{secrets.token_hex(8)}-01"}
