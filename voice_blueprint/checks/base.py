"""Definition of a check."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ParamSpec

from voice_blueprint.checks.azure.cluster import Cluster, build_configured_cluster
from voice_blueprint.checks.engine_gpus import EngineWithGpu, iter_cluster_engines, iter_deployment_engines
from voice_blueprint.engines.sizing.result import DoesNotFitError
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.source import Location, SourceMap


class Severity(StrEnum):
    """Severity of a finding."""

    ERROR = "error"
    """The deployment cannot work, so nothing is synthesized."""
    WARNING = "warning"
    """The deployment works, but the setting may be unintended."""
    INFO = "info"
    """The finding is useful to know before a deploy."""


@dataclass(frozen=True)
class Violation:
    """A value that violates a check.

    Attributes:
        location: Location of the value in the deployment file, or the URN of a resource.
        message: The problem, with its numbers.
        remedy: The solution.
    """

    location: Location
    message: str
    remedy: str


def format_location(location: Location) -> str:
    """Return a location in the file in readable form, such as ``aws.asr[1].hosts``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")


DeploymentCheckFunction = Callable[[Deployment], Iterator[Violation]]
"""Function that yields the violations of a rule in a deployment."""
ClusterCheckFunction = Callable[[Cluster], Iterator[Violation]]
"""Function that yields the violations of a rule in a cluster. The cluster is described by the deployment file or by the
resources of the Pulumi programs."""


@dataclass(frozen=True)
class Check:
    """A rule about a deployment.

    Attributes:
        description: The rule in one sentence.
        source: Source of the rule.
        check_cluster: Evaluation of the rule on a cluster; policies apply it to the resources of the Pulumi programs.
            ``None`` for a rule that only applies to the file.
        is_acceptable: Whether the deployment file may accept a violation. Violations that prevent the rendering of
            templates cannot be accepted.
    """

    id: str
    level: Severity
    description: str
    source: str
    check_deployment: DeploymentCheckFunction
    check_cluster: ClusterCheckFunction | None = None
    is_acceptable: bool = True


def deployment_check(
    id_: str, description: str, *, source: str, level: Severity = Severity.ERROR, is_acceptable: bool = True
) -> Callable[[DeploymentCheckFunction], Check]:
    """Return a decorator that creates a check from a function over deployments."""
    return lambda examine: Check(id_, level, description, source, examine, is_acceptable=is_acceptable)


def cluster_check(
    id_: str, description: str, *, source: str, is_acceptable: bool = True
) -> Callable[[ClusterCheckFunction], Check]:
    """Return a decorator that creates a check of level error from a function over clusters.

    The function evaluates clusters of the deployment file, and clusters that Pulumi programs have rendered.
    """

    def decorate(check_function: ClusterCheckFunction) -> Check:
        def examine(deployment: Deployment) -> Iterator[Violation]:
            # Two engines of a pod may have the same problem at the same location.
            return iter(dict.fromkeys(check_function(build_configured_cluster(deployment.azure))))

        return Check(id_, Severity.ERROR, description, source, examine, check_function, is_acceptable)

    return decorate


EngineCheckFunction = Callable[[Iterable[EngineWithGpu]], Iterator[Violation]]
"""Function that yields the violations of a rule by engines on GPUs, on either cloud."""


def engine_check(
    id_: str, description: str, *, source: str, level: Severity = Severity.ERROR, is_acceptable: bool = True
) -> Callable[[EngineCheckFunction], Check]:
    """Return a decorator that creates a check from a function over engines.

    Errors are also evaluated on the resources of the Pulumi programs.
    """

    def decorate(check_function: EngineCheckFunction) -> Check:
        def examine(deployment: Deployment) -> Iterator[Violation]:
            return iter(dict.fromkeys(check_function(iter_deployment_engines(deployment))))

        def check_cluster(cluster: Cluster) -> Iterator[Violation]:
            return check_function(iter_cluster_engines(cluster))

        return Check(
            id_, level, description, source, examine, check_cluster if level is Severity.ERROR else None, is_acceptable
        )

    return decorate


_P = ParamSpec("_P")


def iter_sizing_violations(
    at: Location, subject: str, check_fit: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs
) -> Iterator[Violation]:
    """Yield a violation with the message of the sizing error, or nothing if the engine fits.

    Args:
        at: Location of the violation.
        subject: Subject of the message.
        check_fit: Function that raises ``DoesNotFitError`` if the engine does not fit.
    """
    try:
        check_fit(*args, **kwargs)
    except DoesNotFitError as error:
        yield Violation(at, f"{subject}: {error.arithmetic}", error.remedy)


@dataclass(frozen=True)
class Finding:
    """A violation, and the check that reports it."""

    check: Check
    violation: Violation
    acceptance_reason: str | None
    """The operator's reason, if the deployment file accepts this check."""

    @property
    def is_blocking(self) -> bool:
        """Whether the finding prevents a deploy."""
        return self.check.level is Severity.ERROR and self.acceptance_reason is None

    def format_line(self, source: SourceMap) -> str:
        """Return the location, the problem and the remedy on one line."""
        at = self.violation
        return f"{source.file}:{source.find_line(at.location)}: [{self.check.id}] {at.message}; {at.remedy}"
