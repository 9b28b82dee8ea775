"""The VAD: what a frame costs, and how well it decides beside its rivals."""
