"""Cost of a deployment: every type has a rule, cost is monotonic, and known prices are reproduced."""

import copy
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import voice_blueprint
from tests.blueprint.documents import load_text
from tests.stacks.azure.manifests import workloads
from tests.stacks.azure.recorded import cluster, edit_deployment
from tests.synthesized import ROOT, edited_sandbox, shipped, two_regions
from voice_blueprint import catalog
from voice_blueprint.capacity.load import calculate_peak_calls
from voice_blueprint.day import resolve_design_load
from voice_blueprint.file.model.load import CallLoad
from voice_ops.cost import aws, azure
from voice_ops.cost.audio import estimate_aws_audio, estimate_aws_calls, estimate_azure_audio
from voice_ops.cost.conversations import estimate_aws_conversations, estimate_azure_conversations
from voice_ops.cost.estimate import (
    NO_RULE_REASON,
    Assumptions,
    ChargedSection,
    collect_aws_resources,
    collect_aws_traffic_resources,
    collect_azure_resources,
    collect_azure_traffic_resources,
    collect_charged_sections,
    price_section,
)
from voice_ops.cost.model import Amount, AudioUsage, Estimate, ExpectedSizes, sum_amounts
from voice_ops.cost.prices import HOURS_PER_MONTH, load_price_book
from voice_ops.cost.report import print_estimate, print_total, serialize_estimate
from voice_ops.cost.traffic import PRICED_ITEMS, calculate_aws_usage
from voice_sandbox.azure.graph import Graph, Resource

SANDBOX = voice_blueprint.load(ROOT / "tests/deployments/sandbox.yaml")
AZURE = voice_blueprint.load(ROOT / "tests/deployments/cells.yaml")
SHIPPED_DEPLOYMENTS = ("sandbox", "production-us-east-1", "both", "small", "hosts")
"""Every file with an AWS section, except the refused one."""
LOAD = CallLoad(calls=700, minutes_each=3, speech_share=0.5, peak_factor=2)
NO_AUDIO = AudioUsage(None, "not asked")
GROUP = "AWS::AutoScaling::AutoScalingGroup"

Stacks = dict[str, dict[str, Any]]


def templates(name: str = "sandbox") -> Stacks:
    return {f"{name}-{tier}": copy.deepcopy(stack.template) for tier, stack in shipped(name).items()}


def price_stacks(stacks: Stacks, region: str = "us-east-1") -> Estimate:
    rented = tuple(collect_aws_resources(SANDBOX, stacks, ExpectedSizes(0.35)))
    return price_section(ChargedSection("aws", region, rented, NO_AUDIO, ()), load_price_book())


@cache
def graphs() -> tuple[Graph, ...]:
    text = edit_deployment({"azure.hub_token_secret": "hub-token"})
    return cluster(text), workloads(text)


@cache
def caller_graphs() -> tuple[Graph, ...]:
    text = edit_deployment({}, "production-azure")
    return cluster(text), workloads(text)


def price_graphs(stack_graphs: tuple[Graph, ...], region: str = AZURE.azure.location) -> Estimate:
    section = ChargedSection(
        "azure", region, tuple(collect_azure_resources(stack_graphs, ExpectedSizes(0.35))), NO_AUDIO, ()
    )
    return price_section(section, load_price_book())


def item_cost(estimate: Estimate, item: str) -> Amount:
    return sum_amounts(line.usd for line in estimate.lines if line.price.item == item)


def test_the_rules_cover_exactly_the_types_deployed_to_aws() -> None:
    deployed = {
        resource["Type"]
        for stacks in (*map(shipped, SHIPPED_DEPLOYMENTS), two_regions())
        for stack in stacks.values()
        for resource in stack.template["Resources"].values()
    }
    assert deployed == set(aws.PRICING_RULES) | set(aws.ITEMS_BY_TYPE) | aws.FREE_RESOURCE_TYPES
    assert not aws.FREE_RESOURCE_TYPES & (set(aws.PRICING_RULES) | set(aws.ITEMS_BY_TYPE))


def test_the_rules_cover_exactly_the_types_deployed_to_azure() -> None:
    deployed = {kind for graph in (*graphs(), *caller_graphs()) for kind in graph.count_by_type()}
    assert deployed == set(azure.PRICING_RULES) | set(azure.ITEMS_BY_TYPE) | azure.FREE_RESOURCE_TYPES
    assert not azure.FREE_RESOURCE_TYPES & (set(azure.PRICING_RULES) | set(azure.ITEMS_BY_TYPE))


