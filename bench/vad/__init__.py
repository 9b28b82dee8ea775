"""Measures the VAD's cost per frame, and compares the quality of its decisions with alternatives."""
