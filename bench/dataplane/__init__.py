"""Compares the stages of the data plane with alternatives: `python -m bench.dataplane`."""