def test_a_type_without_a_rule_is_listed() -> None:
    stacks = templates()
    stacks["sandbox-vad"]["Resources"]["Queue"] = {"Type": "AWS::SQS::Queue"}
    assert [left.kind for left in price_stacks(stacks).unpriced_items if left.why == NO_RULE_REASON] == [
        "AWS::SQS::Queue"
    ]
    assert not [left for left in price_stacks(templates()).unpriced_items if left.why == NO_RULE_REASON]


def test_every_row_of_the_price_table_is_used_by_a_rule() -> None:
    aws_estimate, azure_estimate = price_stacks(templates()), price_graphs(graphs())
    of_two = price_stacks({tier: stack.template for tier, stack in two_regions().items()})
    estimates = (aws_estimate, of_two, azure_estimate, price_graphs(caller_graphs()))
    used = {line.price.item for estimate in estimates for line in estimate.lines}
    used |= {
        use.item
        for each in (
            *collect_aws_traffic_resources(
                voice_blueprint.load(ROOT / "tests/deployments/production-us-east-1.yaml"), 0.35
            ),
            *collect_azure_traffic_resources(AZURE.azure, LOAD, 0.35),
        )
        for use in each.uses
    }
    by_use = {item for rules in (aws.ITEMS_BY_TYPE, azure.ITEMS_BY_TYPE) for uses in rules.values() for _, item in uses}
    # The shipped files' Grafana is not zone-redundant, and their volumes have only included IOPS.
    by_choice = {"grafana-zone-redundant-hour", "ebs-gp3-throughput", "ebs-gp3-iops"}
    assert set(catalog.service_prices()) <= used | by_use | by_choice


@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_the_sections_of_the_estimate_are_complete(cloud: str) -> None:
    estimate = price_stacks(templates()) if cloud == "aws" else price_graphs(graphs())
    whole = estimate.usd.cases
    for case in range(3):
        assert sum(line.usd.cases[case] for line in estimate.lines) == pytest.approx(whole[case])
        assert sum(usd.cases[case] for usd in estimate.calculate_usd_by_tier().values()) == pytest.approx(whole[case])
    assert 0 < whole[0] < whole[1] < whole[2]


@pytest.mark.parametrize(
    ("instance_type", "usd_per_hour", "low", "peak"),
    [("c8g.12xlarge", 1.91424, 3, 30), ("inf2.48xlarge", 12.98127, 1, 4), ("p5.4xlarge", 6.88, 1, 4)],
)
def test_hosts_cost_the_aws_list_price(instance_type: str, usd_per_hour: float, low: int, peak: int) -> None:
    usd = item_cost(price_stacks(templates()), instance_type)
    assert usd.low == pytest.approx(low * usd_per_hour * HOURS_PER_MONTH)
    assert usd.peak == pytest.approx(peak * usd_per_hour * HOURS_PER_MONTH)
    assert usd.expected == pytest.approx((low + 0.35 * (peak - low)) * usd_per_hour * HOURS_PER_MONTH)


def test_metrics_of_container_insights_are_counted() -> None:
    """The gateway and the agents each have a cluster with one service, with 13 and 25 metrics."""
    lines = [line for line in price_stacks(templates()).lines if line.kind == "AWS::ECS::Cluster"]
    assert [line.price.item for line in lines] == ["cloudwatch-custom-metric"] * 2
    assert sum(line.usd.expected for line in lines) == pytest.approx(2 * (13 + 25) * 0.3)


def stored_gb(calls: float) -> float:
    production = voice_blueprint.load(ROOT / "tests/deployments/production-us-east-1.yaml")
    uses = calculate_aws_usage(production.aws, LOAD, Amount.fixed(calls), 0.0)
    return sum(use.amount.expected for kind, use in uses if (kind, use.item) == ("AWS::S3::Bucket", "s3-standard"))


def test_weights_and_access_logs_in_buckets_are_counted() -> None:
    # Three fleets with Whisper, each in two versions.
    assert stored_gb(0) == pytest.approx(2 * 3 * 6 * 2**30 / 1e9)
    assert stored_gb(1) > stored_gb(0)


