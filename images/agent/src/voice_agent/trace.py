"""Trace context (W3C Recommendation, 2021) for the engines; Pipecat sends none, and its spans hold whole prompts."""

import hashlib
import secrets


class Trace:
    """One conversation's trace; every request to an engine is a span of its own.

    Attributes:
        session: The same for all requests of a conversation, also after a reconnect: they find the same replica, and
            its caches. A digest, since a call's name opens its conversation.
    """

    def __init__(self, conversation: str) -> None:
        self._id = secrets.token_hex(16)
        self.session = hashlib.sha256(conversation.encode()).hexdigest()[:32]

    def headers(self) -> dict[str, str]:
        """Return what a request carries."""
        return {"traceparent": f"00-{self._id}-{secrets.token_hex(8)}-01"}
