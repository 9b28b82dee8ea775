"""Checks of an Azure section."""