def test_metric_alerts_on_azure_are_charged_by_series() -> None:
    alerts = [line for line in price_graphs(caller_graphs()).lines if line.kind == "monitor:MetricAlert"]
    assert {line.price.item for line in alerts} == {"azure-metric-alert"}
    series = {line.resource: line.amount.expected for line in alerts}
    assert series.pop("edge-unhealthy", 3) == 3  # one for each of at most three backends
    assert set(series.values()) == {1}


def test_a_faster_volume_costs_its_additional_throughput_and_iops(tmp_path: Path) -> None:
    stacks = edited_sandbox({"aws.asr.0.root_volume_mib_per_s": 1024 + 125}, tmp_path)
    estimate = price_stacks({f"sandbox-{tier}": stack.template for tier, stack in stacks.items()})
    # One host at the minimum and one in the warm pool, each with 4 IOPS a MiB/s.
    assert item_cost(estimate, "ebs-gp3-throughput").low == pytest.approx(2 * 40.96)
    assert item_cost(estimate, "ebs-gp3-iops").low == pytest.approx(2 * (4 * 1149 - 3000) * 0.005)


def test_resources_of_hosts_and_alarms_are_counted() -> None:
    estimate = price_stacks(templates())
    # 200 GiB for each of 3 ASR hosts, 40 for each of 3 VAD hosts, and 200 for the inf2 host of the warm pool.
    disks = item_cost(estimate, "ebs-gp3")
    assert disks.low == pytest.approx((3 * 200 + 3 * 40 + 1 * 200) * 0.08)
    assert disks.peak == pytest.approx((12 * 200 + 30 * 40 + 1 * 200) * 0.08)
    # The public load balancer and the agents' have an address in each of three zones, the NAT gateway one.
    assert item_cost(estimate, "public-ipv4-hour").low == pytest.approx((2 * 3 + 1) * 0.005 * HOURS_PER_MONTH)
    assert item_cost(estimate, "cache.t4g.small").low == pytest.approx(2 * 0.0256 * HOURS_PER_MONTH)
    # One endpoint in three zones; the gateway endpoint is free.
    assert item_cost(estimate, "interface-endpoint-hour").low == pytest.approx(3 * 0.01 * HOURS_PER_MONTH)
    # A hundred gateway tasks of half a core, and ten agents of one.
    assert item_cost(estimate, "fargate-arm-vcpu").peak == pytest.approx(
        (100 * 0.5 + 10 * 1) * 0.03238 * HOURS_PER_MONTH
    )


def test_alarms_on_short_periods_cost_more_and_one_over_several_metrics_counts_each() -> None:
    def alarm(**properties: object) -> Estimate:
        resource = {"Type": "AWS::CloudWatch::Alarm", "Properties": properties}
        return price_stacks({"sandbox-vad": {"Resources": {"Alarm": resource}}})

    assert alarm(Period=60).usd.low == pytest.approx(0.1)
    assert alarm(Period=10).usd.low == pytest.approx(0.3)
    metric = {"MetricStat": {"Period": 60}}
    assert alarm(Metrics=[{"Expression": "MAX([a,b])"}, metric, metric]).usd.low == pytest.approx(0.2)


@given(sizes=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=6, max_size=6), more=st.data())
@settings(max_examples=40)
def test_more_hosts_never_cost_less(sizes: list[tuple[int, int]], more: st.DataObject) -> None:
    extra = more.draw(st.lists(st.integers(0, 10), min_size=6, max_size=6))
    low = [(min(size), max(size)) for size in sizes]
    high = [(at_least + add, at_most + add) for (at_least, at_most), add in zip(low, extra, strict=True)]
    small, large = (price_stacks(_with_sizes(bounds)).usd for bounds in (low, high))
    for one, other in zip(small.cases, large.cases, strict=True):
        assert one <= other + 1e-6
    assert (small.low < large.low) == any(extra)
    assert small.low <= small.expected <= small.peak


def _with_sizes(bounds: list[tuple[int, int]]) -> Stacks:
    stacks = templates()
    groups = [r for s in stacks.values() for r in s["Resources"].values() if r["Type"] == GROUP]
    for group, (at_least, at_most) in zip(groups, bounds, strict=True):
        group["Properties"] |= {"MinSize": str(at_least), "MaxSize": str(at_most)}
    return stacks


