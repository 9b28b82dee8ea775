"""The `voice` command."""
