"""Known rejections by Azure's services that are not part of Azure's definitions, and their evaluation.

`voice_sandbox/azure/definitions.json` contains names, values, ranges and patterns. A service also rejects combinations:
two mutually exclusive properties, two rules with the same priority, a reference to a missing resource, an unsupported
change. Each row of these tables is one such rejection, with a public report of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from voice_sandbox.azure.diff import Step
from voice_sandbox.azure.graph import Graph, Resource, shorten_type
from voice_sandbox.azure.refusals import (
    cluster_network,
    clusters,
    gateways,
    links,
    monitoring,
    networks,
    pools,
    stores,
    unchangeable,
)
from voice_sandbox.azure.refusals.request import Request, RequestPart
from voice_sandbox.azure.refusals.row import RejectionRule
from voice_sandbox.changes import OpType

REJECTION_RULES: tuple[RejectionRule, ...] = (
    *pools.REJECTION_RULES,
    *clusters.REJECTION_RULES,
    *cluster_network.REJECTION_RULES,
    *networks.REJECTION_RULES,
    *gateways.REJECTION_RULES,
    *stores.REJECTION_RULES,
    *links.REJECTION_RULES,
    *monitoring.REJECTION_RULES,
    *unchangeable.REJECTION_RULES,
)


@dataclass(frozen=True)
class Rejection:
    """The response of a service that rejects a resource.

    Attributes:
        urn: URN of the resource.
        resource: Human-readable type and name.
        refusal: Name of the row.
        code: Error code of the response.
        message: The problem, with values and limits.
        remedy: The solution.
        source: Public report of the rejection.
    """

    urn: str
    resource: str
    refusal: str
    code: str
    message: str
    remedy: str
    source: str

    def summary(self) -> str:
        """Return a one-line description."""
        return f"{self.resource}: {self.code}: {self.message}; {self.remedy} ({self.source})"


def find_rejections(graphs: Iterable[Graph], steps: Sequence[Step] = ()) -> list[Rejection]:
    """Evaluate all requests, and return the response to each rejected one, in the order of the requests.

    Args:
        graphs: Simulated ups of all projects, in the order of their creation.
        steps: Changes since earlier runs; a resource without an earlier run is created.
    """
    updates = {step.urn: step for step in steps if step.old and step.op in {OpType.UPDATE, OpType.SAME}}
    later_deletions = [step.old for step in steps if step.old and _is_deleted_later(step)]
    earlier: list[Resource] = []
    answers: list[Rejection] = []
    for graph in graphs:
        for resource in graph.iter_managed_resources():
            for row, problem in _evaluate_resource(
                resource, updates.get(resource.urn), earlier, later_deletions, graph
            ):
                message = f"{row.reason}: {problem}"
                answers.append(
                    Rejection(resource.urn, resource.label, row.name, row.code, message, row.remedy, row.source)
                )
            earlier.append(resource)
    return answers


def _is_deleted_later(step: Step) -> bool:
    """Return True if Pulumi deletes the previous resource only after all creations and updates.

    Among replaced resources, this applies to those with generated names, which are role assignments. A role assignment
    that is replaced only because of another resource is deleted before that resource.
    """
    is_created_first = shorten_type(step.resource.type) == links.GRANT and not step.replace_reason
    return step.op is OpType.DELETE or (step.op is OpType.REPLACE and is_created_first)


def _evaluate_resource(
    resource: Resource,
    update: Step | None,
    earlier: list[Resource],
    later_deletions: list[Resource],
    graph: Graph,
) -> Iterator[tuple[RejectionRule, str]]:
    old = update.old if update else None
    bodies = _list_evaluated_parts(shorten_type(resource.type), RequestPart(resource.inputs))
    previous_bodies = (
        {body.path: body for _, body in _list_evaluated_parts(shorten_type(resource.type), RequestPart(old.inputs))}
        if old
        else {}
    )
    dependencies = None
    for kind, body in bodies:
        for row in REJECTION_RULES:
            if row.kind == kind:
                dependencies = dependencies or frozenset(graph.find_all_dependencies(resource.urn))
                request = Request(
                    resource,
                    body,
                    previous_bodies.get(body.path),
                    earlier,
                    later_deletions,
                    dependencies,
                    update.changes if update else (),
                )
                yield from ((row, problem) for problem in row.evaluate(request))


def _list_evaluated_parts(kind: str, body: RequestPart) -> list[tuple[str, RequestPart]]:
    """Return the parts of a request that rows evaluate. Pools inside a cluster are treated like separate pools."""
    within = body.get_parts("agentPoolProfiles") if kind == clusters.CLUSTER else []
    return [(kind, body), *((clusters.POOL, pool) for pool in within)]
