"""AWS building blocks: each construct takes typed values and exposes what it made as attributes."""
