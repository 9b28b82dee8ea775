"""Checks for an AWS section."""
