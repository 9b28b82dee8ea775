"""Local clouds, each in a package of its own."""
