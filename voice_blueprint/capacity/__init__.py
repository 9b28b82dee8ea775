"""Calls per tier: the minimum of several named limits, each with its source.

The checks, `voice plan`, `preflight`, `cost`, `simulate`, `status` and the launchers use these numbers; hosts admit the
same number of calls.
"""
