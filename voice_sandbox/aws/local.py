"""Assembles the local AWS from moto, and from this package's patches and CloudFormation."""

from __future__ import annotations

import warnings

from moto.cloudformation.models import cloudformation_backends
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.route53.models import HostedZoneIdentifier, route53_backends
from moto.server import ThreadedMotoServer
from moto.utilities.id_generator import moto_id_manager

from voice_sandbox.aws import patches
from voice_sandbox.aws.clients import set_endpoint
from voice_sandbox.aws.cloudformation.models import SandboxCloudFormation


def start_server(port: int = 0) -> str:
    """Start the server in a thread and return its endpoint.

    The endpoint contains `localhost`, because for any other host in a template's URL moto treats the first label as the
    bucket name.
    """
    warnings.filterwarnings("ignore", module="moto")
    cloudformation_backends.backend = SandboxCloudFormation
    patches.install()
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    _, actual_port = server.get_host_and_port()
    endpoint = f"http://localhost:{actual_port}"
    set_endpoint(endpoint)
    return endpoint


def add_hosted_zone(identifier: str, name: str) -> None:
    """Add a public DNS zone with a given Route 53 id, as an operator does before the first deployment."""
    backend = route53_backends[DEFAULT_ACCOUNT_ID]["aws"]
    moto_id_manager.set_custom_id(HostedZoneIdentifier(DEFAULT_ACCOUNT_ID, name, None), identifier)
    backend.create_hosted_zone(name, private_zone=False)
