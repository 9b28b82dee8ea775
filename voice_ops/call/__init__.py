"""Streams a recording to a deployment, as a native client does."""
