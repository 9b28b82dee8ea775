"""One value of one metric, as the contract declares it."""

import time
from dataclasses import dataclass, field

from blueprint.contract.metrics import DEPLOYMENT_DIMENSION, FLEET_DIMENSION, METRICS, Metric

OF_HOST = frozenset({DEPLOYMENT_DIMENSION, FLEET_DIMENSION})
"""Dimensions that every value of a host has."""


@dataclass(frozen=True)
class Sample:
    """A value that was read.

    Attributes:
        name: Of ``blueprint.contract.METRICS``.
        part: Value of the dimension that the metric has beside deployment and fleet; empty where it has none.
        read_at: Seconds since 1970.

    Raises:
        ValueError: The contract has no such metric, or it has other dimensions: no alarm would see it.
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
        """What the contract says of it."""
        return METRICS[self.name]

    @property
    def part_dimension(self) -> str | None:
        """The dimension beside deployment and fleet."""
        return next((name for name in self.metric.dimensions if name not in OF_HOST), None)
