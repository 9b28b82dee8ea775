"""``python -m voice_gateway``, which says how many objects it holds when SIGUSR1 comes.

SIGUSR2 makes it say where every thread of it is: for a test that waits for its end in vain.

Where a place is lost with every session, that number grows with the sessions on every machine; resident memory is the
allocator's business.
"""

import faulthandler
import gc
import json
import os
import runpy
import signal
import sys


def count(*_: object) -> None:
    gc.collect()
    os.write(1, f"{json.dumps({'objects': sys.getallocatedblocks()})}\n".encode())


signal.signal(signal.SIGUSR1, count)
faulthandler.register(signal.SIGUSR2)
runpy.run_module("voice_gateway", run_name="__main__", alter_sys=True)
