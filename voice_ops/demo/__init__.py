"""The voice path on this machine: the programs that `make demo` starts, and the page that it serves."""
