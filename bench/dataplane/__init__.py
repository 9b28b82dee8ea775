"""The data plane's stages compared with alternatives: `python -m bench.dataplane`."""
