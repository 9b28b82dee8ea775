"""`voice loadtest`: load tests of OpenAI-compatible endpoints and of this platform's APIs.

``drivers``, ``realtime`` and ``voice_session`` implement the APIs; ``load`` schedules requests and records timestamps;
``metrics``, ``summary`` and ``compare`` calculate results; ``tables``, ``plots`` and ``report`` display them.
"""
