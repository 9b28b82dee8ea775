"""What a VAD host that serves meets later: a reboot, and the notice that ends a spot instance.

One machine boots twice.
"""

from pathlib import Path

import pytest
from rich.console import Console

import blueprint
from blueprint.aws import names
from ops.progress import Progress
from ops.sandbox.hosts import surroundings
from sandbox.hosts.facts import vad_facts
from sandbox.hosts.rehearsal import detached, interrupt, launch, reboot

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[3]


def test_a_host_serves_after_a_reboot_and_drains_after_a_spot_notice(tmp_path: Path) -> None:
    deployment = blueprint.load(ROOT / "deployments/hosts.yaml")
    group = names.vad_groups(deployment)[0]
    with surroundings(deployment, tmp_path, Progress(Console(stderr=True))) as cloud:
        host = cloud.boot(cloud.launched(group), group)
        launch(cloud, host)
        served_s = host.machine.age_s
        reboot(host)
        assert [claim.text for claim in vad_facts(deployment, host) if not claim.holds] == []
        assert not host.machine.said("installing", since_s=served_s)
        interrupt(cloud, host)
        assert detached(host)
