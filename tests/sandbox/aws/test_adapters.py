"""The table of resource types: it holds what is deployed, its words are the APIs', and schemas decide replacements."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import xform_name

from sandbox.aws.adapters.adapter import Adapter, Properties, Scope
from sandbox.aws.adapters.schemas import schema
from sandbox.aws.adapters.table import KINDS
from sandbox.aws.adapters.tagging import TAG_CALLS
from sandbox.aws.clients import client, serve_at
from sandbox.aws.cloudformation.template import parse
from sandbox.aws.shapes import member
from tests.sandbox.aws.samples import ALL
from tests.synthesized import shipped

ROOT = Path(__file__).parents[3]
BOOTSTRAP = ROOT / "node_modules/aws-cdk/lib/api/bootstrap/bootstrap-template.yaml"
ON_AWS = [file.stem for file in sorted((ROOT / "deployments").glob("*.yaml")) if file.stem not in {"production-azure", "seed"}]


def test_the_table_has_what_is_deployed_and_nothing_else() -> None:
    templates = [stack.template for name in ON_AWS for stack in shipped(name).values()]
    templates.append(parse(BOOTSTRAP.read_text(encoding="utf-8")))
    emitted = {body["Type"] for template in templates for body in template["Resources"].values()}
    assert emitted == KINDS.keys()


def test_every_type_is_deployed_by_a_sample() -> None:
    assert {body["Type"] for sample in ALL for body in sample().values()} == KINDS.keys()
