"""Plan, cost, preflight, simulation, rendered bounds and alerts of a file agree on one day.

The rendered templates and Pulumi resources are the reference: their bounds are counted here, independently of the code
of the commands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.blueprint.documents import DEPLOYMENTS, edit_document, load_text
from tests.nonempty import nonempty
from tests.ops.test_designed_day import FILES_ON_EVERY_CHANGE, GENERATED_FILES, REGIONS, SHIPPED_DEPLOYMENTS
from tests.stacks.azure.manifests import DIGESTS, workloads
from tests.stacks.azure.recorded import cluster
from voice_blueprint import catalog
from voice_blueprint.aws import names
from voice_blueprint.capacity.bounds import SOCKETS_PER_CALL
from voice_blueprint.capacity.load import calculate_peak_calls
from voice_blueprint.capacity.tiers import build_caller_tier_capacities, sum_calls_by_tier
from voice_blueprint.contract.network import Tier
from voice_blueprint.day import resolve_design_load
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.limits import iter_limit_usages
from voice_blueprint.observability.aws.alerts.tiers import SATURATION_THRESHOLD
from voice_ops.cost.day import DaySimulation, simulate_day
from voice_ops.cost.estimate import (
    Assumptions,
    ChargedSection,
    collect_azure_resources,
    collect_charged_sections,
    price_section,
)
from voice_ops.cost.model import AudioUsage, CostLine
from voice_ops.cost.prices import HOURS_PER_MONTH, load_price_book
from voice_ops.init.answers import Answers, Cloud
from voice_ops.init.drafts import UNLIMITED_BUDGET_USD, create_drafts
from voice_ops.needs import calculate_required_fargate_vcpus, calculate_required_vcpus
from voice_ops.preflight.azure.quotas import REGIONAL_QUOTA_NAME
from voice_ops.preflight.azure.quotas import calculate_required_vcpus as azure_vcpu_needs
from voice_ops.simulate.run import PolicyResult
from voice_ops.synthesis import synthesize_templates
from voice_sandbox.azure.graph import Graph

Bounds = tuple[int, int]
Templates = Mapping[str, Mapping[str, Any]]
TOLERANCE = 0.02


@dataclass(frozen=True)
class Rendered:
    """What is deployed, counted from templates or Pulumi resources.

    Attributes:
        units: Bounds of each fleet, service of tasks, or Deployment, by its name in `voice plan`.
        nodes: Bounds of each node pool on Azure.
        vcpus: vCPUs at the minimum and at the maximum, by quota: a family or Fargate on AWS, the location on Azure.
        sockets: Maximum sockets of a gateway task or pod.
        rules: Ports of load-balanced services on Azure.
    """

    units: Mapping[str, Bounds]
    nodes: Mapping[str, Bounds]
    vcpus: Mapping[str, Bounds]
    sockets: int
    rules: int = 0


def added(bounds: Iterator[Bounds]) -> Bounds:
    low, most = zip(*nonempty(bounds), strict=True)
    return sum(low), sum(most)


def environment(containers: list[dict[str, Any]], name: str) -> Iterator[str]:
    """Yield the values of an environment variable; ECS and Kubernetes spell them differently."""
    for container in containers:
        for entry in container.get("env") or container.get("Environment") or ():
            if (entry.get("name") or entry.get("Name")) == name:
                yield str(entry.get("value") or entry.get("Value"))


# --- AWS ------------------------------------------------------------------------------------------------------


def rendered_aws(deployment: Deployment, stacks: Templates) -> Rendered:
    found = [
        (stack, logical, each["Type"].removeprefix("AWS::"), each.get("Properties", {}))
        for stack, template in stacks.items()
        for logical, each in template["Resources"].items()
    ]
    by_id = {(stack, logical): properties for stack, logical, _, properties in found}
    units: dict[str, list[Bounds]] = {}
    vcpus: dict[str, list[Bounds]] = {}
    warm = {
        (stack, properties["AutoScalingGroupName"]["Ref"]): int(properties["MinSize"])
        for stack, _, kind, properties in found
        if kind == "AutoScaling::WarmPool"
    }
    fleets = {names.build_group_name(deployment, fleet.name): fleet.name for fleet in deployment.aws.asr}
    for stack, logical, kind, properties in found:
        if kind == "AutoScaling::AutoScalingGroup":
            low, most = int(properties["MinSize"]), int(properties["MaxSize"])
            launch = by_id[stack, properties["LaunchTemplate"]["LaunchTemplateId"]["Ref"]]["LaunchTemplateData"]
            size = catalog.instance_types()[launch["InstanceType"]]
            units.setdefault(fleets.get(properties["AutoScalingGroupName"], "vad"), []).append((low, most))
            stopped = warm.get((stack, logical), 0)
            family = catalog.quotas()[size.quota_code].family
            vcpus.setdefault(family, []).append(((low + stopped) * size.vcpus, (most + stopped) * size.vcpus))
        elif kind == "ApplicationAutoScaling::ScalableTarget":
            bounds = int(properties["MinCapacity"]), int(properties["MaxCapacity"])
            units.setdefault("gateway" if stack.endswith("-edge") else "agent", []).append(bounds)
            (task,) = (each for at, _, type_, each in found if at == stack and type_ == "ECS::TaskDefinition")
            vcpus.setdefault("fargate", []).append((bounds[0] * int(task["Cpu"]), bounds[1] * int(task["Cpu"])))
    (task,) = (each for at, _, kind, each in found if at.endswith("-edge") and kind == "ECS::TaskDefinition")
    (sockets,) = environment(task["ContainerDefinitions"], "VOICE_MAX_CONNECTIONS")
    low, most = added(iter(vcpus.pop("fargate")))
    return Rendered(
        {name: added(iter(bounds)) for name, bounds in units.items()},
        {},
        {
            **{family: added(iter(bounds)) for family, bounds in vcpus.items()},
            "fargate": (-(-low // 1024), -(-most // 1024)),
        },
        int(sockets),
    )


def assert_aws_needs(deployment: Deployment, stacks: Templates, rendered: Rendered) -> None:
    """Compare the quotas and limits that `preflight` queries with the rendered bounds."""
    asked: dict[str, list[Bounds]] = {}
    for (family, _), bounds in calculate_required_vcpus(deployment).items():
        asked.setdefault(family, []).append(bounds)
    needs = {family: added(iter(bounds)) for family, bounds in asked.items()}
    assert {**needs, "fargate": calculate_required_fargate_vcpus(deployment)} == rendered.vcpus
    most = {name: bounds[1] for name, bounds in rendered.units.items()}
    limits: dict[str, int] = {}
    for each in iter_limit_usages(deployment):
        limits[each.limit.id] = max(limits.get(each.limit.id, 0), each.units.max)
    assert limits["nlb-targets"] == most["gateway"] + most["vad"]
    assert limits["ecs-tasks-per-service"] == max(most["gateway"], most.get("agent", 0))
    assert limits["network-interfaces"] == sum(most.values())
    assert limits["stacks"] == len(stacks)
    assert limits["security-group-rules"] == most_rules(stacks)


def most_rules(stacks: Templates) -> int:
    """Return the maximum number of rules in one direction of a security group."""
    rules = Counter[str]()
    for template in stacks.values():
        for logical, each in template["Resources"].items():
            properties = each.get("Properties", {})
            if each["Type"] == "AWS::EC2::SecurityGroup":
                for kind in ("Ingress", "Egress"):
                    rules[f"{logical} {kind}"] += len(properties.get(f"SecurityGroup{kind}", ()))
            elif each["Type"] in {"AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress"}:
                (group, _) = properties["GroupId"]["Fn::GetAtt"]
                rules[f"{group} {each['Type'].removeprefix('AWS::EC2::SecurityGroup')}"] += 1
    return max(rules.values())


def assert_aws_alarms(deployment: Deployment, stacks: Templates, rendered: Rendered) -> None:
    """Compare the thresholds of alarms with the bounds of the fleets that they watch."""
    alarms = {
        each["Properties"]["AlarmName"]: each["Properties"]
        for template in stacks.values()
        for each in template["Resources"].values()
        if each["Type"] == "AWS::CloudWatch::Alarm"
    }
    for fleet in deployment.aws.asr:
        low, most = rendered.units[fleet.name]
        alarm = alarms.get(f"{deployment.name}-alert-fleet-at-maximum-{fleet.name}")
        assert (alarm is None) == (low == most)
        if alarm:
            assert alarm["Threshold"] == most - 1
    saturated = alarms[f"{deployment.name}-alert-service-saturated-gateway"]
    assert saturated["Threshold"] == pytest.approx(SATURATION_THRESHOLD * rendered.sockets, rel=0.01)


# --- Azure ----------------------------------------------------------------------------------------------------


def rendered_azure(graphs: list[Graph]) -> Rendered:
    nodes: dict[str, Bounds] = {}
    vcpus: list[Bounds] = []
    units: dict[str, Bounds] = {}
    sockets = 0
    (cluster,) = (each for graph in graphs for each in graph.find_resources_of_type("containerservice:ManagedCluster"))
    pools = [dict(each) for each in cluster.inputs["agentPoolProfiles"]]
    pools += [
        dict(each.inputs) for graph in graphs for each in graph.find_resources_of_type("containerservice:AgentPool")
    ]
    for pool in pools:
        bounds = int(pool["minCount"]), int(pool["maxCount"])
        nodes[str(pool.get("agentPoolName") or pool["name"])] = bounds
        surge = str((pool.get("upgradeSettings") or {}).get("maxSurge") or 0)
        if pool.get("scaleSetPriority") == "Spot":
            continue
        more = -(-bounds[1] * int(surge[:-1]) // 100) if surge.endswith("%") else int(surge)
        size = catalog.vm_sizes()[pool["vmSize"]].vcpus
        vcpus.append((bounds[0] * size, (bounds[1] + more) * size))
    for graph in graphs:
        for machine in graph.find_resources_of_type("compute:VirtualMachine"):
            size = catalog.vm_sizes()[machine.inputs["hardwareProfile"]["vmSize"]].vcpus
            vcpus.append((size, size))
        for scaled in graph.find_resources_of_type("keda.sh/v1alpha1:ScaledObject"):
            spec = scaled.inputs["spec"]
            units[spec["scaleTargetRef"]["name"]] = int(spec["minReplicaCount"]), int(spec["maxReplicaCount"])
        for workload in graph.find_resources_of_type("apps/v1:Deployment"):
            containers = workload.inputs["spec"]["template"]["spec"]["containers"]
            sockets += sum(int(each) for each in environment(containers, "VOICE_MAX_CONNECTIONS"))
    services = (
        each.inputs["spec"] for graph in graphs for each in graph.find_resources_of_type("kubernetes:core/v1:Service")
    )
    rules = sum(len(each["ports"]) for each in services if each.get("type") == "LoadBalancer")
    return Rendered(units, nodes, {REGIONAL_QUOTA_NAME: added(iter(vcpus))}, sockets, rules)


def assert_azure_needs(deployment: Deployment, rendered: Rendered) -> None:
    assert azure_vcpu_needs(deployment.azure)[REGIONAL_QUOTA_NAME] == rendered.vcpus[REGIONAL_QUOTA_NAME]
    limits = {each.limit.id: each.units for each in iter_limit_usages(deployment)}
    low, most = added(iter(rendered.nodes.values()))
    assert (limits["aks-nodes"].min, limits["aks-nodes"].max) == (low, most)
    highest = max(each.units.max for each in iter_limit_usages(deployment) if each.limit.id == "aks-nodes-per-pool")
    assert highest == max(most for _, most in rendered.nodes.values())
    assert limits["aks-node-pools"].max == len(rendered.nodes)
    assert not deployment.azure.callers or limits["load-balancer-rules"].max == rendered.rules


# --- Both -----------------------------------------------------------------------------------------------------


def assert_plan(deployment: Deployment, rendered: Rendered) -> None:
    """Compare the tiers of `voice plan` with the rendered bounds, and the calls of a gateway with its sockets.

    A cluster without callers has no tiers.
    """
    assert bool(build_caller_tier_capacities(deployment)) == (rendered.sockets > 0)
    for each in build_caller_tier_capacities(deployment):
        if each.tier is not Tier.STATE:
            assert (each.units.min, each.units.max) == rendered.units[each.name], each.name
        if each.tier is Tier.GATEWAY:
            assert each.calls == pytest.approx(rendered.sockets / SOCKETS_PER_CALL, abs=1)


def assert_simulation(deployment: Deployment, rendered: Rendered, result: PolicyResult) -> None:
    """Compare the simulated fleets with the rendered bounds, and the day's calls with those of the plan."""
    for plan in nonempty(result.plans):
        bounds = added((group.min_hosts, group.max_hosts) for group in plan.groups)
        name = plan.name.partition(" on ")[0]
        known = rendered.units.get(plan.name) or rendered.units.get(name)
        assert known is None or bounds == known, plan.name
        hosts = result.time_series.hosts[plan.name]
        assert hosts.min() >= bounds[0]
        assert hosts.max() <= bounds[1]
    peak = calculate_peak_calls(resolve_design_load(deployment))
    assert float(result.time_series.wanted.max()) == pytest.approx(peak, rel=0.01)
    room = sum_calls_by_tier(build_caller_tier_capacities(deployment))
    if room:
        assert result.time_series.carried.max() <= min(most for _, most in room.values())
        assert peak <= min(most for _, most in room.values())