def test_a_host_without_a_price_in_its_region_does_not_use_another_region() -> None:
    estimate = price_stacks(templates(), region="eu-west-1")
    assert item_cost(estimate, "trn1.2xlarge").peak == 0
    (left,) = [left for left in estimate.unpriced_items if left.what == "trn1.2xlarge"]
    assert left.kind == GROUP
    assert "1 to 4 for the whole month" in left.why
    assert "eu-west-1" in left.why
    assert "nat-gateway-hour" in estimate.prices_from_other_regions["us-east-1"]


def test_without_a_host_price_the_total_is_a_lower_bound(capsys: pytest.CaptureFixture[str]) -> None:
    """No ND96isr_H200_v5 is listed in southcentralus; elsewhere one is 84.80 to 169.60 USD an hour."""
    estimate = price_graphs(graphs(), "southcentralus")
    (h200,) = estimate.unavailable_hosts
    assert h200.item == "Standard_ND96isr_H200_v5"
    assert {"westus3", "brazilsouth"} < set(h200.regions)
    assert h200.min_usd.cases == pytest.approx((61_904, 61_904, 61_904))
    assert h200.most.cases == pytest.approx((123_808, 123_808, 123_808))
    print_estimate(estimate)
    said = capsys.readouterr().out
    assert not re.search(r"^ *total ", said, re.MULTILINE)
    assert re.search(r"at least +[\d,]+ ", said)
    assert re.search(rf"and ND96isr_H200_v5, as in {len(h200.regions)} regions( +61,904-123,808){{3}}", said)
    report = serialize_estimate(estimate)
    assert "usd_per_month" not in report
    assert report["usd_per_month_at_least"] == estimate.usd
    assert price_stacks(templates()).unavailable_hosts == ()


def test_audio_hours_and_totals_of_both_clouds_are_lower_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    whole = replace(price_graphs(graphs()), audio=AudioUsage(Amount.fixed(100), ""))
    part = replace(price_graphs(graphs(), "southcentralus"), audio=AudioUsage(Amount.fixed(100), ""))
    for estimate, at_least in ((whole, ""), (part, ", at least")):
        print_estimate(estimate)
        assert f"USD per audio hour{at_least} " in capsys.readouterr().out
        assert (serialize_estimate(estimate)["usd_per_audio_hour"] is None) == bool(at_least)
    for estimates, at_least in (([whole, whole], ""), ([whole, part], "at least ")):
        print_total(estimates)
        assert re.search(rf"total {at_least}\d", capsys.readouterr().out)


def test_nodes_on_azure_cost_the_azure_list_price() -> None:
    estimate = price_graphs(graphs())
    assert item_cost(estimate, "Standard_NC96ads_A100_v4").low == pytest.approx(2 * 14.692 * HOURS_PER_MONTH)
    assert item_cost(estimate, "Standard_D8ds_v5").peak == pytest.approx(6 * 0.452 * HOURS_PER_MONTH)
    assert item_cost(estimate, "registry-premium-day").low == pytest.approx(1.6666 * 365 / 12)
    # 256 GiB is a P15; the system pool's 128 GiB are a P10.
    disks = [line for line in estimate.lines if line.price.item == "os-disk-p15"]
    assert sum_amounts(line.amount for line in disks).peak == 4 + 4 + 1 + 5 + 4 + 1  # the last is for the jump host
    assert item_cost(estimate, "os-disk-p10").cases == pytest.approx((3 * 19.71, (3 + 0.35 * 3) * 19.71, 6 * 19.71))
    assert item_cost(estimate, "premium-files").low == pytest.approx(1024 * 0.16)
    assert item_cost(estimate, "bastion-standard-hour").low == pytest.approx(0.29 * HOURS_PER_MONTH)
    assert estimate.unavailable_hosts == ()
    assert all(left.why.startswith("charged by use") for left in estimate.unpriced_items)


@pytest.mark.parametrize(("gib", "tier"), [(128, "p10"), (129, "p15"), (256, "p15"), (2048, "p40")])
def test_a_disk_is_priced_by_tier(gib: int, tier: str) -> None:
    inputs = {"minCount": 1, "maxCount": 1, "vmSize": "x", "osDiskType": "Managed", "osDiskSizeGB": gib}
    pool = Resource("urn", "azure-native:containerservice:AgentPool", "pool", inputs=inputs)
    (rented,) = collect_azure_resources([Graph("voice-cluster", "s", (pool,))], ExpectedSizes(0.5))
    assert [use.item for use in rented.uses] == ["x", f"os-disk-{tier}"]


