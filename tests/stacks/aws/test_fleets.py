"""VAD and accelerator fleets: hosts and scaling."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.contract.sources import deployment
from tests.nonempty import nonempty
from tests.synthesized import ASR, HOSTS, Properties, Stack, Stacks, edited_sandbox, shipped, user_data
from voice_blueprint.contract.metrics import START_PHASES_FILE
from voice_blueprint.engines.launch.services import create_fleet_launcher, create_preparation_launcher
from voice_blueprint.file.model.aws import Engine
from voice_blueprint.file.model.serving import VllmOptions
from voice_blueprint.hosts import format_artifacts_name
from voice_constructs.aws.vad import DATAPLANE_CAPABILITIES, VFIO_CAPABILITIES


@pytest.fixture(scope="module")
def sandbox() -> Stacks:
    return shipped("sandbox")


def groups(stack: Stack) -> dict[str, Properties]:
    return {group["AutoScalingGroupName"]: group for group in stack.properties("AutoScaling::AutoScalingGroup")}


def launch_data(stack: Stack, *, of_job: bool = False) -> list[dict[str, Any]]:
    """Return the launch template data of a fleet's hosts, or of its artifact job."""
    templates = stack.properties("EC2::LaunchTemplate")
    return [each["LaunchTemplateData"] for each in templates if ("LaunchTemplateName" in each) is of_job]


def alarms(stack: Stack) -> dict[str, Properties]:
    return {alarm["AlarmName"]: alarm for alarm in stack.properties("CloudWatch::Alarm")}


def changes(stack: Stack, alarm: Properties) -> list[int]:
    policies = stack.of_type("AutoScaling::ScalingPolicy")
    return [
        step["ScalingAdjustment"]
        for action in alarm["AlarmActions"]
        for step in policies[action["Ref"]]["Properties"]["StepAdjustments"]
    ]


def test_the_vad_fleet_has_one_group_in_each_zone(sandbox: Stacks) -> None:
    found = groups(sandbox["vad"])
    assert set(found) == {"sandbox-vad-a", "sandbox-vad-b", "sandbox-vad-c"}
    subnets = [json.dumps(group["VPCZoneIdentifier"]) for group in found.values()]
    assert all(len(group["VPCZoneIdentifier"]) == 1 for group in found.values())
    assert len(set(subnets)) == 3


@pytest.mark.parametrize("tier", HOSTS)
def test_hosts_use_imdsv2_encrypted_gp3_and_no_public_address(sandbox: Stacks, tier: str) -> None:
    templates = launch_data(sandbox[tier])
    assert len(templates) == (3 if tier == "vad" else 1)
    for data in templates:
        assert data["MetadataOptions"] == {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}
        (volume,) = data["BlockDeviceMappings"]
        assert volume["Ebs"]["Encrypted"] is True
        assert volume["Ebs"]["VolumeType"] == "gp3"
        assert volume["Ebs"]["KmsKeyId"].keys() <= {"Fn::GetAtt", "Fn::ImportValue"}
        assert [nic["AssociatePublicIpAddress"] for nic in data["NetworkInterfaces"]] == [False]


@pytest.mark.parametrize("tier", HOSTS)
def test_hosts_join_when_ready_and_drain_before_termination(sandbox: Stacks, tier: str) -> None:
    for group in nonempty(groups(sandbox[tier]).values()):
        hooks = {hook["LifecycleTransition"]: hook for hook in group["LifecycleHookSpecificationList"]}
        assert set(hooks) == {
            "autoscaling:EC2_INSTANCE_LAUNCHING",
            "autoscaling:EC2_INSTANCE_TERMINATING",
        }
        assert {hook["DefaultResult"] for hook in hooks.values()} == {"ABANDON"}
        text = next(user_data({"LaunchTemplateData": data}) for data in launch_data(sandbox[tier]))
        assert {f"LAUNCH_HOOK={hooks['autoscaling:EC2_INSTANCE_LAUNCHING']['LifecycleHookName']}"} <= set(
            text.splitlines()
        )


