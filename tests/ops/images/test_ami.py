"""`voice images ami`: the newest image for each fleet, of those that moto's EC2 and parameter store have."""

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

from ops.cli import app
from ops.images.ami import OWN, PUBLIC
from tests.synthesized import ROOT


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with mock_aws():
        yield boto3.client("ec2", region_name="us-east-1")


def bake(ec2: Any, fleet: str, made: str, deployment: str = "sandbox") -> str:  # noqa: ANN401  boto3's client
    """Leave an image as a pipeline does."""
    image = str(ec2.register_image(Name=f"{fleet} {made}", RootDeviceName="/dev/xvda")["ImageId"])
    tags = {"voice-serve:deployment": deployment, "voice-serve:fleet": fleet}
    ec2.create_tags(Resources=[image], Tags=[{"Key": key, "Value": value} for key, value in tags.items()])
    ec2_backends["123456789012"]["us-east-1"].amis[image].creation_date = datetime.fromisoformat(made)
    return image


def proposed() -> dict[str, dict[str, str]]:
    result = CliRunner().invoke(app, ["images", "ami", str(ROOT / "deployments/sandbox.yaml"), "--json"])
    assert result.exit_code == 0, result.output
    return {row["fleet"]: row for row in json.loads(result.stdout)["fleets"]}


def test_the_newest_of_the_fleets_own_images_is_proposed(ec2: Any) -> None:  # noqa: ANN401
    bake(ec2, "vad", "2026-11-01T00:00:00.000Z")
    newest = bake(ec2, "vad", "2026-11-20T00:00:00.000Z")
    bake(ec2, "inf2", "2026-11-21T00:00:00.000Z")
    bake(ec2, "vad", "2026-11-22T00:00:00.000Z", deployment="other")
    assert (proposed()["vad"]["proposed"], proposed()["vad"]["made"]) == (newest, OWN)


@pytest.mark.usefixtures("ec2")
def test_a_fleet_without_one_is_offered_aws_newest() -> None:
    name = "/aws/service/ecs/optimized-ami/amazon-linux-2023/gpu/recommended/image_id"
    known = boto3.client("ssm", region_name="us-east-1").get_parameter(Name=name)["Parameter"]["Value"]
    assert (proposed()["p5"]["proposed"], proposed()["p5"]["made"]) == (known, PUBLIC)