def test_audio_hours_follow_from_the_smallest_tier() -> None:
    # A task with half a core supports 53 calls; the largest store supports fewer calls than a hundred such tasks.
    audio = estimate_aws_audio(SANDBOX.aws, resolve_design_load(SANDBOX), has_load=False)
    assert audio.hours is not None
    assert audio.hours.low == pytest.approx(53 * 0.7 * HOURS_PER_MONTH)
    assert audio.hours.peak == pytest.approx(736 * 0.7 * HOURS_PER_MONTH, rel=0.01)
    assert audio.hours.expected == pytest.approx(736 * 0.35 * HOURS_PER_MONTH, rel=0.01)
    assert audio.assumptions.startswith("the file has no load")


def test_cost_is_divided_by_the_load_option() -> None:
    load = CallLoad(calls=100, peak_factor=3)
    assert estimate_aws_calls(SANDBOX.aws, load).cases == pytest.approx((53 * 0.7, 100, 300))
    assert "100 calls, 300 at the peak" in estimate_aws_audio(SANDBOX.aws, load, has_load=True).assumptions


def test_traffic_of_the_load_option_matches_a_manual_calculation() -> None:
    production = voice_blueprint.load(ROOT / "tests/deployments/production-us-east-1.yaml")
    rented = tuple(collect_aws_traffic_resources(production, 0.0))
    usd = {
        line.price.item: line.usd.expected
        for line in price_section(ChargedSection("aws", "us-east-1", rented, NO_AUDIO, ()), load_price_book()).lines
        if line.tier == "traffic"
    }
    # 1,200 calls, 730 hours: 876,000 call-hours, 17,520,000 calls of 3 minutes, half of each spoken, three zones.
    # 50 packets of 680 bytes a second: 0.1224 GB an hour; 10 chunks of 3,244 bytes: 0.1168; 3 events of 400: 0.0043.
    by_hand = {
        "nlb-capacity-unit": 1_200 * (0.1224 + 0.00216) * 730 * 0.006,
        "zone-crossing-data": 876_000 * 2 / 3 * (0.1224 + 0.5 * 0.058392) * 0.02,
        "internet-data": 876_000 * 0.00216 * 0.09,
        "api-gateway-rest-requests": 17.52 * 3 * 3.5,
        "waf-requests": 17.52 * 3 * 0.6,
        "logs-ingested": 17_520_000 * 25_000 / 1e9 * 0.5,
        "logs-stored": 17_520_000 * 25_000 / 1e9 * 90 / (365 / 12) * 0.03,  # kept for 90 days
        # 3 VAD hosts and 5 ASR hosts, each 12 times a minute; gateway tasks write theirs to their log
        "cloudwatch-requests": 8 * 730 * 60 * 12 / 1000 * 0.01,
        "interface-endpoint-data": 8 * 730 * 60 * 12 * 10_000 / 1e9 * 0.01,
        # Six snapshots beyond the free one: 300 chunks of 3,244 bytes and 512 KiB for each call.
        "elasticache-backup": 1_200 * (300 * 3_244 + 512 * 1024) / 1e9 * 6 * 0.085,
    }
    assert {item: usd[item] for item in by_hand} == pytest.approx(by_hand, rel=0.01)
    assert set(usd) - set(by_hand) == {"cloudwatch-custom-metric", "ecr-storage", "s3-put-requests", "s3-standard"}


