"""Calls per tier match manual calculations and are equal in all commands."""

import json
import math
import re
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import voice_blueprint
from tests.blueprint.documents import DEPLOYMENTS, Edits, edit_document, load_text, load_with_edits
from tests.nonempty import nonempty
from tests.stacks.azure.manifests import pod, workloads
from tests.synthesized import Stack, Stacks, edited_sandbox, shipped, synthesize, user_data
from voice_blueprint import Deployment, checks
from voice_blueprint.aws.fleets import iter_fleets
from voice_blueprint.capacity.bounds import (
    MAX_VAD_STREAMS,
    STORE_BYTES_PER_CALL,
    calculate_asr_host_call_bounds,
    calculate_gateway_task_call_bounds,
    calculate_state_store_call_bounds,
    calculate_vad_host_call_bounds,
    find_limiting_bound,
)
from voice_blueprint.capacity.conversations import build_aws_conversation_chain, calculate_concurrent_conversations
from voice_blueprint.capacity.load import calculate_peak_calls, recommend_sizes
from voice_blueprint.capacity.tiers import (
    TARGET_UTILIZATION,
    build_aws_tier_capacities,
    build_azure_caller_capacities,
    calculate_supported_peak_calls,
    sum_calls_by_tier,
)
from voice_blueprint.contract.network import Tier
from voice_blueprint.day import resolve_design_load
from voice_blueprint.engines.sizing.service import iter_transcription_capacities
from voice_blueprint.file.model.aws import AsrFleet, StateStore
from voice_blueprint.file.model.azure_callers import RedisSku
from voice_blueprint.file.model.edge import GatewayService
from voice_blueprint.file.model.load import CallLoad
from voice_ops.cli import app
from voice_ops.cost.audio import estimate_aws_calls, estimate_azure_calls
from voice_ops.cost.conversations import estimate_aws_conversations
from voice_ops.plan.capacity import serialize_capacity, serialize_conversations
from voice_ops.preflight.models import check_call_capacity
from voice_ops.simulate.capacity import TRANSCRIBING_KINDS, create_fleet_plans

ROOT = Path(__file__).parents[2]
PRODUCTION = voice_blueprint.load(DEPLOYMENTS / "production-us-east-1.yaml")
HAND_MEASUREMENT = {"date": "2026-11-22", "conditions": "by hand, on one host"}


def test_the_store_has_room_for_audio_and_transcript_of_each_call() -> None:
    # 30 s of 10 chunks of 3,244 bytes, and 512 KiB: 1.5 MB; three quarters of 26.32 GiB.
    assert STORE_BYTES_PER_CALL == 30 * 10 * 3244 + 524_288
    node = StateStore(node_type="cache.r7g.xlarge")
    assert find_limiting_bound(calculate_state_store_call_bounds(node, archives=False)).calls == int(
        26.32 * 2**30 * 0.75 / 1_497_488
    )
    assert find_limiting_bound(calculate_state_store_call_bounds(node, archives=True)).calls == int(
        26.32 * 2**30 * 0.75 / (1_497_488 + 131_072)
    )


def test_the_vad_stream_limit_matches_the_module() -> None:
    module = (ROOT / "images/vad-dataplane/src/vad/module/vad.c").read_text(encoding="utf-8")
    assert f"STREAMS = {MAX_VAD_STREAMS}" in module


def test_the_smallest_bound_applies_and_names_its_source(tmp_path: Path) -> None:
    edits = {"aws.vad.measured": HAND_MEASUREMENT | {"calls": 5000}, "aws.vad.instance_type": "c8g.medium"}
    bound = find_limiting_bound(calculate_vad_host_call_bounds(load_with_edits(edits, tmp_path).aws.vad))
    # 0.52 Gbit/s at 272 kbit/s per call
    assert (bound.name, bound.kind, bound.calls) == ("network", "published", 1911)
    bound = find_limiting_bound(
        calculate_vad_host_call_bounds(
            load_with_edits({"aws.vad.measured": HAND_MEASUREMENT | {"calls": 700}}, tmp_path).aws.vad
        )
    )
    assert (bound.name, bound.kind, bound.calls) == ("compute", "measured", 700)


def test_a_host_that_its_engine_does_not_support_has_no_capacity() -> None:
    seed = voice_blueprint.load(DEPLOYMENTS / "seed.yaml").aws
    assert [find_limiting_bound(calculate_asr_host_call_bounds(fleet)).calls for fleet in seed.asr] == [0, 0, 32]


