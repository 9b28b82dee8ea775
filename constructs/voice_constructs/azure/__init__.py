"""Azure building blocks. Each component accepts typed values and exposes its resources as attributes."""
