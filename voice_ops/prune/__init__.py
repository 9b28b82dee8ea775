"""Stacks that were removed from the deployment file: discovery, draining, and deletion."""
