"""Whatever a file says: a named check refuses it, or what is synthesized is sound and holds the invariants.

Of 300 files about 220 are refused, which takes milliseconds. A synth of one that passes takes this process half a
second, or a second and a half for Azure; cfn-lint takes one for each template, and reads those of a shape that is new:
of a change's 300 files the first ten, of a night's 10,000 all.
"""

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, example, given, settings

from blueprint import DeploymentFileError, checks
from tests.adversarial import invariants
from tests.adversarial.files import File, files
from tests.blueprint.documents import load_text
from tests.contract.sources import SANDBOX, deployment, templates_of
from tests.contract.templates import Template, of_type
from tests.stacks.azure import recorded
from tests.stacks.azure.policy.graphs import CLUSTER, workloads
from tests.synthesized import synthesize

Properties = dict[str, Any]
CHECKS = {check.id: check for check in checks.CHECKS}


def shape(value: object) -> object:
    """Return a template with its numbers and names left out: what is there, and how much of it."""
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
    """cfn-lint, for templates of a shape that it has not read.

    Attributes:
        most: How many it reads.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._read: set[str] = set()

    def violations(self, template: Template, region: str) -> list[str]:
        """Return what it says; nothing of a shape that it knows."""
        digest = hashlib.sha256(json.dumps([shape(template), region], sort_keys=True).encode()).hexdigest()
        if digest in self._read or len(self._read) == self.most:
            return []
        self._read.add(digest)
        return invariants.cfn_lint(template, region)


A_CHANGES, A_NIGHTS = Linter(10), Linter(10**6)


def judge(file: File, folder: Path, linter: Linter) -> None:
    text = file.text()
    try:
        deployment = load_text(text, folder)
    except DeploymentFileError as error:
        event("refused by the model")
        unexplained = [problem for problem in error.problems if not problem.message]
        if unexplained:
            pytest.fail(str(error))
        return
    refused = {found.check.id for found in checks.run(deployment) if found.blocks}
    if refused:
        event("refused by a check")
        assert refused <= CHECKS.keys()
        return
    event("synthesized")
    found: list[str] = []
    for regional in deployment.in_regions() if deployment.aws_half else ():
        templates = templates_of(synthesize(regional))
        found += invariants.aws_violations(templates, regional)
        for template in templates.values():
            found += linter.violations(template, regional.aws.region)
    if deployment.azure_half:
        cluster = recorded.record(CLUSTER, text)
        found += invariants.azure_violations(cluster, workloads(text, cluster), deployment)
    assert not found, "\n".join(found)


BUDGET = settings(
    deadline=None,
    # A failure says the base and its few edits; making them fewer takes minutes of synths.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
BEYOND_MEMORY = {
    "name": "p5",
    "instance_type": "p5.4xlarge",
    "hosts": {"min": 1, "max": 4},
    "engine": "vllm",
    "vllm": {"model": "qwen3-8b", "load": {"sessions": 20, "session_tokens": 10**7, "context_tokens": 10**7}},
    "scaling": [],
}
"""A fleet that carries no call at all."""


@settings(BUDGET, max_examples=300)
@given(file=files())
@example(file=File("a base of AWS", ((("aws", "asr"), [BEYOND_MEMORY]),)))
@example(file=File("a base of AWS", ((("image_signing", "signature"), "é"),)))
@example(file=File("a base of Azure", ((("azure", "hub_token_secret"), "hub-token"),)))
def test_a_file_is_refused_or_sound(file: File, tmp_path: Path) -> None:
    judge(file, tmp_path, A_CHANGES)


# In parts: a night that ends early has finished some, and a defect in one does not end the others.
@pytest.mark.nightly
@pytest.mark.timeout(2 * 3600)
@pytest.mark.parametrize("part", range(10))
@settings(BUDGET, max_examples=1_000)
@given(file=files())
def test_ten_thousand_files_are_refused_or_sound(part: int, file: File, tmp_path: Path) -> None:  # noqa: ARG001
    judge(file, tmp_path, A_NIGHTS)


def edited_templates(kind: str, change: Callable[[Properties], None]) -> dict[str, Template]:
    """Return the templates of the sandbox with one resource of a type changed."""
    templates = copy.deepcopy(dict(SANDBOX))
    change(next(of_type(templates, kind)).properties)
    return templates


@pytest.mark.parametrize("kind", sorted({*invariants.CLOSED} & {each["Type"][5:] for t in SANDBOX.values()
                                                               for each in t["Resources"].values()}))  # fmt: skip
def test_what_is_open_or_in_the_clear_is_found(kind: str) -> None:
    found = invariants.open_or_in_the_clear(edited_templates(kind, lambda of: of.clear()))
    assert [each for each in found if kind in each]
    assert not list(invariants.open_or_in_the_clear(SANDBOX))


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("AutoScaling::AutoScalingGroup", {"MinSize": "5", "MaxSize": "4"}, "at least 5, at most 4 hosts"),
        ("AutoScaling::AutoScalingGroup", {"MaxSize": "70000"}, "hosts in 10."),
        ("EC2::LaunchTemplate", {"LaunchTemplateData": {"UserData": "x" * 20_000}}, "20000 bytes of user data"),
    ],
)
def test_a_sum_that_does_not_fit_is_found(kind: str, change: Properties, said: str) -> None:
    found = invariants.sums(edited_templates(kind, lambda of: of.update(change)), deployment("sandbox"))
    assert any(said in each for each in found)
    assert not list(invariants.sums(SANDBOX, deployment("sandbox")))


def test_cfn_lint_is_really_asked() -> None:
    template = edited_templates("SNS::Topic", lambda of: of.update(Nonsense=1))["observability"]
    assert any(each.startswith("E3002") for each in Linter(1).violations(template, "us-east-1"))
