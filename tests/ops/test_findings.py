"""Printed findings that prevent a deploy."""

import pytest
import typer

from voice_ops.findings import exit_on_outages
from voice_sandbox.changes import Outage


def test_resources_of_the_same_name_are_accepted_with_one_option(capsys: pytest.CaptureFixture[str]) -> None:
    outages = [Outage("state", f'{kind} "state"', (), "sessions") for kind in ("Database", "RedisEnterprise")]
    with pytest.raises(typer.Exit):
        exit_on_outages(outages)
    printed = capsys.readouterr().err
    assert printed.count("is deleted") == 2
    assert printed.count("--accept-replace state") == 1
