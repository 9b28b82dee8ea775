"""How many calls a tier carries: by hand, and the same whoever asks."""

import json
import math
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import blueprint
from blueprint import Deployment, checks
from blueprint.capacity import (
    FILL,
    STORE_BYTES_PER_CALL,
    VAD_STREAMS,
    asr_host,
    by_tier,
    caller_capacities,
    capacities,
    conversations_of,
    conversations_on_aws,
    gateway_task,
    least,
    sized,
    store,
    vad_host,
)
from blueprint.checks.fleets import fleets
from blueprint.contract.network import Tier
from blueprint.engines.sizing.service import listening
from blueprint.file.model.aws import AsrFleet, StateStore
from blueprint.file.model.azure_callers import RedisSku
from blueprint.file.model.edge import GatewayService
from blueprint.file.model.load import CallLoad
from ops.cli import app
from ops.cost.audio import aws_calls, azure_calls
from ops.cost.conversations import of_aws
from ops.plan.capacity import capacity_as_dict, conversations_as_dict
from ops.preflight.models import calls_rows
from ops.simulate.capacity import RECOGNISES, fleet_plans
from tests.blueprint.documents import DEPLOYMENTS, Edits, edited, load_edited, load_text
from tests.stacks.azure.manifests import pod, workloads
from tests.synthesized import Stack, Stacks, edited_sandbox, shipped, synthesize, user_data

ROOT = Path(__file__).parents[2]
PRODUCTION = blueprint.load(DEPLOYMENTS / "production-us-east-1.yaml")
MEASURED = {"date": "2026-11-22", "conditions": "by hand, on one host"}


def test_the_store_holds_a_call_s_audio_and_transcript() -> None:
    # 30 s of 10 chunks of 3,244 bytes, and 512 KiB: 1.5 MB; three quarters of 26.32 GiB.
    assert STORE_BYTES_PER_CALL == 30 * 10 * 3244 + 524_288
    assert least(store(StateStore(node_type="cache.r7g.xlarge"))).calls == int(26.32 * 2**30 * 0.75 / 1_497_488)


def test_the_vad_module_has_as_many_streams_as_is_said() -> None:
    module = (ROOT / "images/vad-dataplane/src/vad/module/vad.c").read_text(encoding="utf-8")
    assert f"STREAMS = {VAD_STREAMS}" in module


def test_the_smallest_bound_binds_and_says_whose_number_it_is(tmp_path: Path) -> None:
    edits = {"aws.vad.measured": MEASURED | {"calls": 5000}, "aws.vad.instance_type": "c8g.medium"}
    bound = least(vad_host(load_edited(edits, tmp_path).aws.vad))
    # 0.52 Gbit/s of 272 kbit/s a call
    assert (bound.name, bound.kind, bound.calls) == ("network", "published", 1911)
    bound = least(vad_host(load_edited({"aws.vad.measured": MEASURED | {"calls": 700}}, tmp_path).aws.vad))
    assert (bound.name, bound.kind, bound.calls) == ("compute", "measured", 700)


def test_a_host_that_its_engine_does_not_run_on_carries_nothing() -> None:
    seed = blueprint.load(DEPLOYMENTS / "seed.yaml").aws
    assert [least(asr_host(fleet)).calls for fleet in seed.asr] == [0, 0, 32]


def test_cores_carry_what_their_speed_allows_and_no_model_of_unknown_speed() -> None:
    def on(instance_type: str, **changes: object) -> AsrFleet:
        return AsrFleet.model_validate(
            {"name": "cpu", "instance_type": instance_type, "hosts": {"min": 1, "max": 2}, "scaling": ()} | changes
        )

    def calls(fleet: AsrFleet) -> int:
        return least(asr_host(fleet)).calls

    # 4 vCPU at half of the speed of an x86 core, which takes 0.16 s for a second of speech; half of a call is speech.
    assert calls(on("c8g.xlarge")) == 25
    assert calls(on("c8g.2xlarge", model="Systran/faster-whisper-base")) == 22
    assert least(asr_host(on("c8g.xlarge"))).kind == "assumed"
    assert calls(on("c8g.48xlarge", model="Systran/faster-whisper-large-v2")) == 0
    measured = on("c8g.xlarge", model="some/other", measured=MEASURED | {"calls": 60})
    assert (calls(measured), least(asr_host(measured)).kind) == (60, "measured")


