"""The cluster of a deployment, for commands that read what runs on it."""
