"""Samples of the metrics that the contract declares."""

import time
from dataclasses import dataclass, field

from voice_blueprint.contract.metrics import DEPLOYMENT_DIMENSION, FLEET_DIMENSION, METRICS, Metric

HOST_DIMENSIONS = frozenset({DEPLOYMENT_DIMENSION, FLEET_DIMENSION})
"""Dimensions of all values that a host publishes."""


@dataclass(frozen=True)
class Sample:
    """A metric value at a point in time.

    Attributes:
        name: Name in ``voice_blueprint.contract.METRICS``.
        dimension_value: Value of the additional dimension; empty if the metric only has those of deployment and fleet.
        read_at: Seconds since 1970.

    Raises:
        ValueError: The contract does not declare the metric, or declares other dimensions. No alarm would match it.
    """

    name: str
    value: float
    dimension_value: str = ""
    read_at: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        if self.name not in METRICS:
            raise ValueError(f"{self.name} is no metric of the contract")
        if bool(self.dimension_value) != (self.extra_dimension is not None):
            raise ValueError(f"{self.name} has the dimensions {', '.join(self.metric.dimensions)}")

    @property
    def metric(self) -> Metric:
        """Declaration of the metric in the contract."""
        return METRICS[self.name]

    @property
    def extra_dimension(self) -> str | None:
        """Name of the dimension in addition to deployment and fleet, or ``None``."""
        return next((name for name in self.metric.dimensions if name not in HOST_DIMENSIONS), None)
