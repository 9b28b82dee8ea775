#!/usr/bin/env python3
"""Exit 0 while each port for callers responds; ``/usr/local/bin/healthcheck`` of gateway and agent."""

import http.client
import os
import sys

from voice_blueprint.contract.environment import HTTP_PORT, MEDIA_PORT
from voice_blueprint.contract.session_api import HEALTH_PATH

TIMEOUT_S = 3


def answers(port: int) -> bool:
    """Return True if a port of this container is healthy."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", HEALTH_PATH)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def main() -> int:
    """Request the health of each port that the environment names; an agent has one."""
    ports = [os.environ[HTTP_PORT.name], os.environ.get(MEDIA_PORT.name)]
    return 0 if all(answers(int(port)) for port in ports if port) else 1


if __name__ == "__main__":
    sys.exit(main())
