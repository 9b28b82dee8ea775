"""The clouds on this machine, one package per cloud."""