def in_the_guide(calls: int) -> dict[str, str]:
    """Return a column of the guide's table: what each setting is for so many calls."""
    lines = (ROOT / "docs/guides/aws.md").read_text(encoding="utf-8").splitlines()
    header = next(number for number, line in enumerate(lines) if line.startswith("| Setting |"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[header:] if line.startswith("|")]
    column = rows[0].index(f"{calls:,} calls")
    return {row[0].strip("`").replace("`", ""): row[column].strip("`") for row in rows[2:]}


def as_the_plan_says(calls: int, tmp_path: Path) -> Deployment:
    """Follow the guide: the column "for the load", a warm pool that fits, the budget that is named."""
    text = (DEPLOYMENTS / "production-us-east-1.yaml").read_text(encoding="utf-8")
    assert PRODUCTION.load
    load = PRODUCTION.load.model_copy(update={"calls": calls})
    edits: dict[str, Any] = {}
    told: dict[str, str] = {}
    for each, asked in sized(PRODUCTION.aws, load):
        edits[".".join(map(str, each.location))] = yaml.safe_load(asked)
        told[f"hosts of {each.name}" if each.tier is Tier.ASR else ".".join(map(str, each.location[1:]))] = asked
    agents, (mean, peak) = conversations_on_aws(PRODUCTION.aws)[0], conversations_of(load)
    edits["aws.agents.tasks"] = {"min": agents.units_for(mean), "max": agents.units_for(peak)}
    told["agents.tasks"] = f"{{min: {agents.units_for(mean)}, max: {agents.units_for(peak)}}}"
    guide = in_the_guide(calls)
    assert told == {name: guide[name] for name in guide if "voice cost" not in name}
    hosts = edits["aws.asr.0.hosts"]
    edits |= {"load.calls": calls, "aws.asr.0.warm_pool.size": min(6, hosts["max"] - hosts["min"])}
    for finding in checks.run(load_text(edited(edits, text), tmp_path)):
        if finding.check.id == "budget-covers-minimum" and (budget := re.search(r"to (\d+)", finding.violation.remedy)):
            edits["aws.observability.monthly_budget_usd"] = int(budget[1])
    return load_text(edited(edits, text), tmp_path)


@pytest.mark.parametrize("calls", [20, 500, 10_000])
def test_a_file_that_says_what_its_plan_shows_is_not_blocked(calls: int, tmp_path: Path) -> None:
    found = checks.run(as_the_plan_says(calls, tmp_path))
    assert [finding.violation.message for finding in found if finding.blocks] == []


@pytest.mark.nightly
@pytest.mark.parametrize("calls", [20, 500, 10_000])
def test_such_a_file_costs_what_the_guide_says(calls: int, tmp_path: Path) -> None:
    as_the_plan_says(calls, tmp_path)
    answer = CliRunner().invoke(app, ["cost", str(tmp_path / "deployment.yaml"), "--json"])
    usd = json.loads(answer.stdout)["clouds"]["aws"]["usd_per_month"]
    (said,) = (text for name, text in in_the_guide(calls).items() if "voice cost" in name)
    assert said == " to ".join(f"{round(usd[case], -2):,.0f}" for case in ("low", "peak"))


def test_quotas_are_those_of_the_load() -> None:
    load = CallLoad(calls=10_000, peak_factor=10)
    found = checks.run(PRODUCTION.model_copy(update={"load": load}))
    said = [each.violation.message for each in found if each.check.id == "quota-need"]
    # 3 and 18 VAD hosts of 8 vCPU; 12 and 120 inf2.48xlarge of 192; 24 and 239 trn1.2xlarge of 8; 8 and 80 of p5, of 16
    assert [text.partition("; ")[2] for text in said] == [
        f"the load takes {mean}, and {peak} at its peak"
        for mean, peak in ((24, 144), (12 * 192, 120 * 192), (24 * 8, 239 * 8), (8 * 16, 80 * 16))
    ]


@pytest.mark.parametrize("name", ["production-us-east-1", "small", "sandbox", "both", "hosts"])
def test_each_fleet_scales_first_on_what_admits(name: str) -> None:
    for fleet in fleets(blueprint.load(DEPLOYMENTS / f"{name}.yaml")):
        growing = [rule.metric for rule in fleet.rules if rule.adds_hosts]
        assert growing[:1] == (["SlotsTaken"] if fleet.rules else []), fleet.name


def test_the_small_file_carries_its_twenty_calls_on_one_host_of_each_tier() -> None:
    aws = blueprint.load(DEPLOYMENTS / "small.yaml").aws
    assert {each.units.min for each in capacities(aws)} == {1}
    assert all(low >= 20 for low, _ in by_tier(capacities(aws)).values())


def test_a_gateway_task_has_one_core_of_work_and_the_memory_of_its_sockets() -> None:
    def calls(**settings: object) -> int:
        return least(gateway_task(GatewayService.model_validate({"tasks": {"min": 1, "max": 1}} | settings))).calls

    # Half of the 214 minutes of a call that a core of x86 has in one.
    assert calls() == calls(vcpu=4, memory_gib=8) == int(60 / 0.28 / 2) == 107
    assert calls(vcpu=0.5, memory_gib=1) == 53
    assert calls(measured=MEASURED | {"calls": 300}) == 300
    # (2 GiB - 256 MiB) / 128 KiB / 2
    assert calls(measured=MEASURED | {"calls": 8000}) == 7168
    assert calls(sockets_per_task=41) == 20


@st.composite
def gateways(draw: st.DrawFn) -> dict[str, object]:
    vcpu = draw(st.sampled_from([0.5, 1, 2, 4]))
    low = draw(st.integers(1, 20))
    service: dict[str, object] = {"vcpu": vcpu, "memory_gib": int(2 * vcpu), "tasks": {"min": low, "max": 2 * low}}
    optional = {"sockets_per_task": st.integers(2, 2000), "measured": st.integers(1, 8192).map(calls_measured)}
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


def calls_measured(calls: int) -> dict[str, object]:
    return MEASURED | {"calls": calls}


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
        edits[f"{place}.measured"] = MEASURED | {"calls": draw(st.integers(1, 8192))}
    return edits, draw(st.integers(1, 20_000))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deployments())