def test_vad_user_data_matches_the_file(sandbox: Stacks) -> None:
    for data in nonempty(launch_data(sandbox["vad"])):
        lines = set(user_data({"LaunchTemplateData": data}).splitlines())
        assert {"PAGE_COUNT=256", "PAGE_SIZE_MIB=2", "MTU=3498", "RX_QUEUES=4", "RX_RING_SIZE=256"} <= lines


def test_udp_targets_are_checked_over_tcp(sandbox: Stacks) -> None:
    for target_group in sandbox["vad"].properties("ElasticLoadBalancingV2::TargetGroup"):
        assert (target_group["Protocol"], target_group["Port"]) == ("UDP", 5004)
        assert (target_group["HealthCheckProtocol"], target_group["HealthCheckPort"]) == ("TCP", "8081")
    assert all(group["TargetGroupARNs"] for group in groups(sandbox["vad"]).values())


def test_a_volume_has_the_configured_throughput_and_sufficient_iops(tmp_path: Path) -> None:
    stacks = edited_sandbox({"aws.vad.root_volume_mib_per_s": 250, "aws.asr.0.root_volume_mib_per_s": 1000}, tmp_path)
    speeds = {}
    for tier in ("vad", "asr-inf2"):
        volumes = [data["BlockDeviceMappings"][0]["Ebs"] for data in launch_data(stacks[tier])]
        speeds[tier] = [(volume["Throughput"], volume["Iops"]) for volume in volumes]
    # gp3 provides a quarter of a MiB/s for each I/O operation a second, and 3,000 of these with every volume.
    assert speeds == {"vad": [(250, 3000)] * 3, "asr-inf2": [(1000, 4000)]}


def test_hosts_boot_from_the_configured_image(sandbox: Stacks, tmp_path: Path) -> None:
    chosen = {"aws.vad.machine_image": "/voice/vad:3", "aws.asr.0.machine_image": "ami-0123456789abcdef0"}
    pinned = edited_sandbox(chosen, tmp_path)
    assert {data["ImageId"] for data in launch_data(pinned["vad"])} == {"{{resolve:ssm:/voice/vad:3}}"}
    assert [data["ImageId"] for data in launch_data(pinned["asr-inf2"])] == ["ami-0123456789abcdef0"]
    # Without a configured image the stack has a parameter that CloudFormation resolves at each deployment.
    (floating,) = (data["ImageId"] for data in launch_data(sandbox["asr-inf2"]))
    assert "neuron" in sandbox["asr-inf2"].template["Parameters"][floating["Ref"]]["Default"]


def test_a_change_of_the_data_path_removes_no_export(sandbox: Stacks, tmp_path: Path) -> None:
    """The edge and its alarms use the target group of one data path while the VAD stack changes to the other."""
    vfio = edited_sandbox({"aws.vad.data_path.mode": "vfio"}, tmp_path)
    exports = [each["vad"].template["Outputs"] for each in (sandbox, vfio)]
    assert exports[0] == exports[1]
    used = [json.dumps(each["edge"].of_type("ElasticLoadBalancingV2::Listener")) for each in (sandbox, vfio)]
    assert ["AddressTargets" in listeners for listeners in used] == [False, True]


def test_vfio_adds_an_interface_and_registers_its_address(tmp_path: Path) -> None:
    vad = edited_sandbox({"aws.vad.data_path.mode": "vfio"}, tmp_path)["vad"]
    for data in launch_data(vad):
        assert [nic["DeviceIndex"] for nic in data["NetworkInterfaces"]] == [0, 1]
    assert {group["HealthCheckType"] for group in groups(vad).values()} == {"EC2"}
    statements = vad.only("IAM::Policy")["PolicyDocument"]["Statement"]
    (register,) = [s for s in statements if "elasticloadbalancing:RegisterTargets" in s["Action"]]
    address_targets = vad.of_type("ElasticLoadBalancingV2::TargetGroup")[register["Resource"]["Ref"]]
    assert address_targets["Properties"]["TargetType"] == "ip"


