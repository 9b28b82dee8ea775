"""The estimate of a deployment: its templates and its Pulumi graph, priced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Self

from blueprint.aws import names
from blueprint.file.model.agents import AgentPods, AwsAgents, Endpoint
from blueprint.file.model.azure import Azure
from blueprint.file.model.deployment import Deployment
from blueprint.file.model.load import CallLoad
from blueprint.hosts import NO_DIGEST, images_of
from ops.cost import aws, azure, conversations, traffic
from ops.cost.audio import aws_audio, aws_calls, azure_audio, azure_calls, azure_place, expected_place
from ops.cost.model import EXPECTED_UTILISATION, Audio, Conversations, Elsewhere, Estimate, Line, Unpriced, Use
from ops.cost.prices import PriceBook
from ops.synthesis import templates

if TYPE_CHECKING:
    from sandbox.azure.graph import Graph

Cloud = Literal["aws", "azure"]
NEW_TYPE = "no rule of ops/cost knows this type"
NO_LOAD = "no traffic is priced: type `load` in the file"
SPOT = "spot hosts are priced On-Demand, which is their ceiling"
POOLS = "pools"


@dataclass(frozen=True)
class Assumptions:
    """What the templates do not say.

    Attributes:
        utilisation: Place of the expected size between the smallest and the largest, 0 to 1; ``None`` for the one
            that the typed load asks for.
    """

    utilisation: float | None = None


@dataclass(frozen=True)
class Rented:
    """One resource and what it rents; ``known`` is false for a type without a rule."""

    tier: str
    name: str
    kind: str
    uses: tuple[Use, ...]
    by_use: tuple[tuple[str, str | None], ...]
    free: bool
    known: bool

    @classmethod
    def by(cls, rules: ModuleType, tier: str, name: str, kind: str, *arguments: Any) -> Self:  # noqa: ANN401  of its rule
        """Return what the rules of a cloud, `ops.cost.aws` or `ops.cost.azure`, say of a resource."""
        uses = tuple(rules.PRICED[kind](*arguments)) if kind in rules.PRICED else ()
        known = kind in rules.PRICED or kind in rules.BY_USE or kind in rules.FREE
        return cls(tier, name, kind, uses, rules.BY_USE.get(kind, ()), free=kind in rules.FREE, known=known)


@dataclass(frozen=True)
class Half:
    """What one cloud's half of a deployment rents."""

    cloud: Cloud
    region: str
    rented: tuple[Rented, ...]
    audio: Audio
    notes: tuple[str, ...]
    conversations: Conversations | None = None

    @property
    def items(self) -> set[str]:
        """Everything that needs a price."""
        uses = {use.item for resource in self.rented for use in resource.uses}
        return uses | {item for resource in self.rented for _, item in resource.by_use if item}


def halves(deployment: Deployment, assumed: Assumptions) -> list[Half]:
    """Synthesize a deployment that has passed its checks; return what its halves rent.

    Images without a digest count as present: hosts that wait for one would be priced at 0.

    Raises:
        EngineError: A Pulumi program fails.
    """
    found = []
    waiting = [image for image in images_of(deployment) if image not in deployment.images]
    notes = (f"priced as if the {len(waiting)} images without a digest were pushed",) if waiting else ()
    for regional in _sharing_load(deployment) if deployment.aws_half else ():
        aws_half = regional.aws
        place = assumed.utilisation
        if place is None:
            place = expected_place(aws_half, regional.load) if regional.load else EXPECTED_UTILISATION
        rented = aws_rented(regional, templates(with_images(regional)), place)
        rented += traffic_rented(regional, place) + _endpoints(aws_half.agents)
        audio = aws_audio(aws_half, regional.load, place)
        spot = any(fleet.purchase.option == "spot" for fleet in aws_half.asr)
        found.append(
            Half(
                "aws",
                aws_half.region,
                tuple(rented),
                audio,
                notes + (NO_LOAD,) * (deployment.load is None) + (SPOT,) * spot,
                conversations.of_aws(aws_half, regional.load, place),
            )
        )
    if deployment.azure_half:
        from sandbox.azure.rehearsal import Rehearsal  # noqa: PLC0415  a file without this half needs no Pulumi

        azure_half = deployment.azure_half
        with Rehearsal.of(deployment) as rehearsal:
            graphs = [done.up.graph for done in rehearsal.run()]
        # Callers of a file with both halves come through the AWS half.
        load = None if deployment.aws_half else deployment.load
        place = assumed.utilisation
        if place is None:
            place = azure_place(azure_half, load) if load else EXPECTED_UTILISATION
        rented = azure_rented(graphs, place)
        if load:
            rented = [*_without_traffic(rented), *azure_traffic(azure_half, load, place)]
        rented += _endpoints(azure_half.agents)
        audio, held = azure_audio(azure_half, load, place), conversations.of_azure(azure_half, load, place)
        spot = any(pool.purchase.option == "spot" for pool in azure_half.pools)
        said = notes + (NO_LOAD,) * (deployment.load is None) + (SPOT,) * spot
        found.append(Half("azure", azure_half.location, tuple(rented), audio, said, held))
    return found


def _sharing_load(deployment: Deployment) -> list[Deployment]:
    """Return the AWS half in each region, with an equal part of the calls: that is the month without a loss."""
    regions = deployment.in_regions()
    if not deployment.load:
        return list(regions)
    part = deployment.load.model_copy(update={"calls": max(1, round(deployment.load.calls / len(regions)))})
    return [regional.model_copy(update={"load": part}) for regional in regions]


