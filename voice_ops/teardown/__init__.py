"""Teardown of a deployment: deleted and retained resources, their cost, and unexpected remains."""