def test_capacity_of_cores_requires_a_model_of_known_speed() -> None:
    def on(instance_type: str, **changes: object) -> AsrFleet:
        return AsrFleet.model_validate(
            {"name": "cpu", "instance_type": instance_type, "hosts": {"min": 1, "max": 2}, "scaling": ()} | changes
        )

    def calls(fleet: AsrFleet) -> int:
        return find_limiting_bound(calculate_asr_host_call_bounds(fleet)).calls

    # 4 vCPU at half the speed of an x86 core, which needs 0.16 s for a second of speech; half of a call is speech.
    assert calls(on("c8g.xlarge")) == 25
    assert calls(on("c8g.2xlarge", model="Systran/faster-whisper-base")) == 22
    assert find_limiting_bound(calculate_asr_host_call_bounds(on("c8g.xlarge"))).kind == "assumed"
    assert calls(on("c8g.48xlarge", model="Systran/faster-whisper-large-v2")) == 0
    measured = on("c8g.xlarge", model="some/other", measured=HAND_MEASUREMENT | {"calls": 60})
    assert (calls(measured), find_limiting_bound(calculate_asr_host_call_bounds(measured)).kind) == (60, "measured")


def guide_values(calls: int) -> dict[str, str]:
    """Return the value of each setting for a number of calls from the table of the guide."""
    lines = (ROOT / "docs/guides/aws.md").read_text(encoding="utf-8").splitlines()
    header = next(number for number, line in enumerate(lines) if line.startswith("| Setting |"))
    table = takewhile(lambda line: line.startswith("|"), lines[header:])
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    column = rows[0].index(f"{calls:,} calls")
    return {row[0].strip("`").replace("`", ""): row[column].strip("`") for row in rows[2:]}


def apply_guide(calls: int, tmp_path: Path) -> Deployment:
    """Follow the guide: set the planned values, a warm pool within the limit, and the printed budget."""
    text = (DEPLOYMENTS / "production-us-east-1.yaml").read_text(encoding="utf-8")
    assert PRODUCTION.load
    load = PRODUCTION.load.model_copy(update={"calls": calls})
    edits: dict[str, Any] = {}
    told: dict[str, str] = {}
    for each, asked in recommend_sizes(PRODUCTION.aws, load):
        edits[".".join(map(str, each.location))] = yaml.safe_load(asked)
        told[f"hosts of {each.name}" if each.tier is Tier.ASR else ".".join(map(str, each.location[1:]))] = asked
    agents, (mean, peak) = build_aws_conversation_chain(PRODUCTION.aws)[0], calculate_concurrent_conversations(load)
    edits["aws.agents.tasks"] = {
        "min": agents.calculate_required_units(mean),
        "max": agents.calculate_required_units(peak),
    }
    told["agents.tasks"] = (
        f"{{min: {agents.calculate_required_units(mean)}, max: {agents.calculate_required_units(peak)}}}"
    )
    guide = guide_values(calls)
    assert told == {name: guide[name] for name in guide if "voice cost" not in name}
    hosts = edits["aws.asr.0.hosts"]
    edits |= {"load.calls": calls, "aws.asr.0.warm_pool.size": min(6, hosts["max"] - hosts["min"])}
    for finding in checks.run_checks(load_text(edit_document(edits, text), tmp_path)):
        if finding.check.id == "budget-covers-minimum" and (budget := re.search(r"to (\d+)", finding.violation.remedy)):
            edits["aws.observability.monthly_budget_usd"] = int(budget[1])
    return load_text(edit_document(edits, text), tmp_path)


@pytest.mark.parametrize("calls", [20, 500, 10_000])
def test_a_file_with_the_planned_values_is_not_blocked(calls: int, tmp_path: Path) -> None:
    found = checks.run_checks(apply_guide(calls, tmp_path))
    assert [finding.violation.message for finding in found if finding.is_blocking] == []


@pytest.mark.nightly
@pytest.mark.parametrize("calls", [20, 500, 10_000])
def test_the_guide_shows_the_cost_of_the_planned_file(calls: int, tmp_path: Path) -> None:
    apply_guide(calls, tmp_path)
    answer = CliRunner().invoke(app, ["cost", str(tmp_path / "deployment.yaml"), "--json"])
    usd = json.loads(answer.stdout)["clouds"]["aws"]["usd_per_month"]
    (said,) = (text for name, text in guide_values(calls).items() if "voice cost" in name)
    assert said == " to ".join(f"{round(usd[case], -2):,.0f}" for case in ("low", "peak"))


