"""Generates the tables of :mod:`voice_blueprint.engines.published` from published wheels, without importing them.

Run it as ``python -m tools.engine_tables``.
"""
