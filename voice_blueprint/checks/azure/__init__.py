"""Checks for an Azure section."""
