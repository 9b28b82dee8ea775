"""For any deployment file, either a named check refuses it, or its resources are valid and satisfy the invariants.

Of 300 files about 220 are refused, which takes milliseconds. Synthesis of one that passes takes half a second, or a
second and a half for Azure; cfn-lint takes a second for each template and reads only those of a new shape: on a change
the first ten, and every night all.
"""

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, example, given, settings

from tests.adversarial import invariants
from tests.adversarial.files import File, files
from tests.blueprint.documents import load_text
from tests.contract.sources import SANDBOX, deployment, templates_by_tier
from tests.contract.templates import Template, resources_by_type
from tests.stacks.azure import recorded
from tests.stacks.azure.policy.graphs import CLUSTER, workloads
from tests.synthesized import synthesize
from voice_blueprint import DeploymentFileError, checks

Properties = dict[str, Any]
CHECKS = {check.id: check for check in checks.CHECKS}


def shape(value: object) -> object:
    """Return a template without its numbers and names, only its structure."""
    match value:
        case dict():
            return {key: shape(each) for key, each in value.items()}
        case list():
            return [shape(each) for each in value]
        case str():
            return value if value.isupper() or value.startswith("AWS::") else "text"
        case bool() | None:
            return value
        case _:
            return "number"


class Linter:
    """Runs cfn-lint for templates of a new shape.

    Attributes:
        most: Maximum number of templates that it reads.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._read: set[str] = set()

    def violations(self, template: Template, region: str) -> list[str]:
        """Return the findings, or none for a known shape."""
        digest = hashlib.sha256(json.dumps([shape(template), region], sort_keys=True).encode()).hexdigest()
        if digest in self._read or len(self._read) == self.most:
            return []
        violations = invariants.cfn_lint(template, region)
        if not violations:  # otherwise a repeated run of a failing example would pass
            self._read.add(digest)
        return violations


A_CHANGES, A_NIGHTS = Linter(10), Linter(10**6)


def check_file(file: File, folder: Path, linter: Linter) -> None:
    text = file.text()
    try:
        deployment = load_text(text, folder)
    except DeploymentFileError as error:
        event("refused by the model")
        unexplained = [problem for problem in error.problems if not problem.message]
        if unexplained:
            pytest.fail(str(error))
        return
    refused = {found.check.id for found in checks.run_checks(deployment) if found.is_blocking}
    if refused:
        event("refused by a check")
        assert refused <= CHECKS.keys()
        return
    event("synthesized")
    found: list[str] = []
    for regional in deployment.split_by_region() if deployment.aws_section else ():
        templates = templates_by_tier(synthesize(regional))
        found += invariants.aws_violations(templates, regional)
        for template in templates.values():
            found += linter.violations(template, regional.aws.region)
    if deployment.azure_section:
        cluster = recorded.record(CLUSTER, text)
        found += invariants.azure_violations(cluster, workloads(text, cluster), deployment)
    assert not found, "\n".join(found)


BUDGET = settings(
    deadline=None,
    # A failure prints the base and its few edits; shrinking would synthesize for minutes.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
OVERSIZED_FLEET = {
    "name": "p5",
    "instance_type": "p5.4xlarge",
    "hosts": {"min": 1, "max": 4},
    "engine": "vllm",
    "vllm": {"model": "qwen3-8b", "load": {"sessions": 20, "session_tokens": 10**7, "context_tokens": 10**7}},
    "scaling": [],
}
"""A fleet without capacity for a call."""


@settings(BUDGET, max_examples=300)
@given(file=files())
@example(file=File("a base of AWS", ((("aws", "asr"), [OVERSIZED_FLEET]),)))
@example(file=File("a base of AWS", ((("image_signing", "signature"), "é"),)))
@example(file=File("a base of Azure", ((("azure", "hub_token_secret"), "hub-token"),)))
@example(file=File("a base of Azure", ((("azure", "services", 1, "load", "session_tokens"), 1),)))
def test_every_file_is_valid_or_rejected(file: File, tmp_path: Path) -> None:
    check_file(file, tmp_path, A_CHANGES)


# Split into parts, so that an aborted night has completed some, and a defect in one does not stop the others. A part
# takes up to nine minutes of a slow CPU (an EPYC of family 23), so that all fit into the hour of the nightly job.
@pytest.mark.nightly
@pytest.mark.timeout(2 * 3600)
@pytest.mark.parametrize("part", range(7))
@settings(BUDGET, max_examples=1_000)
@given(file=files())
def test_thousands_of_files_are_valid_or_rejected(part: int, file: File, tmp_path: Path) -> None:  # noqa: ARG001
    check_file(file, tmp_path, A_NIGHTS)


def edited_templates(kind: str, change: Callable[[Properties], None]) -> dict[str, Template]:
    """Return the sandbox's templates with one resource of a type changed."""
    templates = copy.deepcopy(dict(SANDBOX))
    change(next(resources_by_type(templates, kind)).properties)
    return templates


@pytest.mark.parametrize("kind", sorted({*invariants.PRIVATE_PROPERTIES} & {each["Type"][5:] for t in SANDBOX.values()
                                                               for each in t["Resources"].values()}))  # fmt: skip
def test_open_or_unencrypted_resources_are_detected(kind: str) -> None:
    found = invariants.open_or_unencrypted(edited_templates(kind, lambda of: of.clear()))
    assert [each for each in found if kind in each]
    assert not list(invariants.open_or_unencrypted(SANDBOX))


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("AutoScaling::AutoScalingGroup", {"MinSize": "5", "MaxSize": "4"}, "at least 5, at most 4 hosts"),
        ("AutoScaling::AutoScalingGroup", {"MaxSize": "70000"}, "hosts in 10."),
        ("EC2::LaunchTemplate", {"LaunchTemplateData": {"UserData": "x" * 20_000}}, "20000 bytes of user data"),
    ],
)
def test_a_violated_limit_is_detected(kind: str, change: Properties, message: str) -> None:
    found = invariants.exceeded_limits(edited_templates(kind, lambda of: of.update(change)), deployment("sandbox"))
    assert any(message in each for each in found)
    assert not list(invariants.exceeded_limits(SANDBOX, deployment("sandbox")))


def test_cfn_lint_runs() -> None:
    template = edited_templates("SNS::Topic", lambda of: of.update(Nonsense=1))["observability"]
    linter = Linter(1)
    for _ in range(2):  # Hypothesis repeats a failing example
        assert any(each.startswith("E3002") for each in linter.violations(template, "us-east-1"))
