"""Every check is run on valid and invalid deployment files, and its message is complete."""

import os
import re
from collections import Counter
from pathlib import Path
from typing import Protocol

import pytest

import voice_blueprint
from tests.blueprint.checks import azure_cases, cases
from tests.blueprint.checks.cases import Case
from tests.blueprint.documents import (
    AZURE_BASE,
    BASE,
    DEPLOYMENTS,
    Edits,
    edit_document,
    load_text,
    location,
    parse_yaml,
    setting_locations,
)
from tests.blueprint.test_alarms import silence_alone_can_alarm
from tests.nonempty import nonempty
from voice_blueprint import Deployment, checks
from voice_blueprint.checks import Finding, Severity
from voice_blueprint.checks.azure import models as azure_models
from voice_blueprint.file.model.scaling import MissingData

CASES = (*cases.CASES, *azure_cases.CASES)
GOLDEN_MESSAGES = Path(__file__).parent / "golden" / "answers.txt"
IDS = [check.id for check in checks.CHECKS]
EACH_CASE = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.check}-{case.at}")


class Load(Protocol):
    """Loads a base document with edits."""

    def __call__(self, edits: Edits, base: str = BASE) -> Deployment: ...


@pytest.fixture(scope="session")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """Return a loader that reads equal documents once, because YAML is slow."""
    loaded: dict[str, Deployment] = {}

    def load(edits: Edits, base: str = BASE) -> Deployment:
        content = edit_document(edits, base)
        if content not in loaded:
            loaded[content] = load_text(content, tmp_path_factory.mktemp("deployment"))
        return loaded[content]

    return load


def findings(deployment: Deployment, case: Case) -> list[Finding]:
    """Return the findings of the case's check at the case's location."""
    return [
        finding
        for finding in checks.run_checks(deployment)
        if finding.check.id == case.check and finding.violation.location == location(case.at)
    ]


@EACH_CASE
def test_a_violating_file_triggers_its_check(case: Case, load: Load) -> None:
    deployment = load(case.trips, case.base)
    found = findings(deployment, case)
    assert found
    for finding in found:
        assert finding.is_blocking == (finding.check.level is Severity.ERROR)
        assert finding.acceptance_reason is None or finding.check.id == "ena-express-hops"


@EACH_CASE
def test_a_valid_file_passes_its_check(case: Case, load: Load) -> None:
    assert not findings(load(case.passes, case.base), case)


@EACH_CASE
def test_a_finding_has_a_value_a_remedy_and_a_location(case: Case, load: Load) -> None:
    deployment = load(case.trips, case.base)
    document = parse_yaml(deployment.source.file.read_text(encoding="utf-8"))
    words = {str(place[-1]) for place in setting_locations(document)} | set(re.findall(r"[\w.-]+", str(document)))
    for finding in nonempty(checks.run_checks(deployment)):
        violation = finding.violation
        # A file for one cloud does not refer to the documentation of the other.
        assert deployment.aws_section or "aws.amazon.com" not in finding.check.source, finding.check.id
        assert deployment.azure_section or "learn.microsoft.com" not in finding.check.source, finding.check.id
        # The message contains the wrong number or name from the file.
        assert re.search(r"\d", violation.message) or words & set(re.findall(r"[\w.-]+", violation.message))
        assert violation.remedy.strip()
        assert violation.remedy != violation.message
        assert not violation.message.endswith(".")
        assert deployment.source.find_line(violation.location)


def test_messages_match_the_reviewed_golden_file(load: Load) -> None:
    """Compare every number of a message and its remedy with a golden file; ``UPDATE_GOLDEN=1`` writes it."""
    said = "".join(
        f"{case.check} at {case.at}\n    {finding.violation.message}\n    -> {finding.violation.remedy}\n"
        for case in CASES
        for finding in findings(load(case.trips, case.base), case)
    )
    if os.environ.get("UPDATE_GOLDEN") == "1":
        GOLDEN_MESSAGES.write_text(said, encoding="utf-8")
    assert said == GOLDEN_MESSAGES.read_text(encoding="utf-8")


@EACH_CASE
def test_a_finding_refers_to_a_location_in_the_file(case: Case, load: Load) -> None:
    deployment = load(case.trips, case.base)
    lines = deployment.source.lines
    assert (location(case.at) in lines) == case.present
    rows = deployment.source.file.read_text(encoding="utf-8").splitlines()
    line = deployment.source.find_line(location(case.at))
    assert line
    if case.present:
        key = next(part for part in reversed(location(case.at)) if isinstance(part, str))
        assert key in rows[line - 1] or rows[line - 1].lstrip().startswith("- ")