def test_traffic_of_the_load_option_on_azure_matches_a_manual_calculation() -> None:
    production = voice_blueprint.load(ROOT / "tests/deployments/production-azure.yaml")
    assert production.load
    rented = tuple(collect_azure_traffic_resources(production.azure, production.load, 0.0))
    priced_traffic = price_section(ChargedSection("azure", "westus3", rented, NO_AUDIO, ()), load_price_book())
    usd = {line.price.item: line.usd for line in priced_traffic.lines if line.tier == "traffic"}
    # 700 calls, 730 hours: 511,000 call-hours, 10,220,000 calls of 3 minutes.
    # Half of each call is speech: 0.00216 GB per call-hour are read.
    # Eight replicas with 500 series each (4 of Voxtral on A100, 1 on H100, 2 of speech, 1 of qwen), eight nodes with
    # 1,000 each (3 of the system pool, 2 of pairs, 1 of h100, h200 and a100), every 15 s.
    samples = (8 * 500 + 8 * 1000) * 730 * 3600 / 15
    logged = 10_220_000 * 25_000 / 1e9
    by_hand = {
        "azure-internet-data": 511_000 * 0.00216 * 0.087,
        "log-analytics-ingested": logged * 2.3,
        "prometheus-samples": samples / 1e7 * 0.16,
        "azure-nat-gateway-data": (logged + samples * 2 / 1e9) * 0.045,
        # 0.1224 GB of audio and the text are 0.2768 Mbit/s a call: 87.28 units of 2.22 Mbit/s, 20 of them reserved.
        "waf-gateway-capacity-unit": (700 * 0.2768 / 2.22 - 20) * 730 * 0.0144,
        "azure-load-balancer-data": 511_000 * (0.1224 + 0.00216) * 0.005,
        "private-endpoint-data": 511_000 * 0.058392 * 0.01,  # ten chunks of 3,244 bytes a second, half of the time
    }
    assert {item: each.expected for item, each in usd.items()} == pytest.approx(by_hand, rel=0.01)
    assert usd["azure-internet-data"].peak > usd["azure-internet-data"].expected
    # Of 350 streams of text to speech 256 are active, at 48,000 bytes a second: 0.1728 GB an hour.
    mute = collect_azure_traffic_resources(production.azure.model_copy(update={"agents": None}), production.load, 0.0)
    (sent,) = [use.amount.expected for each in mute for use in each.uses if use.item == "azure-internet-data"]
    assert sent == pytest.approx(511_000 * 0.00216 + 256 * 730 * 0.1728, rel=0.01)


def test_month_and_conversation_minute_on_aws_match_a_manual_calculation() -> None:
    production = voice_blueprint.load(ROOT / "tests/deployments/production-us-east-1.yaml")
    (section,) = collect_charged_sections(production, Assumptions(0.0))
    estimate = price_section(section, load_price_book())
    # 60 conversations, 730 hours: 43,800 conversation-hours, 876,000 conversations. 24,000 samples of two bytes are
    # 0.1728 GB an hour, half of which the agent speaks; 0.1224 GB an hour are received.
    spoken, heard, logs = 43_800 * 0.0864, 43_800 * 0.1224, 876_000 * 25_000 / 1e9
    own = sum(
        (
            30 * (0.03238 + 2 * 0.00356) * 730,  # 30 tasks of one vCPU and 2 GiB
            (0.0225 + 3 * 0.005) * 730,  # the load balancer, and its addresses in three zones
            (spoken + heard) / 730 * 730 * 0.006,  # one capacity unit per hour and GB
            spoken * (0.09 + 0.045),  # to the caller, and through a NAT gateway from the speech service
            heard * 2 / 3 * 0.02,  # to a gateway, of three zones
            logs * (0.5 + 90 / (365 / 12) * 0.03),
        )
    )
    assert estimate.calculate_usd_by_tier()["agents"].expected == pytest.approx(own, rel=0.01)
    assert estimate.conversations
    assert estimate.conversations.minutes.cases == pytest.approx((2_628_000, 2_628_000, 26_280_000))
    # Each conversation is also a call: its share of the rest is its part of 876,000 audio hours.
    minute = own / 2_628_000 + (estimate.usd.expected - own) / (876_000 * 60)
    assert estimate.usd_per_conversation_minute
    assert estimate.usd_per_conversation_minute.expected == pytest.approx(minute, rel=0.01)
    assert minute == pytest.approx(0.00123, rel=0.01)
    assert {left.kind for left in estimate.unpriced_items if "external endpoint" in left.what} == {"qwen3-8b", "kokoro"}
    month = (
        730 * (2 * 12.9813 + 6.88 + 2 * 1.34375)  # the ASR hosts
        + 1_600 * 0.08 + 120 + 400 * 0.08 + 30  # the disks of inf2 and trn1, and their additional throughput
        + 730 * 3 * (0.31904 + 0.7022)  # a VAD host and a node of the store in each zone
        + 730 * 60 * (0.03238 + 2 * 0.00356)  # gateway tasks
        + 730 * 3 * (0.045 + 0.005) + 730 * (0.0225 + 3 * 0.005)  # NAT gateways, and the media load balancer
        + 1_200 * (0.1224 + 0.00216) * 730 * 0.006  # capacity units for audio
        + 876_000 * 2 / 3 * (0.1224 + 0.5 * 0.058392) * 0.02  # between zones
        + 876_000 * 0.00216 * 0.09  # to callers
        + 17.52 * 3 * (3.5 + 0.6)  # requests of sessions, and of the firewall
        + 17_520_000 * 25_000 / 1e9 * (0.5 + 90 / (365 / 12) * 0.03)  # logs
        + 8 * 730 * 60 * 12 / 1000 * 0.01  # metrics sent by hosts
        + 115 * 0.3 + 28 * 2**30 * 2 / 1e9 * 0.1  # their series, and two versions of each image
        + own
    )  # fmt: skip
    assert estimate.usd.expected == pytest.approx(month, rel=0.01)
    assert not estimate.unavailable_hosts