def test_quota_requirements_follow_from_the_load() -> None:
    load = CallLoad(calls=10_000, peak_factor=10)
    found = checks.run_checks(PRODUCTION.model_copy(update={"load": load}))
    said = [each.violation.message for each in found if each.check.id == "quota-need"]
    # vCPUs at the mean and at the peak: VAD 3 and 18 hosts of 8, inf2 14 and 132 of 192, trn1 17 and 166 of 8, p5 6 and
    # 56 of 16
    assert [text.partition("; ")[2] for text in said] == [
        f"the load needs {mean}, and {peak} at its peak"
        for mean, peak in ((24, 144), (14 * 192, 132 * 192), (17 * 8, 166 * 8), (6 * 16, 56 * 16))
    ]


@pytest.mark.parametrize("name", ["production-us-east-1", "small", "sandbox", "both", "hosts"])
def test_the_first_scaling_rule_uses_the_admission_metric(name: str) -> None:
    for fleet in nonempty(iter_fleets(voice_blueprint.load(DEPLOYMENTS / f"{name}.yaml"))):
        growing = [rule.metric for rule in fleet.rules if rule.adds_hosts]
        assert growing[:1] == (["SlotsTaken"] if fleet.rules else []), fleet.name


def test_the_small_file_supports_twenty_calls_on_one_host_per_tier() -> None:
    aws = voice_blueprint.load(DEPLOYMENTS / "small.yaml").aws
    assert {each.units.min for each in build_aws_tier_capacities(aws)} == {1}
    assert all(low >= 20 for low, _ in sum_calls_by_tier(build_aws_tier_capacities(aws)).values())


def test_a_gateway_task_has_one_core_of_work_and_the_memory_of_its_sockets() -> None:
    def calls(**settings: object) -> int:
        return find_limiting_bound(
            calculate_gateway_task_call_bounds(
                GatewayService.model_validate({"tasks": {"min": 1, "max": 1}} | settings)
            )
        ).calls

    # Half of the 214 minutes of calls that an x86 core processes in a minute.
    assert calls() == calls(vcpu=4, memory_gib=8) == int(60 / 0.28 / 2) == 107
    assert calls(vcpu=0.5, memory_gib=1) == 53
    assert calls(measured=HAND_MEASUREMENT | {"calls": 300}) == 300
    # (2 GiB - 256 MiB) / 128 KiB / 2
    assert calls(measured=HAND_MEASUREMENT | {"calls": 8000}) == 7168
    assert calls(sockets_per_task=41) == 20


@st.composite
def gateways(draw: st.DrawFn) -> dict[str, object]:
    vcpu = draw(st.sampled_from([0.5, 1, 2, 4]))
    low = draw(st.integers(1, 20))
    service: dict[str, object] = {"vcpu": vcpu, "memory_gib": int(2 * vcpu), "tasks": {"min": low, "max": 2 * low}}
    optional = {"sockets_per_task": st.integers(2, 2000), "measured": st.integers(1, 8192).map(measured_calls)}
    return service | {name: draw(value) for name, value in optional.items() if draw(st.booleans())}


@st.composite
def agents(draw: st.DrawFn) -> dict[str, object]:
    low = draw(st.integers(1, 20))
    return {
        "prompt": "Answer in one sentence.",
        "voice": "af_heart",
        "chat": {"url": "https://chat.callers.dev/v1", "model": "qwen3-8b"},
        "speech": {"url": "https://speech.callers.dev/v1", "model": "kokoro"},
        "conversations": draw(st.integers(1, 8)),
        "listening": draw(st.sampled_from(["transcript", "audio"])),
        "tasks": {"min": low, "max": draw(st.integers(low, 60))},
    }


def measured_calls(calls: int) -> dict[str, object]:
    return HAND_MEASUREMENT | {"calls": calls}


