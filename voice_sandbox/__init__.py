"""Local clouds, one package per cloud."""
