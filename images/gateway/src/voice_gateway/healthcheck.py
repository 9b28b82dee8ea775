#!/usr/bin/env python3
"""Exits 0 while both ports take callers; ``/usr/local/bin/healthcheck`` in the image."""

import http.client
import os
import sys

from blueprint.contract.environment import HTTP_PORT, MEDIA_PORT
from blueprint.contract.session_api import HEALTH_PATH

TIMEOUT_S = 3


def answers(port: int) -> bool:
    """Return whether a port of this container says that it is well."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", HEALTH_PATH)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def main() -> int:
    """Ask both ports."""
    return 0 if all(answers(int(os.environ[variable.name])) for variable in (HTTP_PORT, MEDIA_PORT)) else 1


if __name__ == "__main__":
    sys.exit(main())