def test_everybody_counts_alike(tmp_path: Path, generated: tuple[dict[str, object], int]) -> None:
    edits, calls = generated
    all_agree(load_edited({**edits, "load": {"calls": calls, "conversation_share": 0.25}}, tmp_path), calls)


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(st.data())
def test_hosts_and_tasks_of_generated_files_are_told_the_same(tmp_path: Path, data: st.DataObject) -> None:
    calls = data.draw(st.integers(1, 5000))
    edits: dict[str, object] = {
        "aws.edge.gateway": data.draw(gateways()),
        "aws.agents": data.draw(agents()),
        "load": {"calls": calls, "conversation_share": 0.25},
    }
    for place in data.draw(st.sets(st.sampled_from(["aws.vad", "aws.asr.0", "aws.asr.1", "aws.asr.2"]), min_size=1)):
        edits[f"{place}.measured"] = MEASURED | {"calls": data.draw(st.integers(1, 8192))}
    deployment = load_text(edited(edits, (DEPLOYMENTS / "sandbox.yaml").read_text(encoding="utf-8")), tmp_path)
    all_agree(deployment, calls)
    assert told(synthesize(deployment)) == admitted(deployment)


def all_agree(deployment: Deployment, calls: int) -> None:
    """Hold plan, simulate, cost and the checks against the capacity of each tier, agents' included."""
    aws, found = deployment.aws, {each.name: each.calls for each in capacities(deployment.aws)}
    assert aws.agents
    room = by_tier(capacities(aws))
    planned = {str(row["name"]): row["calls"] for row in capacity_as_dict(deployment)}
    simulated = {plan.name: plan.places for plan in fleet_plans(deployment, {})}
    assert planned == found
    held = aws.agents.conversations
    assert simulated == {name: calls for name, calls in found.items() if name != "state"} | {"agent": held}
    agent, *others = conversations_on_aws(aws)
    (shown,) = [row for row in conversations_as_dict(deployment) if row["name"] == "agent"]
    assert (agent.calls, shown["low"], shown["most"]) == (
        held,
        aws.agents.tasks.min * held,
        aws.agents.tasks.max * held,
    )
    minutes = of_aws(aws, None, 1.0)
    assert minutes
    assert minutes.minutes.peak == pytest.approx(agent.most * FILL * 730 * 60)
    assert aws_calls(aws, None, 0.5).peak == pytest.approx(min(most for _, most in room.values()) * FILL)
    refused = any(finding.check.id == "load-fits-tiers" for finding in checks.run(deployment))
    assert refused == any(
        most < 2 * heard(calls, tier, audio=aws.agents.listening == "audio") for tier, (_, most) in room.items()
    )
    assert deployment.load
    (row,) = calls_rows(deployment)
    assert f"to {min(most for _, most in room.values()):,};" in row.found
    said = {finding.check.id for finding in checks.run(deployment)}
    assert ("load-fits-agents" in said) == (agent.most < conversations_of(deployment.load)[1])
    assert ("agents-fit-tiers" in said) == any(agent.most > each.most for each in others)


def heard(calls: int, tier: Tier, *, audio: bool) -> int:
    """Return the calls that come to a tier; a quarter are conversations, which by audio pass those that hear."""
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


def on_azure(edits: Edits, calls: int, folder: Path) -> Deployment:
    text = edited({**edits, "load.calls": calls}, (DEPLOYMENTS / "production-azure.yaml").read_text(encoding="utf-8"))
    return load_text(text, folder)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(callers(), st.integers(1, 5_000))
