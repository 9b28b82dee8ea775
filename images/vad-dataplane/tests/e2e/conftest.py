"""End to end: the built program, a real Redis server, real packets. Run by `make test-native`, which builds it."""

import os

collect_ignore_glob = [] if "VOICE_DATAPLANE_BUILD" in os.environ else ["*.py"]
