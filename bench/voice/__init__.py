"""Real-time streams through the voice path of this machine, by its layouts: `python -m bench.voice`."""