@st.composite
def deployments(draw: st.DrawFn) -> tuple[dict[str, object], int]:
    """Return edits of the base document, and a load's calls."""
    hosts = draw(st.integers(1, 40))
    edits: dict[str, object] = {
        "aws.vad.data_path.rx_queues": draw(st.integers(1, 4)),
        "aws.vad.hosts_per_zone": {"min": 1, "max": draw(st.integers(1, 20))},
        "aws.asr.0.hosts": {"min": draw(st.integers(1, hosts)), "max": hosts},
        "aws.state.node_type": draw(st.sampled_from(["cache.t4g.micro", "cache.r7g.large", "cache.r8g.4xlarge"])),
        "aws.edge.gateway": draw(gateways()),
        "aws.agents": draw(agents()),
        "images.agent": f"sha256:{'7' * 64}",
    }
    for place in draw(st.sets(st.sampled_from(["aws.vad", "aws.asr.0", "aws.asr.1"]))):
        edits[f"{place}.measured"] = HAND_MEASUREMENT | {"calls": draw(st.integers(1, 8192))}
    return edits, draw(st.integers(1, 20_000))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deployments())
def test_all_components_compute_the_same_capacity(tmp_path: Path, generated: tuple[dict[str, object], int]) -> None:
    edits, calls = generated
    assert_same_capacity(
        load_with_edits({**edits, "load": {"calls": calls, "conversation_share": 0.25}}, tmp_path), calls
    )


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(st.data())
def test_generated_files_have_consistent_host_and_task_limits(tmp_path: Path, data: st.DataObject) -> None:
    calls = data.draw(st.integers(1, 5000))
    edits: dict[str, object] = {
        "aws.edge.gateway": data.draw(gateways()),
        "aws.agents": data.draw(agents()),
        "load": {"calls": calls, "conversation_share": 0.25},
    }
    for place in data.draw(st.sets(st.sampled_from(["aws.vad", "aws.asr.0", "aws.asr.1", "aws.asr.2"]), min_size=1)):
        edits[f"{place}.measured"] = HAND_MEASUREMENT | {"calls": data.draw(st.integers(1, 8192))}
    deployment = load_text(edit_document(edits, (DEPLOYMENTS / "sandbox.yaml").read_text(encoding="utf-8")), tmp_path)
    assert_same_capacity(deployment, calls)
    assert told(synthesize(deployment)) == planned_admission_limits(deployment)


def assert_same_capacity(deployment: Deployment, calls: int) -> None:
    """Compare plan, simulate, cost and the checks with the capacity of each tier, including agents."""
    aws, found = deployment.aws, {each.name: each.calls for each in build_aws_tier_capacities(deployment.aws)}
    assert aws.agents
    room = sum_calls_by_tier(build_aws_tier_capacities(aws))
    planned = {str(row["name"]): row["calls"] for row in serialize_capacity(deployment)}
    simulated = {plan.name: plan.slots for plan in create_fleet_plans(deployment, {})}
    assert planned == found
    held = aws.agents.conversations
    assert simulated == {name: calls for name, calls in found.items() if name != "state"} | {"agent": held}
    agent, *others = build_aws_conversation_chain(aws)
    (shown,) = [row for row in serialize_conversations(deployment) if row["name"] == "agent"]
    assert (agent.calls, shown["low"], shown["most"]) == (
        held,
        aws.agents.tasks.min * held,
        aws.agents.tasks.max * held,
    )
    designed = resolve_design_load(deployment.model_copy(update={"load": None}))
    assert calculate_peak_calls(designed) <= min(most for _, most in room.values()) * TARGET_UTILIZATION + 1
    assert estimate_aws_calls(aws, designed).peak == calculate_peak_calls(designed)
    minutes = estimate_aws_conversations(aws, designed)
    assert minutes
    assert minutes.minutes.peak <= (agent.most * TARGET_UTILIZATION + 1) * 730 * 60
    refused = any(finding.check.id == "load-fits-tiers" for finding in checks.run_checks(deployment))
    assert refused == any(
        calculate_supported_peak_calls(tier, most)
        < 2 * calls_reaching_tier(calls, tier, audio=aws.agents.listening == "audio")
        for tier, (_, most) in room.items()
    )
    assert deployment.load
    (row,) = check_call_capacity(deployment)
    assert f"to {min(most for _, most in room.values()):,};" in row.result
    said = {finding.check.id for finding in checks.run_checks(deployment)}
    assert ("load-fits-agents" in said) == (agent.most < calculate_concurrent_conversations(deployment.load)[1])
    assert ("agents-fit-tiers" in said) == any(agent.most > each.most for each in others)


