"""A gateway and its store, as the gateway's own tests have them."""

from images.conftest import store_server
from images.gateway.tests.conftest import rtp_port, start

__all__ = ["rtp_port", "start", "store_server"]