def host_lines(section: ChargedSection) -> list[CostLine]:
    kinds = {"AWS::AutoScaling::AutoScalingGroup", "AWS::ECS::Service", "containerservice:AgentPool"}
    sizes = {*catalog.instance_types(), *catalog.vm_sizes()}
    return [
        each
        for each in price_section(section, load_price_book()).lines
        if each.kind in kinds and (each.price.item in sizes or each.price.item.startswith("fargate-"))
    ]


def assert_cost_on_aws(deployment: Deployment, rendered: Rendered, result: PolicyResult) -> None:
    """Compare the hosts of `voice cost` with the integral of the simulated day, and their bounds with the rendered."""
    (section,) = collect_charged_sections(deployment, Assumptions())
    lines = host_lines(section)
    rates = {plan.name: plan.usd_per_hour or 0.0 for plan in result.plans}
    usd = sum(float(hosts.mean()) * rates[name] for name, hosts in result.time_series.hosts.items())
    assert sum(line.usd.expected for line in lines) == pytest.approx(usd * HOURS_PER_MONTH, rel=TOLERANCE)
    hosts = Counter[str]()
    for line in lines:
        hosts[line.price.item] += round(line.amount.peak)
    fleets = {fleet.name: fleet.instance_type for fleet in deployment.aws.asr} | {
        "vad": deployment.aws.vad.instance_type
    }
    most = Counter[str]()
    for name, kind in fleets.items():
        most[kind] += rendered.units[name][1]
    assert {kind: hosts[kind] for kind in most} == dict(most)


