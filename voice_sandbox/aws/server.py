"""The local AWS as a process: `python -m voice_sandbox.aws.server`."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import stat
import sys
import threading
from pathlib import Path
from types import FrameType

RELEASE_COMMAND = "release\n"
"""Line that a parent process writes to the server's stdin so that the server outlives the parent."""


def main() -> None:
    """Serve until SIGTERM, SIGINT or, as a child, until the parent exits without having released the server.

    One line of JSON with the endpoint is printed as soon as the server is ready.
    """
    parser = argparse.ArgumentParser(description="A local AWS on a free port of this machine.")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 (the default) selects a free port")
    parser.add_argument("--verbose", action="store_true", help="log every request")
    parser.add_argument("--hosted-zone", nargs=2, metavar=("ID", "NAME"), help="a DNS zone that exists from the start")
    parser.add_argument(
        "--real-hosts", action="store_true", help="machines complete lifecycle hooks instead of stand-ins"
    )
    parser.add_argument(
        "--stores", type=Path, help="folder for the sockets of actual Redis servers, one per replication group"
    )
    parser.add_argument("--faults", type=Path, help="file of resources that cannot be created: stack/logical id")
    options = parser.parse_args()

    _configure_moto_environment()
    if not options.verbose:
        logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    stop = threading.Event()

    def handle_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, handle_signal)
    signal.signal(signal.SIGINT, handle_signal)

    # Imported here, since moto reads the environment on import.
    from voice_sandbox.aws import stand_in_hosts  # noqa: PLC0415
    from voice_sandbox.aws.cloudformation import faults  # noqa: PLC0415
    from voice_sandbox.aws.local import add_hosted_zone, start_server  # noqa: PLC0415
    from voice_sandbox.aws.patches import stores  # noqa: PLC0415

    endpoint = start_server(options.port)
    if options.hosted_zone:
        add_hosted_zone(*options.hosted_zone)
    if options.stores:
        stores.enable_servers(options.stores)
    if options.faults:
        faults.add_fault_file(options.faults)
    if not options.real_hosts:
        threading.Thread(target=stand_in_hosts.complete_hooks, args=(stop,), daemon=True).start()
    print(json.dumps({"endpoint": endpoint}), flush=True)
    if stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode):
        threading.Thread(target=_wait_for_parent, args=(stop,), daemon=True).start()
    stop.wait()
    stores.stop_all_servers()
    # A graceful stop would wait for clients to close their connections, and there is no state to save.
    os._exit(0)


def _configure_moto_environment() -> None:
    # AWS managed policies exist in every account; moto creates them only if this variable is set.
    os.environ["MOTO_IAM_LOAD_MANAGED_POLICIES"] = "true"
    os.environ["MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION"] = "true"
    # A caller's profile or endpoint must not affect the adapters' own clients.
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ["AWS_CONFIG_FILE"] = os.environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull


def _wait_for_parent(stop: threading.Event) -> None:
    """Set the event when the parent closes the pipe or crashes, unless it has released the server."""
    if sys.stdin.read() != RELEASE_COMMAND:
        stop.set()


if __name__ == "__main__":
    main()