def with_images(deployment: Deployment) -> Deployment:
    """Return the deployment as if every image had been pushed."""
    missing = {image: NO_DIGEST for image in images_of(deployment) if image not in deployment.images}
    return deployment.model_copy(update={"images": {**deployment.images, **missing}})


def aws_rented(deployment: Deployment, stacks: Mapping[str, Mapping[str, Any]], utilisation: float) -> list[Rented]:
    """Return every resource of the templates, with what it rents."""
    all_templates = aws.Templates(stacks, utilisation)
    prefix = names.stack(deployment, "")
    found = [
        Rented.by(aws, stack.removeprefix(prefix), name, kind, all_templates, stack, properties)
        for stack, name, kind, properties in all_templates.resources()
    ]
    return found if deployment.load is None else _without_traffic(found)


def _without_traffic(found: Iterable[Rented]) -> list[Rented]:
    return [replace(each, by_use=tuple(use for use in each.by_use if use[0] not in traffic.PRICED)) for each in found]


def traffic_rented(deployment: Deployment, utilisation: float) -> list[Rented]:
    """Return what the typed load uses of AWS beside hosts; nothing without one."""
    load, half = deployment.load, deployment.aws
    if load is None:
        return []
    calls = aws_calls(half, load, utilisation)
    theirs = _traffic(conversations.aws_uses(half, load, utilisation), conversations.AGENTS)
    return _traffic(traffic.aws_uses(half, load, calls, utilisation)) + theirs


def azure_traffic(azure_half: Azure, load: CallLoad, utilisation: float) -> list[Rented]:
    """Return what the typed load uses of Azure beside nodes."""
    calls = azure_calls(azure_half, load, utilisation)
    theirs = _traffic(conversations.azure_uses(azure_half, load, utilisation), conversations.AGENTS)
    return _traffic(traffic.azure_uses(azure_half, load, calls, utilisation)) + theirs


def _traffic(uses: Iterable[tuple[str, Use]], tier: str = "traffic") -> list[Rented]:
    return [Rented(tier, use.item, kind, (use,), (), free=False, known=True) for kind, use in uses]


def _endpoints(agents: AwsAgents | AgentPods | None) -> list[Rented]:
    """Return the engines of conversations that run elsewhere: whoever runs them names their price."""
    engines = [each for each in (agents.chat, agents.speech) if isinstance(each, Endpoint)] if agents else []
    return [
        Rented(
            conversations.AGENTS,
            each.model,
            each.model,
            (),
            ((f"{each.url}, an endpoint elsewhere whose price is not known here", None),),
            free=False,
            known=True,
        )
        for each in engines
    ]


def azure_rented(graphs: Iterable[Graph], utilisation: float) -> list[Rented]:
    """Return every resource that the Pulumi programs create, with what it rents."""
    from sandbox.azure.graph import short_type  # noqa: PLC0415

    return [
        Rented.by(azure, _tier(graph, kind), resource.name, kind, resource.inputs, utilisation)
        for graph in graphs
        for resource in graph.managed()
        for kind in [short_type(resource.type)]
    ]


def _tier(graph: Graph, kind: str) -> str:
    return POOLS if kind == "containerservice:AgentPool" else graph.project.removeprefix("voice-")


def price(half: Half, book: PriceBook) -> Estimate:
    """Price what a half rents; what has no price is listed once for each type and item."""
    lines: list[Line] = []
    missing: dict[tuple[str, str], Use] = {}
    unpriced: dict[Unpriced, None] = {}
    for resource in half.rented:
        if not resource.known:
            unpriced[Unpriced(resource.kind, "everything", NEW_TYPE)] = None
        for use in resource.uses:
            found = book.find(use.item, half.region, exact=use.exact)
            if found:
                lines.append(Line(resource.tier, resource.name, resource.kind, found, use.amount))
            else:
                before = missing.get((resource.kind, use.item))
                missing[resource.kind, use.item] = replace(use, amount=before.amount + use.amount) if before else use
        for what, item in resource.by_use:
            unit = book.find(item, half.region) if item else None
            rate = f", {unit.usd:g} USD per {unit.unit}" if unit else ""
            unpriced[Unpriced(resource.kind, what, f"by use{rate}")] = None
    without = tuple(Unpriced(kind, item, _why(use, half.region)) for (kind, item), use in missing.items())
    free = tuple(sorted({resource.kind for resource in half.rented if resource.free}))
    hosts = tuple(_elsewhere(use, book, half.region) for use in missing.values() if use.exact)
    left = without + tuple(unpriced)
    return Estimate(
        half.cloud, half.region, half.audio, tuple(lines), left, free, half.notes, hosts, half.conversations
    )


def _elsewhere(use: Use, book: PriceBook, region: str) -> Elsewhere:
    known = book.nearest(use.item, region)
    usd = [price.usd_per_month for price in known]
    regions = tuple(price.region for price in known)
    return Elsewhere(use.item, regions, use.amount * min(usd), use.amount * max(usd))


def _why(use: Use, region: str) -> str:
    where = f" in {region}" if use.exact else ""
    return f"{use.amount.low:,g} to {use.amount.peak:,g} all month; no dated list price{where} is known"
