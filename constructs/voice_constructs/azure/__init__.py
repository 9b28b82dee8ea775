"""Azure building blocks: each component takes typed values and exposes what it made as attributes."""
