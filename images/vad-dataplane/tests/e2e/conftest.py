"""End-to-end tests: the built program, a real Redis server and real packets.

`make test-native` builds the program and runs them.
"""

import os

collect_ignore_glob = [] if "VOICE_DATAPLANE_BUILD" in os.environ else ["*.py"]