def assert_cost_on_azure(
    deployment: Deployment, graphs: list[Graph], rendered: Rendered, played: DaySimulation
) -> None:
    """Compare the nodes of `voice cost` with the rendered pools, and their mean with the simulated day."""
    rented = tuple(collect_azure_resources(graphs, played.expected_sizes))
    lines = host_lines(ChargedSection("azure", deployment.azure.location, rented, AudioUsage(None, "none"), ()))
    for line in nonempty(lines):
        low, most = rendered.nodes[line.resource]
        assert (line.amount.low, line.amount.peak) == (low, most), line.resource
        assert low <= line.amount.expected <= most
    # A replica that hears calls needs a node or a part of one, so the mean nodes follow from the mean replicas.
    for plan in (each for each in played.result.plans if " on " in each.name):
        pool = plan.name.partition(" on ")[2]
        (line,) = (each for each in lines if each.resource == pool)
        replicas = float(played.result.time_series.hosts[plan.name].mean())
        assert line.amount.expected <= max(replicas, rendered.nodes[pool][0]) + 1
        assert line.amount.expected >= min(replicas / 8, rendered.nodes[pool][1])


def assert_all_agree(text: str, folder: Path) -> None:
    """Render, plan, price and simulate a file with digests of all images, and compare."""
    text = edit_document({"images": DIGESTS}, text)
    deployment = load_text(text, folder)
    played = simulate_day(deployment)
    if deployment.aws_section:
        stacks = synthesize_templates(deployment)
        rendered = rendered_aws(deployment, stacks)
        assert_aws_needs(deployment, stacks, rendered)
        assert_aws_alarms(deployment, stacks, rendered)
        assert_cost_on_aws(deployment, rendered, played.result)
    else:
        graphs = [cluster(text), workloads(text)]
        rendered = rendered_azure(graphs)
        assert_azure_needs(deployment, rendered)
        assert_cost_on_azure(deployment, graphs, rendered, played)
    assert_plan(deployment, rendered)
    assert_simulation(deployment, rendered, played.result)


def first_file(cloud: Cloud, calls: int) -> str:
    first, *_ = create_drafts(Answers(cloud, REGIONS[cloud], calls, agents=False), "made")
    return first.render_text(UNLIMITED_BUDGET_USD, "schema.json")


@pytest.mark.parametrize(("cloud", "calls"), FILES_ON_EVERY_CHANGE)
def test_the_commands_agree_on_a_first_file(cloud: Cloud, calls: int, tmp_path: Path) -> None:
    assert_all_agree(first_file(cloud, calls), tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize(("cloud", "calls"), [each for each in GENERATED_FILES if each not in FILES_ON_EVERY_CHANGE])
def test_the_commands_agree_on_a_new_file(cloud: Cloud, calls: int, tmp_path: Path) -> None:
    assert_all_agree(first_file(cloud, calls), tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("name", SHIPPED_DEPLOYMENTS)
def test_the_commands_agree_on_a_shipped_file(name: str, tmp_path: Path) -> None:
    assert_all_agree((DEPLOYMENTS / f"{name}.yaml").read_text(encoding="utf-8"), tmp_path)
