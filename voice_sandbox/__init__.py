"""Local cloud emulators, one package per cloud."""