def test_month_and_conversation_minute_on_azure_match_a_manual_calculation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    production = voice_blueprint.load(ROOT / "tests/deployments/production-azure.yaml")
    assert production.load
    azure_section = production.azure
    rented = (
        *collect_azure_resources(caller_graphs(), ExpectedSizes(0.0)),
        *collect_azure_traffic_resources(azure_section, production.load, 0.0),
    )
    audio, held = (
        estimate_azure_audio(azure_section, production.load, has_load=True),
        estimate_azure_conversations(azure_section, production.load),
    )
    estimate = price_section(ChargedSection("azure", "westus3", rented, audio, (), held), load_price_book())
    # 35 conversations, 730 hours: 1,533,000 minutes, 511,000 conversations; half of 25,550 hours are spoken.
    spoken, logs = 25_550 * 0.0864, 511_000 * 25_000 / 1e9
    # 25 agents of 1.15 CPUs, 27 gateways of 1.15, 5 of VAD and 7 of ASR of 2.15, less the one more of a rollout.
    cpu = 24 * 1.15 / (24 * 1.15 + 26 * 1.15 + 4 * 2.15 + 6 * 2.15)
    own = sum(
        (
            (84.8 + 3.673) * 730 + 2 * 38.0121,  # the nodes for speech and answers, with their disks
            4 * (0.452 * 730 + 19.71) * cpu,
            0.025 * 730,  # the load balancer
            spoken * (0.087 + 0.005) + spoken / 730 * 8e3 / 3600 / 2.22 * 730 * 0.0144,
            logs * (2.3 + 0.045),
        )
    )
    minute = own / 1_533_000 + (estimate.usd.expected - own) / (511_000 * 60)
    assert estimate.usd_per_conversation_minute
    assert estimate.usd_per_conversation_minute.expected == pytest.approx(minute, rel=0.01)
    assert minute == pytest.approx(0.0439, rel=0.01)
    month = (
        730 * (2 * 14.692 + 13.96 + 84.8 + 3.673)  # pairs, h100, h200, a100
        + 730 * (3 + 4) * 0.452 + 5 * 38.0121 + 7 * 19.71  # system and CPU pool; disks
        + 730 * 2 * 0.156 + 1024 * 0.16 + 1.6666 * 365 / 12  # the store, the models' share, the registry
        + 730 * (0.1 + 0.29 + 0.443 + 20 * 0.0144 + 3 * 0.025)  # AKS, bastion, firewall, rules of the load balancer
        + (700 * 0.2768 / 2.22 - 20) * 730 * 0.0144  # capacity units of the application gateway for calls
        + 511_000 * (0.00216 * 0.087 + (0.1224 + 0.00216) * 0.005 + 0.058392 * 0.01)  # traffic
        + 10_220_000 * 25_000 / 1e9 * 2.3  # logs
        + spoken * 0.087
    )  # fmt: skip
    assert estimate.usd.expected == pytest.approx(month, rel=0.01)
    assert not estimate.unavailable_hosts
    print_estimate(estimate)
    said = capsys.readouterr().out
    assert re.search(r"USD per conversation minute +0.043\d +0.043\d", said)
    assert serialize_estimate(estimate)["usd_per_conversation_minute"] == estimate.usd_per_conversation_minute


def test_the_share_of_agents_in_the_cpu_pool_follows_the_tighter_of_cpus_and_memory(tmp_path: Path) -> None:
    file = load_text(edit_deployment({"azure.callers.asr.memory_gib": 16}, "production-azure"), tmp_path)
    held = estimate_azure_conversations(file.azure, file.load)
    assert held
    # Six ASR pods each occupy 16.375 of 26.2 GiB of a node, which has 7 CPUs for pods.
    agents, others = 24 * 1.15, 30 * 1.15 + 5 * 2.15 + 6 * 16.375 / 26.21 * 7
    assert held.own_share_by_name["cpu"] == pytest.approx(agents / (agents + others), rel=0.001)


