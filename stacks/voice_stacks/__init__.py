"""Deployable units, one module per stack."""
