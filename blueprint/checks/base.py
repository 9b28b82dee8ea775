"""What a check is."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ParamSpec

from blueprint.checks.azure_cluster import Cluster, cluster_in
from blueprint.engines.sizing.result import DoesNotFitError
from blueprint.file.model.deployment import Deployment
from blueprint.file.source import Location, SourceMap


class Level(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """The deployment cannot work; nothing is synthesized."""
    WARNING = "warning"
    """It works, but an operator should have meant it."""
    INFO = "info"
    """Worth knowing before the deploy."""


@dataclass(frozen=True)
class Violation:
    """One place where a check does not hold.

    Attributes:
        location: Where the value stands in the deployment file; of a resource, its URN alone.
        message: What is wrong, with the numbers.
        remedy: What to do.
    """

    location: Location
    message: str
    remedy: str


def place(location: Location) -> str:
    """Return a place of the file as a person writes it, such as ``aws.asr[1].hosts``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")


Examine = Callable[[Deployment], Iterator[Violation]]
"""Yields every place of a deployment where a rule does not hold."""
Judge = Callable[[Cluster], Iterator[Violation]]
"""The same over a cluster, whoever describes it: the deployment file, or the resources that the programs emit."""


@dataclass(frozen=True)
class Check:
    """One rule about a deployment.

    Attributes:
        about: The rule in one sentence, as it reads when it holds.
        source: Where the rule comes from.
        judge: The rule over a cluster; a policy applies it to what the Pulumi programs emit. ``None`` for a rule that
            only the file can break.
        acceptable: Whether the file may accept what the check finds. It may not where nothing could be rendered then.
    """

    id: str
    level: Level
    about: str
    source: str
    examine: Examine
    judge: Judge | None = None
    acceptable: bool = True


def check(
    id_: str, about: str, *, source: str, level: Level = Level.ERROR, acceptable: bool = True
) -> Callable[[Examine], Check]:
    """Make a check of a function over the deployment."""
    return lambda examine: Check(id_, level, about, source, examine, acceptable=acceptable)


def cluster_check(id_: str, about: str, *, source: str, acceptable: bool = True) -> Callable[[Judge], Check]:
    """Make an error of a function over the cluster, which holds for the file and for what is emitted alike."""

    def made(judge: Judge) -> Check:
        def examine(deployment: Deployment) -> Iterator[Violation]:
            # Two engines of a pod may say the same of one line.
            return iter(dict.fromkeys(judge(cluster_in(deployment.azure))))

        return Check(id_, Level.ERROR, about, source, examine, judge, acceptable)

    return made


_P = ParamSpec("_P")


def refusal(
    at: Location, who: str, fits: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs
) -> Iterator[Violation]:
    """Yield sizing's refusal, in sizing's words; nothing where it fits."""
    try:
        fits(*args, **kwargs)
    except DoesNotFitError as error:
        yield Violation(at, f"{who}: {error.arithmetic}", error.remedy)


@dataclass(frozen=True)
class Finding:
    """A violation together with the check that found it."""

    check: Check
    violation: Violation
    accepted_because: str | None
    """The operator's reason, when the deployment file accepts this check."""

    @property
    def blocks(self) -> bool:
        """Whether the deployment must not go on."""
        return self.check.level is Level.ERROR and self.accepted_because is None

    def text(self, source: SourceMap) -> str:
        """Return where in the file what is wrong, and what to do, on one line."""
        at = self.violation
        return f"{source.file}:{source.line(at.location)}: [{self.check.id}] {at.message}; {at.remedy}"
