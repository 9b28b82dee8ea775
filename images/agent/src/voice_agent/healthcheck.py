#!/usr/bin/env python3
"""Exits 0 while the agent takes callers; ``/usr/local/bin/healthcheck`` in the image."""

import http.client
import os
import sys

from blueprint.contract.environment import HTTP_PORT
from blueprint.contract.session_api import HEALTH_PATH

TIMEOUT_S = 3


def main() -> int:
    """Ask its port."""
    connection = http.client.HTTPConnection("127.0.0.1", int(os.environ[HTTP_PORT.name]), timeout=TIMEOUT_S)
    try:
        connection.request("GET", HEALTH_PATH)
        return 0 if connection.getresponse().status == http.HTTPStatus.OK else 1
    except (OSError, http.client.HTTPException):
        return 1
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
