"""Reads published wheels, without importing them, into the tables of :mod:`voice_blueprint.engines.published`.

Run it as ``python -m tools.engine_tables``.
"""
