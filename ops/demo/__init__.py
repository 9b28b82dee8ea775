"""The voice path on this machine: what `make demo` starts, and the page that it serves."""
