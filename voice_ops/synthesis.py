"""Synthesizes the CloudFormation templates for a deployment in this process."""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from voice_blueprint.file.model.deployment import Deployment

if TYPE_CHECKING:
    from aws_cdk.cx_api import CloudAssembly

QUIET_ENVIRONMENT = {
    "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
    "JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION": "1",
    "NODE_NO_WARNINGS": "1",
}
"""Variables that suppress warnings from jsii and Node about versions that `make setup` has selected."""


def synthesize(deployment: Deployment, folder: Path) -> "CloudAssembly":
    """Synthesize a deployment that has passed its checks, write the cloud assembly to a folder, and return it."""
    from voice_stacks.node import start_jsii  # noqa: PLC0415  not needed by commands that do not synthesize

    os.environ.update(QUIET_ENVIRONMENT)
    start_jsii()
    # Imported here, since aws-cdk-lib starts a Node process, which commands that only read the file do not need.
    from voice_stacks.aws.app import create_app  # noqa: PLC0415

    return create_app(deployment, outdir=str(folder)).synth()


def synthesize_templates(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """Synthesize a deployment that has passed its checks, and return the templates by stack name."""
    with TemporaryDirectory(prefix="voice-synth-") as folder:
        assembly = synthesize(deployment, Path(folder))
        return {
            stack.stack_name: json.loads(Path(stack.template_full_path).read_text(encoding="utf-8"))
            for stack in assembly.stacks
        }