def test_the_data_plane_has_the_capabilities_of_its_data_path(sandbox: Stacks, tmp_path: Path) -> None:
    vfio = edited_sandbox({"aws.vad.data_path.mode": "vfio"}, tmp_path)["vad"]
    for stack, wanted in ((sandbox["vad"], DATAPLANE_CAPABILITIES), (vfio, VFIO_CAPABILITIES)):
        for data in nonempty(launch_data(stack)):
            script = user_data({"LaunchTemplateData": data})
            assert re.findall(r"--cap-add=(\w+)", script) == list(wanted)


def test_ena_express_is_enabled_for_tcp_and_udp_if_configured(sandbox: Stacks, tmp_path: Path) -> None:
    assert "EnaSrdSpecification" not in json.dumps(launch_data(sandbox["vad"]))
    edits = {"aws.vad.ena_express": {"enabled": True, "udp": True}, "aws.vad.data_path.mode": "vfio"}
    for data in launch_data(edited_sandbox(edits, tmp_path)["vad"]):
        for interface in data["NetworkInterfaces"]:
            assert interface["EnaSrdSpecification"] == {
                "EnaSrdEnabled": True,
                "EnaSrdUdpSpecification": {"EnaSrdUdpEnabled": True},
            }


def test_the_scaling_table_of_the_seed_is_deployed_exactly(sandbox: Stacks) -> None:
    # The ring's threshold is an alert (docs/deviations.md); the two hosts per zone are added by SlotsTaken.
    ring = alarms(sandbox["observability"])["sandbox-alert-vad-ring-full"]
    assert (ring["MetricName"], ring["ComparisonOperator"], ring["Threshold"], ring["Period"]) == (
        "RxRingOccupancy", "GreaterThanThreshold", 80, 10,
    )  # fmt: skip
    assert changes(sandbox["vad"], alarms(sandbox["vad"])["sandbox-vad-slots-high"]) == [2, 2, 2]
    headroom = alarms(sandbox["asr-inf2"])["sandbox-inf2-headroom-low"]
    assert (headroom["MetricName"], headroom["ComparisonOperator"], headroom["Threshold"]) == (
        "NeuronHeadroom", "LessThanThreshold", 20,
    )  # fmt: skip
    assert changes(sandbox["asr-inf2"], headroom) == [1]
    busy = alarms(sandbox["asr-p5"])["sandbox-p5-gpu-busy-high"]
    assert (busy["MetricName"], busy["ComparisonOperator"], busy["Threshold"]) == (
        "GpuBusy", "GreaterThanThreshold", 90,
    )  # fmt: skip
    assert changes(sandbox["asr-p5"], busy) == [1]


@pytest.mark.parametrize("tier", HOSTS)
def test_missing_data_ends_every_scaling_alarm(sandbox: Stacks, tier: str) -> None:
    assert {alarm["TreatMissingData"] for alarm in alarms(sandbox[tier]).values()} == {"notBreaching"}


def test_bands_below_a_threshold_are_negative_distances(tmp_path: Path) -> None:
    edits = {"aws.asr.0.scaling.1.steps": [{"adjustment": 1}, {"upper_bound": -10, "adjustment": 3}]}
    asr = edited_sandbox(edits, tmp_path)["asr-inf2"]
    (policy,) = [
        policy["StepAdjustments"]
        for policy in asr.properties("AutoScaling::ScalingPolicy")
        if len(policy["StepAdjustments"]) == 2
    ]
    assert sorted(policy, key=lambda step: step["ScalingAdjustment"]) == [
        {"MetricIntervalLowerBound": -10, "MetricIntervalUpperBound": 0, "ScalingAdjustment": 1},
        {"MetricIntervalUpperBound": -10, "ScalingAdjustment": 3},
    ]


