"""Synthesized templates, cached by deployment and test process, because each synthesis takes a second."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import voice_blueprint
from tests.blueprint.documents import Edits, edit_document, load_text
from voice_blueprint import Deployment
from voice_stacks.aws.app import create_app
from voice_userdata import unpack_script

ROOT = Path(__file__).parents[1]
Properties = dict[str, Any]


@dataclass(frozen=True)
class Stack:
    """One synthesized stack."""

    template: dict[str, Any]
    termination_protection: bool

    def of_type(self, kind: str) -> dict[str, Properties]:
        """Return resources of a type such as ``EC2::VPC``, by logical id."""
        return {k: r for k, r in self.template["Resources"].items() if r["Type"] == f"AWS::{kind}"}

    def properties(self, kind: str) -> list[Properties]:
        """Return the properties of every resource of a type."""
        return [resource["Properties"] for resource in self.of_type(kind).values()]

    def only(self, kind: str) -> Properties:
        """Return the properties of the only resource of a type."""
        (only,) = self.properties(kind)
        return only


Stacks = dict[str, Stack]
"""Stacks by tier, such as ``network`` and ``registry``."""
ASR = ("asr-inf2", "asr-trn1", "asr-p5")
HOSTS = ("vad", *ASR)
"""Tiers of the shipped files with hosts."""


def synthesize(deployment: Deployment) -> Stacks:
    """Synthesize a deployment in this process."""
    with TemporaryDirectory() as folder:
        assembly = create_app(deployment, outdir=folder).synth()
        return {
            stack.stack_name.removeprefix(f"{deployment.name}-"): Stack(
                json.loads(Path(stack.template_full_path).read_text(encoding="utf-8")),
                bool(stack.termination_protection),
            )
            for stack in assembly.stacks
        }


@cache
def shipped(name: str) -> Stacks:
    """Synthesize a shipped deployment file."""
    return synthesize(voice_blueprint.load(ROOT / "tests/deployments" / f"{name}.yaml"))


@cache
def two_regions() -> Stacks:
    """Synthesize a shipped deployment file with a second region added."""
    west = {"region": "us-west-2", "availability_zones": ["us-west-2a"]}
    small = (ROOT / "tests/deployments/small.yaml").read_text(encoding="utf-8")
    with TemporaryDirectory() as folder:
        return synthesize(load_text(edit_document({"aws.other_regions": [west]}, small), Path(folder)))


def edited_sandbox(edits: Edits, folder: Path) -> Stacks:
    """Synthesize the sandbox deployment with some values replaced."""
    base = (ROOT / "tests/deployments/sandbox.yaml").read_text(encoding="utf-8")
    return synthesize(load_text(edit_document(edits, base), folder))


def user_data(template: Properties) -> str:
    """Return a launch template's user data, with ``<token>`` for values known only at deployment."""
    parts = template["LaunchTemplateData"]["UserData"]["Fn::Base64"]["Fn::Join"][1]
    return unpack_script("".join(part if isinstance(part, str) else "<token>" for part in parts))
