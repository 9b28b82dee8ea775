"""Synthesized templates: one synth per deployment and test process, since each costs a second."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import blueprint
from blueprint import Deployment
from stacks.aws.app import make_app
from tests.blueprint.documents import Edits, edited, load_text

ROOT = Path(__file__).parents[1]
Properties = dict[str, Any]


@dataclass(frozen=True)
class Stack:
    """One synthesized stack."""

    template: dict[str, Any]
    termination_protection: bool

    def of_type(self, kind: str) -> dict[str, Properties]:
        """Resources of a type such as ``EC2::VPC``, by logical id."""
        return {k: r for k, r in self.template["Resources"].items() if r["Type"] == f"AWS::{kind}"}

    def properties(self, kind: str) -> list[Properties]:
        """Properties of every resource of a type."""
        return [resource["Properties"] for resource in self.of_type(kind).values()]

    def the(self, kind: str) -> Properties:
        """Properties of the only resource of a type."""
        (only,) = self.properties(kind)
        return only


Stacks = dict[str, Stack]
"""By tier: ``network``, ``registry``, ..."""
ASR = ("asr-inf2", "asr-trn1", "asr-p5")
HOSTS = ("vad", *ASR)
"""Stacks of the shipped files that have hosts."""


def synthesize(deployment: Deployment) -> Stacks:
    """Synthesize a deployment in this process."""
    with TemporaryDirectory() as folder:
        assembly = make_app(deployment, outdir=folder).synth()
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
    return synthesize(blueprint.load(ROOT / "deployments" / f"{name}.yaml"))


@cache
def two_regions() -> Stacks:
    """Synthesize a shipped deployment file with a second region: no shipped one has any."""
    west = {"region": "us-west-2", "availability_zones": ["us-west-2a"]}
    small = (ROOT / "deployments/small.yaml").read_text(encoding="utf-8")
    with TemporaryDirectory() as folder:
        return synthesize(load_text(edited({"aws.other_regions": [west]}, small), Path(folder)))


def edited_sandbox(edits: Edits, folder: Path) -> Stacks:
    """Synthesize the sandbox deployment with some values replaced."""
    base = (ROOT / "deployments/sandbox.yaml").read_text(encoding="utf-8")
    return synthesize(load_text(edited(edits, base), folder))


def user_data(template: Properties) -> str:
    """Return a launch template's user data, with ``<token>`` for what only a deploy knows."""
    parts = template["LaunchTemplateData"]["UserData"]["Fn::Base64"]["Fn::Join"][1]
    return "".join(part if isinstance(part, str) else "<token>" for part in parts)
