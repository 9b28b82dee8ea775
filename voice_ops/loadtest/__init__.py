"""`voice loadtest`: load for OpenAI-compatible endpoints and this platform's own, and its measurements.

``drivers``, ``realtime`` and ``voice_session`` implement the APIs; ``load`` schedules requests and records timestamps;
``metrics``, ``summary`` and ``compare`` calculate results; ``tables``, ``plots`` and ``report`` display them.
"""
