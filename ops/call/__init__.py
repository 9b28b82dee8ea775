"""Speaks a recording to a deployment, as a native caller does."""
