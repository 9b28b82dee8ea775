"""A value of a metric, as declared in the contract."""

import time
from dataclasses import dataclass, field

from voice_blueprint.contract.metrics import DEPLOYMENT_DIMENSION, FLEET_DIMENSION, METRICS, Metric

HOST_DIMENSIONS = frozenset({DEPLOYMENT_DIMENSION, FLEET_DIMENSION})
"""Dimensions of every value of a host."""


@dataclass(frozen=True)
class Sample:
    """A value that was read.

    Attributes:
        name: Name in ``voice_blueprint.contract.METRICS``.
        part: Value of the dimension in addition to deployment and fleet; empty if the metric has none.
        read_at: Seconds since 1970.

    Raises:
        ValueError: The contract declares no such metric, or other dimensions, so no alarm would match it.
    """

    name: str
    value: float
    part: str = ""
    read_at: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        if self.name not in METRICS:
            raise ValueError(f"{self.name} is no metric of the contract")
        if bool(self.part) != (self.part_dimension is not None):
            raise ValueError(f"{self.name} has the dimensions {', '.join(self.metric.dimensions)}")

    @property
    def metric(self) -> Metric:
        """Declaration in the contract."""
        return METRICS[self.name]

    @property
    def part_dimension(self) -> str | None:
        """The dimension in addition to deployment and fleet."""
        return next((name for name in self.metric.dimensions if name not in HOST_DIMENSIONS), None)
