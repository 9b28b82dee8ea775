"""`voice images ami`: the newest image of each fleet in moto's EC2 and parameter store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import boto3
import pytest
from moto import mock_aws
from moto.ec2.models import ec2_backends
from typer.testing import CliRunner

from tests.synthesized import ROOT
from voice_ops.cli import app
from voice_ops.images.ami import BAKED_IMAGE_ORIGIN, PUBLIC_IMAGE_ORIGIN


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with mock_aws():
        yield boto3.client("ec2", region_name="us-east-1")


def publish_image(ec2: Any, fleet: str, made: str, deployment: str = "sandbox") -> str:  # noqa: ANN401  boto3's client
    """Create an AMI like an Image Builder pipeline."""
    image = str(ec2.register_image(Name=f"{fleet} {made}", RootDeviceName="/dev/xvda")["ImageId"])
    tags = {"voice-serve:deployment": deployment, "voice-serve:fleet": fleet}
    ec2.create_tags(Resources=[image], Tags=[{"Key": key, "Value": value} for key, value in tags.items()])
    ec2_backends["123456789012"]["us-east-1"].amis[image].creation_date = datetime.fromisoformat(made)
    return image


def proposals() -> dict[str, dict[str, str]]:
    result = CliRunner().invoke(app, ["images", "ami", str(ROOT / "tests/deployments/sandbox.yaml"), "--json"])
    assert result.exit_code == 0, result.output
    return {row["fleet"]: row for row in json.loads(result.stdout)["fleets"]}


def test_the_newest_built_image_of_the_fleet_is_proposed(ec2: Any) -> None:  # noqa: ANN401
    publish_image(ec2, "vad", "2026-11-01T00:00:00.000Z")
    newest = publish_image(ec2, "vad", "2026-11-20T00:00:00.000Z")
    publish_image(ec2, "inf2", "2026-11-21T00:00:00.000Z")
    publish_image(ec2, "vad", "2026-11-22T00:00:00.000Z", deployment="other")
    assert (proposals()["vad"]["proposed"], proposals()["vad"]["made"]) == (newest, BAKED_IMAGE_ORIGIN)


@pytest.mark.usefixtures("ec2")
def test_a_fleet_without_a_built_image_gets_the_newest_aws_image() -> None:
    name = "/aws/service/ecs/optimized-ami/amazon-linux-2023/gpu/recommended/image_id"
    known = boto3.client("ssm", region_name="us-east-1").get_parameter(Name=name)["Parameter"]["Value"]
    assert (proposals()["p5"]["proposed"], proposals()["p5"]["made"]) == (known, PUBLIC_IMAGE_ORIGIN)
