"""Actual engines on this machine's CPU, with the launchers' command lines and tiny models with random weights."""
