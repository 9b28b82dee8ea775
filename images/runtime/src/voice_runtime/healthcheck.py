#!/usr/bin/env python3
"""Health check for the gateway and agents, installed as ``/usr/local/bin/healthcheck``.

The program exits with status 0 if each port for callers responds, even while the state store is unavailable. Otherwise,
ECS would replace all tasks at once.
"""

import http.client
import os
import sys

from voice_blueprint.contract.environment import HTTP_PORT, MEDIA_PORT
from voice_blueprint.contract.session_api import LIVENESS_PATH

TIMEOUT_S = 3


def is_healthy(port: int) -> bool:
    """Return True if a port of this container responds."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", LIVENESS_PATH)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def main() -> int:
    """Request the liveness of each port in the environment, and return the exit code."""
    ports = [os.environ[HTTP_PORT.name], os.environ.get(MEDIA_PORT.name)]
    return 0 if all(is_healthy(int(port)) for port in ports if port) else 1


if __name__ == "__main__":
    sys.exit(main())
