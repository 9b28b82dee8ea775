"""Fixtures of the gateway's tests: a gateway and its store."""

from images.conftest import store_server
from images.gateway.tests.conftest import rtp_port, start

__all__ = ["rtp_port", "start", "store_server"]
