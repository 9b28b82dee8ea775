"""Engines: how large they have to be, how they are started, and what their published releases accept."""
