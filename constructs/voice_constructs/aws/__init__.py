"""AWS building blocks. Each construct accepts typed values and exposes its resources as attributes."""
