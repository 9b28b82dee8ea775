"""Model backends by hardware, with a common interface."""
