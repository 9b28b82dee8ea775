"""Checks of an AWS section."""