def calls_reaching_tier(calls: int, tier: Tier, *, audio: bool) -> int:
    """Return the calls that reach a tier; a quarter are conversations, which audio models receive without ASR."""
    return math.ceil(calls * 0.75) if audio and tier in {Tier.VAD, Tier.ASR} else calls


@st.composite
def callers(draw: st.DrawFn) -> dict[str, object]:
    """Return edits of the Azure production file."""

    def pods() -> dict[str, int]:
        low = draw(st.integers(1, 20))
        return {"min": low, "max": draw(st.integers(low, 60))}

    return {
        "azure.callers.edge.gateway": {"replicas": pods(), "cpus": draw(st.sampled_from([0.5, 1, 2, 4]))},
        "azure.callers.vad": {"replicas": pods(), "cpus": draw(st.integers(2, 6))},
        "azure.callers.asr.replicas": pods(),
        "azure.callers.asr.sessions": draw(st.integers(1, 1000)),
        "azure.callers.state.sku": draw(st.sampled_from(get_args(RedisSku))),
        "azure.agents.replicas": pods(),
        "azure.agents.conversations": draw(st.integers(1, 8)),
        "azure.agents.listening": draw(st.sampled_from(["transcript", "audio"])),
        "load.conversation_share": 0.25,
        "load.peak_factor": 2,
    }


def load_azure(edits: Edits, calls: int, folder: Path) -> Deployment:
    text = edit_document(
        {**edits, "load.calls": calls}, (DEPLOYMENTS / "production-azure.yaml").read_text(encoding="utf-8")
    )
    return load_text(text, folder)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(callers(), st.integers(1, 5_000))
def test_all_components_compute_the_same_pod_capacity(tmp_path: Path, edits: dict[str, object], calls: int) -> None:
    deployment = load_azure(edits, calls, tmp_path)
    azure, found = deployment.azure, deployment.azure.callers
    assert found
    assert azure.agents
    tiers = build_azure_caller_capacities(found)
    assert {row["name"]: row["calls"] for row in serialize_capacity(deployment)} == {
        each.name: each.calls for each in tiers
    }
    simulated = {
        plan.name: plan.slots for plan in create_fleet_plans(deployment, {}) if plan.kind not in TRANSCRIBING_KINDS
    }
    assert simulated == {each.name: each.calls for each in tiers[:3]} | {"agent": azure.agents.conversations}
    most = {each.tier: each.max_calls for each in tiers}
    engines = sum(room.max_replicas * room.sessions for room in iter_transcription_capacities(azure))
    designed = resolve_design_load(deployment.model_copy(update={"load": None}))
    assert (
        estimate_azure_calls(azure, designed).peak
        == calculate_peak_calls(designed)
        <= min(engines, *most.values()) * TARGET_UTILIZATION + 1
    )
    (row,) = check_call_capacity(deployment)
    assert f"to {min(most.values()):,};" in row.result
    audio = azure.agents.listening == "audio"
    refused = any(finding.check.id == "load-fits-callers" for finding in checks.run_checks(deployment))
    assert refused == any(
        calculate_supported_peak_calls(tier, room) < 2 * calls_reaching_tier(calls, tier, audio=audio)
        for tier, room in most.items()
    )


# Each example takes seconds, and shrinking would take minutes.
@settings(
    max_examples=2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
    phases=[Phase.generate],
)
@given(callers())
def test_generated_files_have_consistent_pod_limits(tmp_path: Path, edits: dict[str, object]) -> None:
    deployment = load_azure(edits, 100, tmp_path)
    found = deployment.azure.callers
    assert found
    assert deployment.azure.agents
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            checks, "run_checks", lambda _: []
        )  # only the pods' settings count here, not whether they suffice
        graph = workloads((tmp_path / "deployment.yaml").read_text(encoding="utf-8"))
    admits = {"gateway": "VOICE_MAX_CONNECTIONS", "vad": "VOICE_MAX_SESSIONS", "asr": "VOICE_SESSIONS"}
    admits |= {"agent": "VOICE_CONVERSATIONS"}
    environments = {tier: pod(graph, tier).container(tier)["env"] for tier in admits}
    said = {
        tier: int(entry["value"])
        for tier, env in environments.items()
        for entry in env
        if entry["name"] == admits[tier]
    }
    carried = {each.name: each.calls for each in build_azure_caller_capacities(found)[:3]}
    assert said == carried | {"gateway": 2 * carried["gateway"], "agent": deployment.azure.agents.conversations}