@pytest.mark.parametrize("tier", HOSTS)
def test_an_alarm_describes_the_direction_of_its_change(sandbox: Stacks, tier: str) -> None:
    for alarm in nonempty(alarms(sandbox[tier]).values()):
        grows = all(change > 0 for change in changes(sandbox[tier], alarm))
        assert f"/fleet-{'grows' if grows else 'shrinks'}.md" in alarm["AlarmDescription"]
        assert f" {'grows' if grows else 'shrinks'}: " in alarm["AlarmDescription"]


def test_nvme_is_mounted_if_the_instance_type_has_it(tmp_path: Path) -> None:
    fleets = ("Inf2", "Trn1", "P5")
    stacks = edited_sandbox({f"aws.asr.{number}.artifacts": True for number in range(len(fleets))}, tmp_path)
    texts = {
        fleet: user_data({"LaunchTemplateData": launch_data(stacks[f"asr-{fleet.lower()}"])[0]}) for fleet in fleets
    }
    prepared = launch_data(stacks["asr"], of_job=True)
    jobs = {fleet: user_data({"LaunchTemplateData": data}) for fleet, data in zip(fleets, prepared, strict=True)}
    for scripts in (texts, jobs):
        assert {fleet: "INSTANCE_STORE=/mnt/nvme" in script for fleet, script in scripts.items()} == {
            "Inf2": False,
            "Trn1": True,
            "P5": True,
        }
        assert "INSTANCE_STORE=" not in scripts["Inf2"]
    assert {fleet: "--volume=/opt/aws/neuron:" in script for fleet, script in texts.items()} == {
        "Inf2": True,
        "Trn1": True,
        "P5": False,
    }
    assert "VOICE_HOST_KIND=neuron" in texts["Inf2"]
    assert "VOICE_HOST_KIND=gpu" in texts["P5"]


def test_a_fleet_without_accelerators_boots_graviton_and_publishes_engine_metrics() -> None:
    stacks = shipped("small")
    (data,) = launch_data(stacks["asr-cpu"])
    assert data["InstanceType"] == "c8g.xlarge"
    parameters = stacks["asr-cpu"].template["Parameters"]
    assert "amazon-linux-2023/arm64/" in parameters[data["ImageId"]["Ref"]]["Default"]
    script = user_data({"LaunchTemplateData": data})
    for said in ("VOICE_HOST_KIND=cpu", "VOICE_TELEMETRY_SOURCES=engine\n", "VOICE_SESSIONS=25", "VOICE_ENCODERS=2"):
        assert said in script, said
    # The script neither waits for devices nor passes them to containers.
    assert "--gpus" not in script
    assert "nvidia-smi" not in script
    assert "/dev/neuron" not in script
    assert [sorted(changes(stacks["asr-cpu"], alarm)) for alarm in alarms(stacks["asr-cpu"]).values()] == [[1], [-1]]


def test_alarms_and_graphs_of_cpu_fleets_use_no_accelerator_metric() -> None:
    told = json.dumps([stack.template["Resources"] for stack in shipped("small").values()])
    assert "SlotsTaken" in told
    assert "RealTimeFactor" in told
    assert not re.search(r"Neuron(Headroom|Utilization)|Gpu(Busy|LinkTraffic)", told)


def test_engine_has_a_worker_per_core_and_admits_the_planned_sessions(sandbox: Stacks) -> None:
    for name, sessions, encoders, decoders in (("Inf2", 900, 12, 12), ("Trn1", 75, 1, 1), ("P5", 221, 1, 1)):
        text = user_data({"LaunchTemplateData": launch_data(sandbox[f"asr-{name.lower()}"])[0]})
        sizes = {"VOICE_SESSIONS": sessions, "VOICE_ENCODERS": encoders, "VOICE_DECODERS": decoders}
        for variable, value in nonempty(sizes.items()):
            assert re.search(rf"\b{variable}={value}\b", text), (name, variable)