def test_everybody_counts_pods_alike(tmp_path: Path, edits: dict[str, object], calls: int) -> None:
    deployment = on_azure(edits, calls, tmp_path)
    azure, found = deployment.azure, deployment.azure.callers
    assert found
    assert azure.agents
    tiers = caller_capacities(found)
    assert {row["name"]: row["calls"] for row in capacity_as_dict(deployment)} == {
        each.name: each.calls for each in tiers
    }
    simulated = {plan.name: plan.places for plan in fleet_plans(deployment, {}) if plan.kind not in RECOGNISES}
    assert simulated == {each.name: each.calls for each in tiers[:3]} | {"agent": azure.agents.conversations}
    most = {each.tier: each.most for each in tiers}
    engines = sum(room.most * room.sessions for room in listening(azure))
    assert azure_calls(azure, None, 0.5).peak == pytest.approx(min(engines, *most.values()) * FILL)
    (row,) = calls_rows(deployment)
    assert f"to {min(most.values()):,};" in row.found
    audio = azure.agents.listening == "audio"
    refused = any(finding.check.id == "load-fits-callers" for finding in checks.run(deployment))
    assert refused == any(room < 2 * heard(calls, tier, audio=audio) for tier, room in most.items())


# Each example takes seconds, and no search for a smaller one is worth minutes.
@settings(
    max_examples=2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
    phases=[Phase.generate],
)
@given(callers())
def test_pods_of_generated_files_are_told_the_same(tmp_path: Path, edits: dict[str, object]) -> None:
    deployment = on_azure(edits, 100, tmp_path)
    found = deployment.azure.callers
    assert found
    assert deployment.azure.agents
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "run", lambda _: [])  # what pods are told counts here, not whether it is enough
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
    carried = {each.name: each.calls for each in caller_capacities(found)[:3]}
    assert said == carried | {"gateway": 2 * carried["gateway"], "agent": deployment.azure.agents.conversations}


@pytest.mark.parametrize("calls", [20, 500, 10_000])
def test_what_a_plan_asks_for_carries_the_load_and_is_balanced(calls: int, tmp_path: Path) -> None:
    load = CallLoad(calls=calls)
    edits = {
        "load": {"calls": calls},
        "aws.vad.instance_type": "c8g.2xlarge",
        "aws.vad.huge_pages.count": 4096,
        "aws.state.node_type": "cache.r7g.large",
    }
    base = load_edited(edits, tmp_path)
    asked: dict[str, object] = {}
    for each, text in sized(base.aws, load):
        low_high = text.strip("{}").replace("min: ", "").replace("max: ", "").split(", ")
        place = ".".join(map(str, each.location))
        asked[place] = text if each.tier is Tier.STATE else dict(zip(("min", "max"), map(int, low_high), strict=True))
    followed = load_edited({**edits, **asked}, tmp_path)
    found = {finding.check.id for finding in checks.run(followed)}
    assert not found & {"load-fits-tiers", "tiers-balanced"}


def told(stacks: Stacks) -> dict[str, set[str]]:
    """Return the calls that the launchers' variables tell the hosts of each fleet, and tasks, to admit.

    Gateway tasks are told sockets, two a call; services have to grow before their tasks are full.
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
    """Return what a service's tasks are told to admit; it grows when 70 % of that is taken."""
    (task,) = stack.properties("ECS::TaskDefinition")
    environment = {each["Name"]: each["Value"] for each in task["ContainerDefinitions"][0]["Environment"]}
    scaling = stack.the("ApplicationAutoScaling::ScalingPolicy")
    target = scaling["TargetTrackingScalingPolicyConfiguration"]["TargetValue"]
    assert target == pytest.approx(FILL * int(environment[variable]), abs=0.5)
    return int(environment[variable])


def admitted(deployment: Deployment) -> dict[str, set[str]]:
    found = {each.name: {str(each.calls)} for each in capacities(deployment.aws) if each.tier is not Tier.STATE}
    return found | {"agent": {str(conversations_on_aws(deployment.aws)[0].calls)}}


def test_hosts_are_told_to_admit_what_they_carry() -> None:
    assert told(shipped("sandbox")) == admitted(blueprint.load(DEPLOYMENTS / "sandbox.yaml"))


def test_hosts_are_told_to_admit_what_was_measured(tmp_path: Path) -> None:
    figures = {"vad": 701, "inf2": 33, "trn1": 21, "p5": 5}
    places = zip(("aws.vad", "aws.asr.0", "aws.asr.1", "aws.asr.2"), figures.values(), strict=True)
    stacks = edited_sandbox({f"{place}.measured": MEASURED | {"calls": calls} for place, calls in places}, tmp_path)
    assert told(stacks) == {"gateway": {"53"}, "agent": {"8"}} | {
        fleet: {str(calls)} for fleet, calls in figures.items()
    }


def test_production_has_room_for_its_peak() -> None:
    assert isinstance(PRODUCTION, Deployment)
    assert min(most for _, most in by_tier(capacities(PRODUCTION.aws)).values()) == 14_154
