"""Read-only comparison of a running deployment with its file."""