@pytest.mark.parametrize(
    ("model", "engine"), [("voxtral-small-24b", "vllm"), ("voxtral-mini-4b-realtime", "vllm-realtime")]
)
def test_streaming_model_receives_audio_as_it_arrives(tmp_path: Path, model: str, engine: str) -> None:
    load = {"sessions": 8, "session_tokens": 7500, "context_tokens": 8192, "longest_call_s": 600}
    if engine == "vllm":
        del load["longest_call_s"]
    asr = edited_sandbox({"aws.asr.2.engine": "vllm", "aws.asr.2.vllm": {"model": model, "load": load}}, tmp_path)[
        "asr-p5"
    ]
    (script,) = [user_data({"LaunchTemplateData": data}) for data in launch_data(asr)]
    assert re.search(rf"\bVOICE_ENGINE={engine}$", script, re.MULTILINE)


def test_vllm_is_started_by_its_launcher_with_caches_on_nvme(tmp_path: Path) -> None:
    load = {"sessions": 8, "session_tokens": 1500, "context_tokens": 32768}
    options = {"model": "voxtral-small-24b", "load": load}
    edits = {"aws.asr.2.engine": "vllm", "aws.asr.2.vllm": options}
    asr = edited_sandbox(edits, tmp_path)["asr-p5"]
    (script,) = [user_data({"LaunchTemplateData": data}) for data in launch_data(asr)]
    (p5,) = [fleet for fleet in deployment("sandbox").aws.asr if fleet.name == "p5"]
    launch = create_fleet_launcher(
        p5.model_copy(update={"engine": Engine.VLLM, "vllm": VllmOptions.model_validate(options)})
    )
    assert "\n".join(launch.build_command()) in script
    assert all(f"{name}={value}" in script for name, value in launch.build_environment().items())
    assert "--volume=/mnt/nvme/asr-vllm:/var/cache/voice:rw" in script
    assert "STARTING=asr-vllm" in script


def test_telemetry_reads_the_phases_of_a_start_on_every_accelerator_host(sandbox: Stacks) -> None:
    folder = START_PHASES_FILE.rpartition("/")[0]
    for data in nonempty(launch_data(sandbox[tier])[0] for tier in ASR):
        script = user_data({"LaunchTemplateData": data})
        assert f"--volume={folder}:{folder}:ro" in script
        assert re.search(r"^STARTING=(asr-neuron|whisper-engine)$", script, re.MULTILINE)


def test_telemetry_reads_the_sources_of_alarm_metrics(sandbox: Stacks) -> None:
    def sources(stack: Stack) -> str:
        script = user_data({"LaunchTemplateData": launch_data(stack)[0]})
        (found,) = re.findall(r"VOICE_TELEMETRY_SOURCES=([a-z,]+)", script)
        return str(found)

    assert {tier: sources(sandbox[tier]) for tier in HOSTS} == {
        "vad": "dataplane,nic",
        "asr-inf2": "engine,neuron",
        "asr-trn1": "engine,neuron",
        "asr-p5": "engine,gpu",
    }


