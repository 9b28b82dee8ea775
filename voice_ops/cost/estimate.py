"""Estimate of a deployment's cost from CloudFormation templates and Pulumi resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Self

from voice_blueprint.aws import names
from voice_blueprint.day import resolve_design_load
from voice_blueprint.file.model.agents import AgentPods, AwsAgents, Endpoint
from voice_blueprint.file.model.azure import Azure
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.load import CallLoad
from voice_blueprint.hosts import add_placeholder_digests, list_required_images
from voice_ops.cost import aws, azure, conversations, traffic
from voice_ops.cost.audio import estimate_aws_audio, estimate_aws_calls, estimate_azure_audio, estimate_azure_calls
from voice_ops.cost.model import (
    EXPECTED_UTILIZATION,
    AudioUsage,
    ConversationUsage,
    CostLine,
    Estimate,
    ExpectedSizes,
    ResourceUsage,
    UnavailableHosts,
    UnpricedItem,
)
from voice_ops.cost.prices import PriceBook
from voice_ops.synthesis import synthesize_templates

if TYPE_CHECKING:
    from voice_sandbox.azure.graph import Graph

Cloud = Literal["aws", "azure"]
NO_RULE_REASON = "voice_ops/cost has no rule for this type"
NO_LOAD_NOTE = "traffic is not priced: the file has no `load`"
SPOT_NOTE = "spot hosts are priced as On-Demand, the upper limit of their price"
POOLS_TIER = "pools"


@dataclass(frozen=True)
class Assumptions:
    """Assumptions about costs that cannot be derived from the templates.

    Attributes:
        utilization: Position of the expected size between minimum and maximum, 0 to 1; ``None`` for the mean sizes of
            the designed day.
    """

    utilization: float | None = None


@dataclass(frozen=True)
class ChargedResource:
    """A resource and its charged items.

    Attributes:
        usage_charges: Charges for usage whose amount is unknown: description, and item of the price book, if any.
        has_rule: Whether this package has a rule for the resource's type.
    """

    tier: str
    name: str
    kind: str
    uses: tuple[ResourceUsage, ...]
    usage_charges: tuple[tuple[str, str | None], ...]
    is_free: bool
    has_rule: bool

    @classmethod
    def from_rules(cls, rules: ModuleType, tier: str, name: str, kind: str, *arguments: Any) -> Self:  # noqa: ANN401  arguments of the rule
        """Create a resource with the items that the rules of `voice_ops.cost.aws` or `voice_ops.cost.azure` charge."""
        uses = tuple(rules.PRICING_RULES[kind](*arguments)) if kind in rules.PRICING_RULES else ()
        has_rule = kind in rules.PRICING_RULES or kind in rules.ITEMS_BY_TYPE or kind in rules.FREE_RESOURCE_TYPES
        items = rules.ITEMS_BY_TYPE.get(kind, ())
        return cls(tier, name, kind, uses, items, is_free=kind in rules.FREE_RESOURCE_TYPES, has_rule=has_rule)


@dataclass(frozen=True)
class ChargedSection:
    """Priced items in one section of a deployment."""

    cloud: Cloud
    region: str
    charged_resources: tuple[ChargedResource, ...]
    audio: AudioUsage
    notes: tuple[str, ...]
    conversations: ConversationUsage | None = None

    @property
    def charged_items(self) -> set[str]:
        """All items that need a price."""
        uses = {use.item for resource in self.charged_resources for use in resource.uses}
        return uses | {item for resource in self.charged_resources for _, item in resource.usage_charges if item}


def collect_charged_sections(deployment: Deployment, assumptions: Assumptions) -> list[ChargedSection]:
    """Synthesize a deployment that has passed its checks, and return the charged items in each section.

    Images without a digest are assumed to exist, since their hosts would otherwise cost 0.

    Raises:
        EngineError: A Pulumi program fails.
    """
    resources = []
    waiting = [image for image in list_required_images(deployment) if image not in deployment.images]
    notes: tuple[str, ...] = (f"{len(waiting)} images without a digest are assumed to be pushed",) if waiting else ()
    notes += (NO_LOAD_NOTE,) * (deployment.load is None)
    for regional in _create_regional_deployments(deployment) if deployment.aws_section else ():
        aws_section, load = regional.aws, resolve_design_load(regional)
        expected, added_notes = _calculate_expected_sizes(regional, assumptions)
        rented = collect_aws_resources(regional, synthesize_templates(add_placeholder_digests(regional)), expected)
        rented += collect_aws_traffic_resources(regional, expected.default_utilization) + _list_external_engines(
            aws_section.agents
        )
        audio = estimate_aws_audio(aws_section, load, has_load=regional.load is not None)
        added_notes += (SPOT_NOTE,) * any(fleet.purchase.option == "spot" for fleet in aws_section.asr)
        conversation_usage = conversations.estimate_aws_conversations(aws_section, load)
        resources.append(
            ChargedSection("aws", aws_section.region, tuple(rented), audio, notes + added_notes, conversation_usage)
        )
    if deployment.azure_section:
        from voice_sandbox.rehearsals.azure import Rehearsal  # noqa: PLC0415  a file without this section needs no Pulumi

        azure_section = deployment.azure_section
        with Rehearsal.from_deployment(deployment) as rehearsal:
            graphs = [rehearsed.up.graph for rehearsed in rehearsal.run()]
        azure_only = deployment
        if deployment.aws_section:  # callers of a file with both sections use the AWS section
            azure_only = deployment.model_copy(update={"aws_section": None, "load": None})
        try:
            azure_load = resolve_design_load(azure_only)
        except ValueError:
            azure_load = None  # no service accepts audio
        expected, added_notes = _calculate_expected_sizes(azure_only, assumptions)
        rented = collect_azure_resources(graphs, expected)
        if azure_only.load:
            rented = [
                *_remove_traffic_charges(rented),
                *collect_azure_traffic_resources(azure_section, azure_only.load, expected.default_utilization),
            ]
        rented += _list_external_engines(azure_section.agents)
        audio = estimate_azure_audio(azure_section, azure_load, has_load=azure_only.load is not None)
        conversation_usage = conversations.estimate_azure_conversations(azure_section, azure_load)
        added_notes += (SPOT_NOTE,) * any(pool.purchase.option == "spot" for pool in azure_section.pools)
        resources.append(
            ChargedSection(
                "azure", azure_section.location, tuple(rented), audio, notes + added_notes, conversation_usage
            )
        )
    return resources


def _calculate_expected_sizes(
    deployment: Deployment, assumptions: Assumptions
) -> tuple[ExpectedSizes, tuple[str, ...]]:
    """Return the expected sizes, and a note if the designed day cannot be simulated."""
    if assumptions.utilization is not None:
        return ExpectedSizes(assumptions.utilization), ()
    from voice_ops.cost.day import simulate_day  # noqa: PLC0415  not needed with --utilization

    try:
        return simulate_day(deployment).expected_sizes, ()
    except ValueError as error:
        note = (
            f"expected is {EXPECTED_UTILIZATION:.0%} of the way from low to peak, since the day cannot be simulated: "
            f"{error}"
        )
        return ExpectedSizes(EXPECTED_UTILIZATION), (note,)


def _create_regional_deployments(deployment: Deployment) -> list[Deployment]:
    """Return the deployment in each region with an equal share of the calls, for a month without an outage."""
    regions = deployment.split_by_region()
    if not deployment.load:
        return list(regions)
    part = deployment.load.model_copy(update={"calls": max(1, round(deployment.load.calls / len(regions)))})
    return [regional.model_copy(update={"load": part}) for regional in regions]


def collect_aws_resources(
    deployment: Deployment, stacks: Mapping[str, Mapping[str, Any]], expected: ExpectedSizes
) -> list[ChargedResource]:
    """Return every resource in the templates with its charged items."""
    all_templates = aws.Templates(stacks, expected)
    prefix = names.build_stack_name(deployment, "")
    resources = [
        ChargedResource.from_rules(aws, stack.removeprefix(prefix), name, kind, all_templates, stack, properties)
        for stack, name, kind, properties in all_templates.iter_resources()
    ]
    return resources if deployment.load is None else _remove_traffic_charges(resources)


def _remove_traffic_charges(resources: Iterable[ChargedResource]) -> list[ChargedResource]:
    return [
        replace(each, usage_charges=tuple(use for use in each.usage_charges if use[0] not in traffic.PRICED_ITEMS))
        for each in resources
    ]


def collect_aws_traffic_resources(deployment: Deployment, utilization: float) -> list[ChargedResource]:
    """Return the AWS usage that the load causes in addition to hosts. The result is empty without a load."""
    load, section = deployment.load, deployment.aws
    if load is None:
        return []
    calls = estimate_aws_calls(section, load)
    conversation_traffic = _create_traffic_resources(
        conversations.calculate_aws_usage(section, load), conversations.AGENTS_TIER
    )
    stored = traffic.calculate_image_storage_use(
        list_required_images(deployment.model_copy(update={"azure_section": None}))
    )
    return (
        _create_traffic_resources((stored, *traffic.calculate_aws_usage(section, load, calls, utilization)))
        + conversation_traffic
    )


def collect_azure_traffic_resources(azure_section: Azure, load: CallLoad, utilization: float) -> list[ChargedResource]:
    """Return the Azure usage that the load causes in addition to nodes."""
    calls = estimate_azure_calls(azure_section, load)
    conversation_traffic = _create_traffic_resources(
        conversations.calculate_azure_usage(azure_section, load), conversations.AGENTS_TIER
    )
    return (
        _create_traffic_resources(traffic.calculate_azure_usage(azure_section, load, calls, utilization))
        + conversation_traffic
    )


def _create_traffic_resources(
    uses: Iterable[tuple[str, ResourceUsage]], tier: str = "traffic"
) -> list[ChargedResource]:
    return [ChargedResource(tier, use.item, kind, (use,), (), is_free=False, has_rule=True) for kind, use in uses]


def _list_external_engines(agents: AwsAgents | AgentPods | None) -> list[ChargedResource]:
    """Return the external engines for conversations. Their operators set the prices, which are unknown."""
    engines = [each for each in (agents.chat, agents.speech) if isinstance(each, Endpoint)] if agents else []
    return [
        ChargedResource(
            conversations.AGENTS_TIER,
            each.model,
            each.model,
            (),
            ((f"{each.url}, an external endpoint whose price is unknown", None),),
            is_free=False,
            has_rule=True,
        )
        for each in engines
    ]


def collect_azure_resources(graphs: Iterable[Graph], expected: ExpectedSizes) -> list[ChargedResource]:
    """Return every resource in the Pulumi programs with its charged items."""
    from voice_sandbox.azure.graph import shorten_type  # noqa: PLC0415

    return [
        ChargedResource.from_rules(
            azure, _find_resource_tier(graph, kind), resource.name, kind, resource.inputs, expected
        )
        for graph in graphs
        for resource in graph.iter_managed_resources()
        for kind in [shorten_type(resource.type)]
    ]


def _find_resource_tier(graph: Graph, kind: str) -> str:
    return POOLS_TIER if kind == "containerservice:AgentPool" else graph.project.removeprefix("voice-")


def price_section(section: ChargedSection, book: PriceBook) -> Estimate:
    """Calculate the cost of a section. Items without a price are listed once per type and item."""
    lines: list[CostLine] = []
    missing: dict[tuple[str, str], ResourceUsage] = {}
    unpriced: dict[UnpricedItem, None] = {}
    for resource in section.charged_resources:
        if not resource.has_rule:
            unpriced[UnpricedItem(resource.kind, "everything", NO_RULE_REASON)] = None
        for use in resource.uses:
            price = book.find_price(use.item, section.region, exact=use.is_exact)
            if price:
                lines.append(CostLine(resource.tier, resource.name, resource.kind, price, use.amount))
            else:
                before = missing.get((resource.kind, use.item))
                missing[resource.kind, use.item] = replace(use, amount=before.amount + use.amount) if before else use
        for item_name, item in resource.usage_charges:
            unit = book.find_price(item, section.region) if item else None
            rate = f", {unit.usd:g} USD per {unit.unit}" if unit else ""
            unpriced[UnpricedItem(resource.kind, item_name, f"charged by use{rate}")] = None
    unpriced_uses = tuple(
        UnpricedItem(kind, item, _format_unpriced_reason(use, section.region)) for (kind, item), use in missing.items()
    )
    free = tuple(sorted({resource.kind for resource in section.charged_resources if resource.is_free}))
    hosts = tuple(_create_unavailable_hosts(use, book, section.region) for use in missing.values() if use.is_exact)
    all_unpriced = unpriced_uses + tuple(unpriced)
    return Estimate(
        section.cloud,
        section.region,
        section.audio,
        tuple(lines),
        all_unpriced,
        free,
        section.notes,
        hosts,
        section.conversations,
    )


def _create_unavailable_hosts(use: ResourceUsage, book: PriceBook, region: str) -> UnavailableHosts:
    nearest_prices = book.find_nearest_prices(use.item, region)
    usd = [price.usd_per_month for price in nearest_prices]
    regions = tuple(price.region for price in nearest_prices)
    return UnavailableHosts(use.item, regions, use.amount * min(usd), use.amount * max(usd))


def _format_unpriced_reason(use: ResourceUsage, region: str) -> str:
    region_text = f" in {region}" if use.is_exact else ""
    return f"{use.amount.low:,g} to {use.amount.peak:,g} for the whole month; no list price{region_text} is known"
