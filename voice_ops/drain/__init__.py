"""Drains a host without losing a call."""
