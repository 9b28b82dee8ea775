"""Actual engines on this machine's CPU: the launchers' command lines, with tiny models and random weights."""
