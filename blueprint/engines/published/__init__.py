"""What the engines' published releases accept and offer: tables that ``make refresh-engines`` reads from their wheels.

Tests hold every launcher, alarm and scaling rule against them (``tests/blueprint/engines/rules.py``).
"""