def test_table_covers_exactly_the_checks() -> None:
    assert {case.check for case in CASES} == set(IDS)


def test_ids_are_unique_and_hyphenated() -> None:
    assert [name for name, count in Counter(IDS).items() if count > 1] == []
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)+", name) for name in IDS)


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.id)
def test_check_has_a_description_and_a_source(check: checks.Check) -> None:
    assert check.description.strip().endswith(".")
    assert check.description[0].isupper()
    assert check.source.strip()
    assert isinstance(check.level, Severity)


@pytest.mark.parametrize(
    ("base", "informs"),
    [
        # Its VAD hosts are sized for other checks, and its weights are downloaded from a hub.
        (BASE, {"artifacts-used", "quota-need", "tiers-balanced"}),
        # No source confirms that a cell's GPUs reach each other's memory, so its check warns of every cell.
        # Its aggregated service leaves NVMe unused.
        (AZURE_BASE, {"family-quota-need", "cell-gpus-reach-each-other", "nvme-keeps-kv", "size-is-sold-here"}),
    ],
)
def test_base_document_only_has_informational_findings(base: str, informs: set[str], load: Load) -> None:
    assert {finding.check.id for finding in checks.run_checks(load({}, base))} == informs


def test_errors_come_before_other_findings(load: Load) -> None:
    edits = {"aws.vad.data_path.mtu": 1300, "aws.network.nat_gateways": 1, "aws.vad.ena_express.enabled": True}
    levels = [finding.check.level for finding in checks.run_checks(load(edits))]
    assert levels == sorted(levels, key=list(Severity).index)
    assert set(levels) == set(Severity)


# --- Acceptance -------------------------------------------------------------------------------------------

SMALL_MTU: Edits = {"aws.vad.data_path.mtu": 1500}


def accept_finding(check: str, reason: str = "measured, and it is fine") -> Edits:
    return {"accepted_checks": [{"id": check, "reason": reason}]}


def blocking_checks(deployment: Deployment) -> set[str]:
    return {finding.check.id for finding in checks.run_checks(deployment) if finding.is_blocking}


def test_more_sessions_than_a_gpu_supports_prevent_a_deploy(load: Load) -> None:
    for case in nonempty(case for case in CASES if case.check == "replicas-carry-load"):
        assert case.check in blocking_checks(load(case.trips, case.base))


def test_an_accepted_error_stays_visible_and_does_not_block(load: Load) -> None:
    assert blocking_checks(load(SMALL_MTU)) == {"chunk-fits-mtu"}
    deployment = load({**SMALL_MTU, **accept_finding("chunk-fits-mtu")})
    assert blocking_checks(deployment) == set()
    (finding,) = [finding for finding in checks.run_checks(deployment) if finding.check.id == "chunk-fits-mtu"]
    assert finding.acceptance_reason == "measured, and it is fine"


def test_accepting_one_check_does_not_accept_another(load: Load) -> None:
    assert blocking_checks(load({**SMALL_MTU, **accept_finding("xdp-mtu")})) == {"chunk-fits-mtu"}


def test_accepting_an_unknown_check_blocks(load: Load) -> None:
    deployment = load({**SMALL_MTU, **accept_finding("chunk-fit-mtu")})
    assert blocking_checks(deployment) == {"chunk-fits-mtu", "accepted-checks-exist"}


@pytest.mark.parametrize("reason", ["", "because", 3, None])
def test_accepting_a_finding_requires_a_reason(reason: object, load: Load) -> None:
    with pytest.raises(voice_blueprint.DeploymentFileError, match="reason"):
        load({"accepted_checks": [{"id": "xdp-mtu", "reason": reason}]})


# --- Remedies that name a value ---------------------------------------------------------------------------

NUMBER_REMEDIES = (
    ("huge-pages-fit-memory", "aws.vad.huge_pages.count", r"at most (\d+)"),
    ("xdp-mtu", "aws.vad.data_path.mtu", r"at most (\d+)"),
    ("ena-express-mtu", "aws.vad.data_path.mtu", r"at most (\d+)"),
    ("chunk-fits-mtu", "aws.vad.data_path.mtu", r"between (\d+)"),
    ("rx-ring-size", "aws.vad.data_path.rx_ring_size", r"use (\d+)"),
    ("rx-queues-fit", "aws.vad.data_path.rx_queues", r"at most (\d+)"),
    ("gateway-drain-exceeds-idle", "aws.edge.idle_timeout_s", r"at most (\d+)"),
    ("nat-per-zone", "aws.network.nat_gateways", r"set nat_gateways to (\d+)"),
)


