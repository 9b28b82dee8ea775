"""Actual engines on this machine's CPU, with the launchers' command lines, tiny models and random weights."""