def test_a_job_uploads_artifacts_if_configured(sandbox: Stacks, tmp_path: Path) -> None:
    name = format_artifacts_name(deployment("sandbox"), deployment("sandbox").aws.asr[0])
    assert not launch_data(sandbox["asr"], of_job=True)
    (without,) = launch_data(sandbox["asr-inf2"])
    assert "HF_HUB_OFFLINE" not in user_data({"LaunchTemplateData": without})
    stacks = edited_sandbox({"aws.asr.0.artifacts": True}, tmp_path)
    # The artifact job is in a stack that is deployed before the fleet's hosts are replaced.
    (job,) = launch_data(stacks["asr"], of_job=True)
    assert job["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert "SubnetId" in job["NetworkInterfaces"][0]
    assert f"/{name}" in user_data({"LaunchTemplateData": job})
    (data,) = launch_data(stacks["asr-inf2"])
    text = user_data({"LaunchTemplateData": data})
    assert "HF_HUB_OFFLINE=1" in text
    assert f"/{name}" in text


def test_a_job_starts_vllm_once_to_write_its_artifacts(tmp_path: Path) -> None:
    load = {"sessions": 8, "session_tokens": 1500, "context_tokens": 32768}
    options = {"model": "voxtral-small-24b", "load": load}
    edits: dict[str, Any] = {"aws.asr.2.engine": "vllm", "aws.asr.2.vllm": options, "aws.asr.2.artifacts": True}
    stacks = edited_sandbox({**edits, "images.asr-vllm": f"sha256:{'a' * 64}"}, tmp_path)
    (p5,) = [fleet for fleet in deployment("sandbox").aws.asr if fleet.name == "p5"]
    fleet = p5.model_copy(update={"engine": Engine.VLLM, "vllm": VllmOptions.model_validate(options)})
    (job,) = launch_data(stacks["asr"], of_job=True)
    script = user_data({"LaunchTemplateData": job})
    (command,) = re.findall(r"^COMMAND=\((.*?)\)\nENVIRONMENT=", script, re.MULTILINE | re.DOTALL)
    assert shlex.split(command) == list(create_preparation_launcher(fleet).build_command())


def budgets(stack: Stack) -> tuple[int, int, set[int], int]:
    """Return a fleet's time to be ready, its heartbeat interval, and its hooks' and group's time-outs in seconds."""
    (data,), group = launch_data(stack), stack.only("AutoScaling::AutoScalingGroup")
    told = [
        re.findall(rf"^{name}=(\d+)$", user_data({"LaunchTemplateData": data}), re.MULTILINE)
        for name in ("READY_BUDGET_S", "HEARTBEAT_EVERY_S")
    ]
    hooks = {hook["HeartbeatTimeout"] for hook in group["LifecycleHookSpecificationList"]}
    return int(told[0][0]), int(told[1][0]), hooks, group["HealthCheckGracePeriod"]


def test_a_fleet_with_artifacts_has_a_shorter_start_timeout(sandbox: Stacks, tmp_path: Path) -> None:
    assert budgets(sandbox["asr-inf2"]) == (900, 300, {900}, 900)
    stacks = edited_sandbox({"aws.asr.0.artifacts": True}, tmp_path)
    assert budgets(stacks["asr-inf2"]) == (480, 200, {600}, 480)
    assert budgets(stacks["asr-trn1"]) == (900, 300, {900}, 900)


def test_artifacts_differ_by_image_and_model() -> None:
    file = deployment("sandbox")
    fleet = file.aws.asr[0]
    others = [
        format_artifacts_name(file, fleet.model_copy(update={"revision": "a" * 40})),
        format_artifacts_name(file, fleet.model_copy(update={"model": "callers/whisper"})),
        format_artifacts_name(file, fleet.model_copy(update={"instance_type": "inf2.24xlarge"})),
        format_artifacts_name(file.model_copy(update={"images": {}}), fleet),
    ]
    assert len({format_artifacts_name(file, fleet), *others}) == 5


def test_the_warm_pool_contains_stopped_hosts(sandbox: Stacks) -> None:
    pool = sandbox["asr-inf2"].only("AutoScaling::WarmPool")
    assert (pool["MinSize"], pool["MaxGroupPreparedCapacity"], pool["PoolState"]) == (1, 1, "Stopped")


@pytest.mark.parametrize(
    ("purchase", "market", "targets"),
    [
        ({"option": "on-demand"}, None, False),
        ({"option": "spot"}, "spot", False),
        ({"option": "capacity-reservation", "reservation_id": "cr-0123456789abcdef0"}, None, True),
        ({"option": "capacity-block", "reservation_id": "cr-0123456789abcdef0"}, "capacity-block", True),
    ],
)
def test_p5_uses_the_configured_purchase_option(
    purchase: dict[str, str], market: str | None, targets: bool, tmp_path: Path
) -> None:
    edits = {"aws.asr.2.purchase": purchase, "aws.asr.2.availability_zones": ["us-east-1a"]}
    (data,) = launch_data(edited_sandbox(edits, tmp_path)["asr-p5"])
    assert data.get("InstanceMarketOptions", {}).get("MarketType") == market
    target = data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    assert (target.get("CapacityReservationId") == "cr-0123456789abcdef0") is targets


def test_fleets_without_an_image_digest_have_a_minimum_of_zero() -> None:
    production = shipped("production-us-east-1")
    held = [groups(production[tier]).values() for tier in HOSTS]
    assert {group["MinSize"] for members in held for group in members} == {"0"}
    assert {group["MaxSize"] for group in groups(production["vad"]).values()} == {"2"}
    assert production["asr-inf2"].of_type("AutoScaling::WarmPool") == {}


@pytest.mark.parametrize("tier", HOSTS)
def test_a_host_can_only_access_its_own_resources(sandbox: Stacks, tier: str) -> None:
    statements = [
        statement
        for policy in sandbox[tier].properties("IAM::Policy")
        for statement in policy["PolicyDocument"]["Statement"]
    ]
    everywhere = {
        action
        for statement in statements
        if statement["Resource"] == "*"
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    assert everywhere == {"cloudwatch:PutMetricData", "ecr:GetAuthorizationToken"}
    (metrics,) = {json.dumps(s.get("Condition")) for s in statements if s["Action"] == "cloudwatch:PutMetricData"}
    assert "VoiceServe" in metrics
    secrets = [s["Resource"] for s in statements if s["Action"] == "secretsmanager:GetSecretValue"]
    assert all(tier.partition("-")[0].capitalize() in json.dumps(secret) for secret in secrets)


def test_each_asr_fleet_has_its_own_stack(sandbox: Stacks) -> None:
    assert {tier: len(groups(sandbox[tier])) for tier in ("asr", *ASR)} == {"asr": 0} | dict.fromkeys(ASR, 1)
    exports = {fleet: json.dumps(sandbox[fleet].template) for fleet in ASR}
    for fleet, other in ((fleet, other) for fleet in ASR for other in ASR if fleet != other):
        assert f"sandbox-{other}:" not in exports[fleet]


def refreshes(stack: Stack) -> list[dict[str, Any]]:
    return [
        group["UpdatePolicy"]["AutoScalingInstanceRefresh"]["Preferences"]
        for group in stack.of_type("AutoScaling::AutoScalingGroup").values()
    ]


@pytest.mark.parametrize("tier", HOSTS)
def test_a_rollout_is_monitored_by_existing_alarms(sandbox: Stacks, tier: str) -> None:
    known = set(alarms(sandbox["observability"]))
    for preferences in nonempty(refreshes(sandbox[tier])):
        watched = preferences["AlarmSpecification"]["Alarms"]
        assert known >= set(watched)
        assert len(watched) <= 10, "more than Auto Scaling takes"
        assert {"sandbox-alert-sessions-refused", f"sandbox-alert-hosts-abandoned-{tier[:3]}"} <= set(watched)
        # Alarms of another fleet do not roll back this fleet.
        assert not any(name.endswith(f"-{other}") for other in ("inf2", "trn1", "p5") for name in watched
                       if other not in tier)  # fmt: skip


def test_a_rollout_launches_first_if_capacity_allows(tmp_path: Path) -> None:
    reserved = {"option": "capacity-reservation", "reservation_id": "cr-0123456789abcdef0"}
    edits = {"aws.asr.2.purchase": reserved, "aws.rollout": {"surge_percent": 25}}
    stacks = edited_sandbox(edits, tmp_path)
    bounds = {
        tier: {(each["MinHealthyPercentage"], each["MaxHealthyPercentage"]) for each in refreshes(stacks[tier])}
        for tier in ("vad", "asr-p5")
    }
    assert bounds == {"vad": {(100, 125)}, "asr-p5": {(75, 100)}}


def test_zones_are_rolled_out_one_after_the_other(sandbox: Stacks) -> None:
    found = sandbox["vad"].of_type("AutoScaling::AutoScalingGroup")
    assert [set(found) & set(group.get("DependsOn", [])) for group in found.values()] == [
        set(),
        *({name} for name in list(found)[:-1]),
    ]