@pytest.mark.parametrize(("check", "at", "pattern"), NUMBER_REMEDIES, ids=lambda part: part)
def test_following_the_remedy_fixes_the_finding(check: str, at: str, pattern: str, load: Load) -> None:
    tried = 0
    for case in CASES:
        if case.check != check or not case.present:
            continue
        (finding,) = findings(load(case.trips, case.base), case)
        if remedy := re.search(pattern, finding.violation.remedy):
            assert not findings(load({**case.trips, at: int(remedy[1])}, case.base), case)
            tried += 1
    assert tried


@pytest.mark.parametrize(("driver", "runs"), [("570.211.01", False), ("580.65.06", True), ("595.10", True)])
def test_a_driver_of_the_required_branch_runs_the_engine(
    driver: str, *, runs: bool, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(azure_models, "OLD_DRIVER_BY_GPU", {"A10": f"GRID {driver}"})
    (case,) = (case for case in CASES if case.check == "driver-runs-engine")
    assert (findings(load(case.trips, case.base), case) == []) is runs


def test_the_larger_instance_type_in_a_remedy_fixes_the_finding(load: Load) -> None:
    for case in CASES:
        if case.check in {"huge-pages-fit-memory", "ena-express-supported"}:
            (finding,) = findings(load(case.trips, case.base), case)
            if larger := re.search(r"take (c8g\S+)", finding.violation.remedy):
                edits = {**case.trips, "aws.vad.instance_type": larger[1]}
                assert not findings(load(edits), case)


# --- Claims behind checks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("missing_data", MissingData)
def test_missing_data_treatments_that_can_alarm_are_rejected(missing_data: MissingData, load: Load) -> None:
    deployment = load({"aws.vad.scaling.0.missing_data": str(missing_data)})
    assert ("missing-data-is-safe" in blocking_checks(deployment)) == silence_alone_can_alarm(missing_data)


# --- The shipped files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sandbox", "production-us-east-1", "production-azure", "cells", "both", "small"])
def test_shipped_deployment_is_not_blocked(name: str) -> None:
    assert blocking_checks(voice_blueprint.load(DEPLOYMENTS / f"{name}.yaml")) == set()


def test_sandbox_has_a_digest_for_every_image() -> None:
    found = {finding.check.id for finding in checks.run_checks(voice_blueprint.load(DEPLOYMENTS / "sandbox.yaml"))}
    assert found == {"neuron-lifecycle", "quota-need", "store-holds-calls", "tiers-balanced"}


@pytest.mark.parametrize(
    ("check", "at", "messages"),
    [
        ("huge-pages-fit-memory", "aws.vad.huge_pages.count", ("24576", "48 GiB", "32 GiB", "c8g.4xlarge")),
        ("ena-express-supported", "aws.vad.ena_express", ("c8g.4xlarge",)),
        ("ena-express-peers-supported", "aws.asr.0.instance_type", ("inf2.48xlarge",)),
        ("ena-express-peers-supported", "aws.asr.1.instance_type", ("trn1.2xlarge",)),
        ("ena-express-mtu", "aws.vad.data_path.mtu", ("9001",)),
        ("engine-supports-accelerator", "aws.asr.0.engine", ("vLLM", "Inferentia2")),
        ("engine-supports-accelerator", "aws.asr.1.engine", ("vLLM", "Trainium")),
        ("scaling-metric-published", "aws.vad.scaling.0.metric", ("EnaRxQueueDepth",)),
        ("scaling-metric-published", "aws.asr.2.scaling.0.metric", ("NcclBusy",)),
        ("scaling-direction", "aws.asr.0.scaling.0.comparison", ("NeuronUtilization below 20", "idle")),
    ],
)
def test_the_seed_file_is_rejected_with_reasons(check: str, at: str, messages: tuple[str, ...]) -> None:
    seed = voice_blueprint.load(DEPLOYMENTS / "seed.yaml")
    (finding,) = findings(seed, Case(check, at, {}, {}))
    assert finding.is_blocking
    for words in messages:
        assert words in finding.violation.message
    assert location(at) in seed.source.lines


def test_correct_settings_of_the_seed_file_have_no_finding() -> None:
    seed = voice_blueprint.load(DEPLOYMENTS / "seed.yaml")
    peers = [f.violation.location for f in checks.run_checks(seed) if f.check.id == "ena-express-peers-supported"]
    assert location("aws.asr.2.instance_type") not in peers  # p5.4xlarge has ENA Express
    assert "alarm-period" not in blocking_checks(seed)
    assert "instance-type-in-region" not in blocking_checks(seed)
