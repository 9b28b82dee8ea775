"""Definition of a rule: a function over a stack's resources that yields violations."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from voice_blueprint.azure.contract import ClusterFlow, build_cluster_flows
from voice_blueprint.file.model.azure import Azure
from voice_blueprint.file.model.deployment import Deployment
from voice_stacks.azure.policy.values import Value


@dataclass(frozen=True)
class Resource:
    """A resource in a stack.

    Attributes:
        type: Pulumi's type token, such as ``kubernetes:apps/v1:Deployment``.
        props: Inputs from the program. If the whole stack is evaluated, they are merged with the provider's outputs.
        dependencies: URNs of the resources that each property is computed from.
    """

    urn: str
    type: str
    name: str
    props: Value = field(default_factory=Value)
    dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Stack:
    """The resources in a stack and, if known, the deployment that they were created from.

    Instances are compared by identity, so that the pods of a stack can be cached (`pods.pods`).
    """

    resources: tuple[Resource, ...]
    deployment: Deployment | None = None

    def find_resources(self, *kinds: str) -> Iterator[Resource]:
        """Yield the resources whose type has one of these suffixes, such as ``:AgentPool``."""
        return (resource for resource in self.resources if resource.type.endswith(kinds))

    @property
    def azure(self) -> Azure | None:
        """The section of the deployment file that the stack was created from, if known."""
        return self.deployment.azure_section if self.deployment else None

    @property
    def flows(self) -> tuple[ClusterFlow, ...]:
        """Flows that the contract permits between pods."""
        azure = self.azure
        return build_cluster_flows(
            callers=bool(azure and azure.callers),
            agents=bool(azure and azure.agents),
            archive=bool(azure and azure.archive),
            peers=bool(azure and azure.has_peers),
        )


@dataclass(frozen=True)
class Violation:
    """A violation of a rule by a resource."""

    urn: str
    message: str


RuleFunction = Callable[[Stack], Iterator[Violation]]
"""Function that yields the violations in a stack."""


@dataclass(frozen=True)
class Rule:
    """A policy.

    Attributes:
        summary: The requirement in one sentence.
        remedy: Action that fixes a violation; empty if each message contains its own remedy.
        source: Source of the rule.
        requires_stack: Whether the policy requires the whole stack instead of one resource.
    """

    name: str
    summary: str
    remedy: str
    source: str
    find_violations: RuleFunction
    requires_stack: bool = False


def rule(name: str, summary: str, *, remedy: str, source: str) -> Callable[[RuleFunction], Rule]:
    """Return a decorator that makes a rule from a function over one resource.

    A violation stops an update before the resource is created.
    """
    return lambda find_violations: Rule(name, summary, remedy, source, find_violations)


def stack_rule(name: str, summary: str, *, remedy: str, source: str) -> Callable[[RuleFunction], Rule]:
    """Return a decorator that makes a rule from a function over all resources and their dependencies."""
    return lambda find_violations: Rule(name, summary, remedy, source, find_violations, requires_stack=True)
