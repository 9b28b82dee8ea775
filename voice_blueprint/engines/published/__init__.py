"""Options and metrics of the engines' releases, in tables that ``make refresh-engines`` generates from their wheels.

Tests check every launcher, alarm and scaling rule against them (``tests/blueprint/engines/rules.py``).
"""
