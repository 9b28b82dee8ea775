"""What a rule is: a function over the resources of a stack that yields what is wrong."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from blueprint.azure.contract import ClusterFlow, cluster_flows
from blueprint.file.model.deployment import Deployment
from stacks.azure.policy.values import Value


@dataclass(frozen=True)
class Resource:
    """One resource of a stack.

    Attributes:
        type: Pulumi's type token, such as ``kubernetes:apps/v1:Deployment``.
        props: What the program asked for; for a whole stack, with what the provider answered.
        needs: URNs that each property is computed from.
    """

    urn: str
    type: str
    name: str
    props: Value = field(default_factory=Value)
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Stack:
    """The resources of one stack, and the deployment that they were made from, where it is known.

    Each is its own: rules ask for the same pods of one again and again (`pods.pods`).
    """

    resources: tuple[Resource, ...]
    deployment: Deployment | None = None

    def of(self, *kinds: str) -> Iterator[Resource]:
        """Yield the resources whose type ends with one of these, such as ``:AgentPool``."""
        return (resource for resource in self.resources if resource.type.endswith(kinds))

    @property
    def flows(self) -> tuple[ClusterFlow, ...]:
        """What the contract lets pods of the deployment send."""
        azure = self.deployment.azure_half if self.deployment else None
        return cluster_flows(callers=bool(azure and azure.callers), agents=bool(azure and azure.agents))


@dataclass(frozen=True)
class Found:
    """One place where a rule does not hold: which resource, and what is wrong with it, with the numbers."""

    urn: str
    message: str


Examine = Callable[[Stack], Iterator[Found]]
"""Yields what is wrong with a stack."""


@dataclass(frozen=True)
class Rule:
    """One policy.

    Attributes:
        about: The rule in one sentence, as it reads when it holds.
        remedy: What to do; empty where each finding has its own.
        source: Where the rule comes from.
        sees_stack: Whether it needs the whole stack, not one resource.
    """

    name: str
    about: str
    remedy: str
    source: str
    examine: Examine
    sees_stack: bool = False


def rule(name: str, about: str, *, remedy: str, source: str) -> Callable[[Examine], Rule]:
    """Make a rule of a function over one resource: it stops an update before the resource is made."""
    return lambda examine: Rule(name, about, remedy, source, examine)


def stack_rule(name: str, about: str, *, remedy: str, source: str) -> Callable[[Examine], Rule]:
    """Make a rule of a function over all resources, and over what each is computed from."""
    return lambda examine: Rule(name, about, remedy, source, examine, sees_stack=True)