@pytest.mark.parametrize("calls", [20, 500, 10_000])
def test_planned_sizes_support_the_load_and_are_balanced(calls: int, tmp_path: Path) -> None:
    load = CallLoad(calls=calls)
    edits = {
        "load": {"calls": calls},
        "aws.vad.instance_type": "c8g.2xlarge",
        "aws.vad.huge_pages.count": 4096,
        "aws.state.node_type": "cache.r7g.large",
    }
    base = load_with_edits(edits, tmp_path)
    asked: dict[str, object] = {}
    for each, text in recommend_sizes(base.aws, load):
        low_high = text.strip("{}").replace("min: ", "").replace("max: ", "").split(", ")
        place = ".".join(map(str, each.location))
        asked[place] = text if each.tier is Tier.STATE else dict(zip(("min", "max"), map(int, low_high), strict=True))
    followed = load_with_edits({**edits, **asked}, tmp_path)
    found = {finding.check.id for finding in checks.run_checks(followed)}
    assert not found & {"load-fits-tiers", "tiers-balanced"}


def told(stacks: Stacks) -> dict[str, set[str]]:
    """Return the admission limits in the launchers' variables, by host of each fleet and by task.

    Gateway tasks have a limit of sockets, two per call; services must grow before their tasks are full.
    """
    fleets = {"vad": ("vad", "VOICE_MAX_SESSIONS")}
    fleets |= {name.removeprefix("asr-"): (name, "VOICE_SESSIONS") for name in stacks if name.startswith("asr-")}
    sockets, conversations = (
        service(stacks[stack], variable)
        for stack, variable in (("edge", "VOICE_MAX_CONNECTIONS"), ("agents", "VOICE_CONVERSATIONS"))
    )
    return {"gateway": {str(sockets // 2)}, "agent": {str(conversations)}} | {
        fleet: {
            calls
            for template in stacks[stack].properties("EC2::LaunchTemplate")
            if not template.get("LaunchTemplateName", "").endswith("-artifacts")
            for calls in re.findall(rf"\b{variable}=(\d+)", user_data(template))
        }
        for fleet, (stack, variable) in fleets.items()
    }


def service(stack: Stack, variable: str) -> int:
    """Return the admission limit of a service's tasks; it grows when 70 % of that is in use."""
    (task,) = stack.properties("ECS::TaskDefinition")
    environment = {each["Name"]: each["Value"] for each in task["ContainerDefinitions"][0]["Environment"]}
    scaling = stack.only("ApplicationAutoScaling::ScalingPolicy")
    target = scaling["TargetTrackingScalingPolicyConfiguration"]["TargetValue"]
    assert target == pytest.approx(TARGET_UTILIZATION * int(environment[variable]), abs=0.5)
    return int(environment[variable])


def planned_admission_limits(deployment: Deployment) -> dict[str, set[str]]:
    found = {
        each.name: {str(each.calls)}
        for each in build_aws_tier_capacities(deployment.aws)
        if each.tier is not Tier.STATE
    }
    return found | {"agent": {str(build_aws_conversation_chain(deployment.aws)[0].calls)}}


def test_hosts_admit_their_capacity() -> None:
    assert told(shipped("sandbox")) == planned_admission_limits(voice_blueprint.load(DEPLOYMENTS / "sandbox.yaml"))


def test_hosts_admit_the_measured_capacity(tmp_path: Path) -> None:
    figures = {"vad": 701, "inf2": 33, "trn1": 21, "p5": 5}
    places = zip(("aws.vad", "aws.asr.0", "aws.asr.1", "aws.asr.2"), figures.values(), strict=True)
    stacks = edited_sandbox(
        {f"{place}.measured": HAND_MEASUREMENT | {"calls": calls} for place, calls in places}, tmp_path
    )
    assert told(stacks) == {"gateway": {"53"}, "agent": {"8"}} | {
        fleet: {str(calls)} for fleet, calls in figures.items()
    }


def test_production_capacity_exceeds_its_peak() -> None:
    assert isinstance(PRODUCTION, Deployment)
    assert min(most for _, most in sum_calls_by_tier(build_aws_tier_capacities(PRODUCTION.aws)).values()) == 20_668
