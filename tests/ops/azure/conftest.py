"""A file with callers and agents, its resources, and a cluster that runs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest

from tests.blueprint.documents import load_text
from tests.ops.azure.live_cluster import LiveCluster, SignedIn, api_server, running
from tests.ops.preflight.azure_stub import SUBSCRIPTION, serve
from tests.stacks.azure.manifests import DIGESTS
from tests.stacks.azure.recorded import cluster, edit_deployment
from voice_blueprint import Deployment
from voice_ops.azure.workloads import DefinedWorkloads, evaluate_workloads
from voice_ops.preflight.azure import account
from voice_ops.preflight.azure.account import Account

TEXT = edit_deployment(
    {
        "name": "mine",
        "environment": "staging",
        "images": DIGESTS,
        "azure.admin_groups": ["11111111-2222-3333-4444-555555555555"],
    },
    "production-azure",
)


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("azure") / "mine.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    return load_text(TEXT, tmp_path_factory.mktemp("azure"))


@pytest.fixture(scope="session")
def wanted_resources(deployment: Deployment) -> DefinedWorkloads:
    """Return the resources of the file's programs, computed once for all tests."""
    return evaluate_workloads(deployment)


@pytest.fixture
def live_cluster(
    wanted_resources: DefinedWorkloads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LiveCluster]:
    """Start a fake cluster that the commands access with an operator's credentials."""
    found = deepcopy(running(cluster(TEXT), wanted_resources))
    monkeypatch.setenv("ARM_SUBSCRIPTION_ID", SUBSCRIPTION)
    for module in ("voice_ops.status.azure", "voice_ops.rollout.azure"):
        monkeypatch.setattr(f"{module}.evaluate_workloads", lambda _: wanted_resources)
    with serve(found) as transport, api_server(found, tmp_path):

        def create_account(deployment: Deployment, kinds: Counter[str], resource_name: str) -> Account:
            return Account(
                deployment, kinds, resource_name, SignedIn(), {"transport": transport, "retry_backoff_factor": 0}
            )

        monkeypatch.setattr(account, "create_account", create_account)
        yield found
