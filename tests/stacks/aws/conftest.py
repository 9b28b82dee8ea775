"""Synthesized stacks shared by several modules."""

import pytest

from tests.blueprint.documents import ABSENT, Edits
from tests.stacks.aws.edge import CERTIFICATE
from tests.synthesized import Stack, Stacks, edited_sandbox, shipped

AUTHORIZERS: dict[str, dict[str, str]] = {
    "jwt": {"kind": "jwt", "issuer": "https://login.callers.dev/", "audience": "voice"},
    "api-key": {"kind": "api-key"},
    "none": {"kind": "none"},
}


@pytest.fixture(scope="session")
def sandbox() -> Stacks:
    return shipped("sandbox")


@pytest.fixture(scope="session")
def edge(sandbox: Stacks) -> Stack:
    return sandbox["edge"]


@pytest.fixture(scope="session")
def production() -> Stack:
    return shipped("production-us-east-1")["edge"]


@pytest.fixture(scope="session")
def by_authorizer(edge: Stack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stack]:
    """Return the edge with each kind of authorizer."""
    return {"iam": edge} | {
        kind: edited_sandbox({"aws.edge.authorizer": value}, tmp_path_factory.mktemp(kind))["edge"]
        for kind, value in AUTHORIZERS.items()
    }


@pytest.fixture(scope="session")
def edge_without_domain(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """Return the edge with a certificate and no domain."""
    edits: Edits = {"aws.edge.domain": ABSENT, "aws.edge.certificate_arn": CERTIFICATE}
    return edited_sandbox(edits, tmp_path_factory.mktemp("unnamed"))["edge"]
