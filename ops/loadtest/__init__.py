"""`voice loadtest`: load for OpenAI-compatible endpoints and this platform's own, and what it measures.

``drivers``, ``realtime`` and ``voice_session`` speak the APIs; ``load`` decides when a request starts and stamps what
arrives; ``metrics``, ``summary`` and ``compare`` do the arithmetic; ``tables``, ``plots`` and ``report`` show it.
"""