def test_without_conversations_there_is_no_price_per_minute() -> None:
    production = voice_blueprint.load(ROOT / "tests/deployments/production-us-east-1.yaml")
    load = CallLoad(calls=100, conversation_share=0)
    assert estimate_aws_conversations(production.aws, load) is None
    assert estimate_aws_conversations(production.aws.model_copy(update={"agents": None}), LOAD) is None
    held = estimate_aws_conversations(production.aws, resolve_design_load(production.model_copy(update={"load": None})))
    assert held
    # Without a load, the capacity of the agents: at most 130 tasks of 8, of which 70 % are in use at the peak.
    assert held.minutes.peak == pytest.approx(1_040 * 0.7 * 730 * 60, rel=0.01)


def test_all_traffic_of_the_load_option_is_in_the_total() -> None:
    loaded = SANDBOX.model_copy(update={"load": CallLoad(calls=100)})
    rented = tuple(collect_aws_resources(loaded, templates(), ExpectedSizes(0.35))) + tuple(
        collect_aws_traffic_resources(loaded, 0.35)
    )
    left = {
        each.what
        for each in price_section(
            ChargedSection("aws", "us-east-1", rented, NO_AUDIO, ()), load_price_book()
        ).unpriced_items
    }
    assert not left & PRICED_ITEMS
    without = {
        each.what
        for estimate in (price_stacks(templates()), price_graphs(caller_graphs()))
        for each in estimate.unpriced_items
    }
    assert without >= PRICED_ITEMS


def test_the_total_contains_the_fixed_cost_of_the_azure_edge() -> None:
    estimate = price_graphs(caller_graphs())
    assert item_cost(estimate, "waf-gateway-capacity-unit").cases == pytest.approx([20 * 730 * 0.0144] * 3)
    assert item_cost(estimate, "azure-load-balancer-hour").cases == pytest.approx([3 * 730 * 0.025] * 3)
    assert not item_cost(price_graphs(graphs()), "azure-load-balancer-hour").peak, "no caller is outside the network"


def test_azure_audio_capacity_is_that_of_its_transcription_services() -> None:
    audio = estimate_azure_audio(
        AZURE.azure, resolve_design_load(AZURE.model_copy(update={"load": None})), has_load=False
    )
    assert "voxtral-cells 2-4 replicas" in audio.assumptions
    assert "qwen" not in audio.assumptions
    assert "speech" not in audio.assumptions


def test_azure_audio_is_limited_by_the_smallest_tier() -> None:
    production = voice_blueprint.load(ROOT / "tests/deployments/production-azure.yaml")
    load = resolve_design_load(production.model_copy(update={"load": None}))
    audio = estimate_azure_audio(production.azure, load, has_load=False)
    assert audio.hours is not None
    # 26 gateway pods of 107 calls with random arrivals are the smallest tier; the engines support 3,551 calls.
    assert audio.hours.low == pytest.approx(1_000 * 0.7 * 730)
    assert audio.hours.peak == calculate_peak_calls(load) * 730 <= 2_500 * 0.7 * 730
    assert "vad 1,000-2,500 calls" in audio.assumptions


def test_the_load_option_replaces_the_azure_capacity() -> None:
    load = CallLoad(calls=300, peak_factor=2)
    audio = estimate_azure_audio(AZURE.azure, load, has_load=True)
    assert audio.hours is not None
    assert (audio.hours.expected, audio.hours.peak) == (300 * 730, 600 * 730)
    assert "upper limits by memory" not in audio.assumptions


def test_cost_per_audio_hour_is_the_quotient() -> None:
    audio = AudioUsage(Amount(10, 20, 0), "")
    assert audio.calculate_usd_per_hour(Amount(5, 5, 5)) == Amount(0.5, 0.25, 0)
    assert NO_AUDIO.calculate_usd_per_hour(Amount(5, 5, 5)) is None


def test_the_price_book_contains_the_catalogue_prices() -> None:
    rows: Mapping[str, catalog.InstanceType] = catalog.instance_types()
    book = load_price_book()
    for name, row in rows.items():
        for region, usd in row.usd_per_hour.items():
            found = book.find_price(name, region, exact=True)
            assert found is not None
            assert found.usd == usd
    assert book.find_price("c8g.12xlarge", "eu-west-3", exact=True) is None
