"""Engines: sizing, launch commands, and the options of their published releases."""
