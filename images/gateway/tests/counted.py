"""``python -m voice_gateway``, which reports its number of objects on SIGUSR1.

SIGUSR2 makes it log the stack of every thread, for a test whose wait timed out.

If a slot leaks with every session, that number grows with the sessions on every machine; resident memory depends on the
allocator.
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
