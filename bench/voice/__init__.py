"""Measures real-time streams through the voice path on this machine, by layout: `python -m bench.voice`."""
