"""What `voice plan` and `voice preview azure` say of one deployment file."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pytest
import yaml

from blueprint import checks
from blueprint.checks import Check
from stacks.azure.policy.rules import Stack
from tests.blueprint.documents import load_text
from tests.stacks.azure import recorded
from tests.stacks.azure.policy.graphs import CLUSTER, travelled, violations, workloads

CHECKS: dict[str, Check] = {check.id: check for check in checks.CHECKS}
SHARED = {check.id for check in checks.CHECKS if check.judge}
"""Rules that plan applies to the file and preview to what the programs emit."""


@dataclass(frozen=True)
class Answers:
    """Ids of rules that refuse a file.

    Attributes:
        plan: Of the checks.
        preview: Of the policies, once the file accepts what the checks find; ``None`` where that cannot be accepted,
            and the programs refuse to run.
    """

    plan: frozenset[str]
    preview: frozenset[str] | None


def answers(text: str) -> Answers:
    """Ask both about a file's text.

    Raises:
        AssertionError: A program does not refuse what a check does.
    """
    blocking = _blocking(text)
    final = {check for check in blocking if not CHECKS[check].acceptable}
    accepting = accepted(text, blocking - final)
    if final:
        _refused(accepting, final)
        return Answers(frozenset(blocking), None)
    cluster = recorded.record(CLUSTER, accepting)
    found = set()
    with tempfile.TemporaryDirectory() as folder:
        deployment = load_text(accepting, Path(folder))
        for graph in (cluster, workloads(accepting, cluster)):
            found |= {rule.name for rule, _ in violations(Stack(tuple(travelled(graph)), deployment))}
    return Answers(frozenset(blocking), frozenset(found))


def accepted(text: str, ids: set[str]) -> str:
    """Return a file that accepts these checks too."""
    document = yaml.safe_load(text)
    known = document.get("accepted_checks", [])
    document["accepted_checks"] = [*known, *({"id": each, "reason": "asked for by a test"} for each in sorted(ids))]
    return yaml.safe_dump(document)


def _blocking(text: str) -> set[str]:
    with tempfile.TemporaryDirectory() as folder:
        return {found.check.id for found in checks.run(load_text(text, Path(folder))) if found.blocks}


def _refused(text: str, ids: set[str]) -> None:
    with pytest.raises(pulumi.RunError) as refused:
        recorded.record(CLUSTER, text)
    assert all(f"[{each}]" in str(refused.value) for each in ids)
