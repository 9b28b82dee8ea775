"""The VAD: cost of a frame, and quality of its decisions compared with alternatives."""
