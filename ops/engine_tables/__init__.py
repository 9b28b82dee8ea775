"""Reads published wheels, without importing them, into the tables of :mod:`blueprint.engines.published`.

Run it as ``python -m ops.engine_tables``.
"""
