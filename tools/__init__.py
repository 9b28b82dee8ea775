"""Generators for maintainers, which are not part of the installed package."""
