"""The data plane's stages beside their rivals: `python -m bench.dataplane`."""
