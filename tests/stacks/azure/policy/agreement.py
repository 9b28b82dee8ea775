"""Results of `voice plan` and `voice preview azure` for one deployment file."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pytest
import yaml

from tests.blueprint.documents import load_text
from tests.stacks.azure import recorded
from tests.stacks.azure.policy.graphs import CLUSTER, policy_resources, violations, workloads
from voice_blueprint import checks
from voice_blueprint.checks import Check
from voice_stacks.azure.policy.rules import Stack

CHECKS: dict[str, Check] = {check.id: check for check in checks.CHECKS}
SHARED_CHECKS = {check.id for check in checks.CHECKS if check.check_cluster}
"""Checks that also exist as policies on the programs' output."""


@dataclass(frozen=True)
class Answers:
    """Ids of rules that refuse a file.

    Attributes:
        plan: From the checks.
        preview: From the policies, once the file accepts the checks' findings; ``None`` where that is impossible, and
            the programs refuse to run.
    """

    plan: frozenset[str]
    preview: frozenset[str] | None


def compare_programs(text: str) -> Answers:
    """Run `voice plan` and `voice preview azure` on a deployment file.

    Raises:
        AssertionError: A program accepts a file that a check refuses.
    """
    blocking = _blocking(text)
    final = {check for check in blocking if not CHECKS[check].is_acceptable}
    accepting = accept_checks(text, blocking - final)
    if final:
        _assert_refused(accepting, final)
        return Answers(frozenset(blocking), None)
    cluster = recorded.record(CLUSTER, accepting)
    found = set()
    with tempfile.TemporaryDirectory() as folder:
        deployment = load_text(accepting, Path(folder))
        for graph in (cluster, workloads(accepting, cluster)):
            found |= {rule.name for rule, _ in violations(Stack(tuple(policy_resources(graph)), deployment))}
    return Answers(frozenset(blocking), frozenset(found))


def accept_checks(text: str, ids: set[str]) -> str:
    """Return a file that also accepts these checks."""
    document = yaml.safe_load(text)
    known = document.get("accepted_checks", [])
    document["accepted_checks"] = [*known, *({"id": each, "reason": "asked for by a test"} for each in sorted(ids))]
    return yaml.safe_dump(document)


def _blocking(text: str) -> set[str]:
    with tempfile.TemporaryDirectory() as folder:
        return {found.check.id for found in checks.run_checks(load_text(text, Path(folder))) if found.is_blocking}


def _assert_refused(text: str, ids: set[str]) -> None:
    with pytest.raises(pulumi.RunError) as refused:
        recorded.record(CLUSTER, text)
    assert all(f"[{each}]" in str(refused.value) for each in ids)
