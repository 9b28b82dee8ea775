"""Expected load and measured capacity."""

import math

from pydantic import Field

from voice_blueprint.base import Model
from voice_blueprint.file.model.text import IsoDate, LoadCurveName


class CallLoad(Model):
    """Expected load, which determines sizes, quotas, traffic and cost.

    Callers connect to the `aws` section. If the file does not have one, they connect to the services on Azure that
    accept audio.
    """

    calls: int = Field(gt=0)
    """Mean number of concurrent calls over a month."""
    minutes_each: float = Field(default=3.0, gt=0, le=1440)
    """Mean length of a call, minutes."""
    speech_share: float = Field(default=0.5, gt=0, le=1)
    """Fraction of a call in which the caller speaks. The rest is not transcribed."""
    conversation_share: float = Field(default=1.0, ge=0, le=1)
    """Fraction of the calls that are conversations with an agent. Applies if the file has `agents`."""
    peak_factor: float = Field(default=2.0, ge=1)
    """Ratio of peak to mean concurrent calls. It is about 2 for office hours."""
    curve: LoadCurveName = "business-day"
    """Load curve of a day, for cost, simulation and alerts: `flat`, `business-day` with an afternoon peak, `spike` with
    a peak of one hour, or a CSV file in the same folder. The CSV file has the header `second,calls`, and its seconds
    range from 0 to 86400."""


class Cells(Model):
    """Independent copies of the deployment, for more calls than one deployment can serve.

    Each cell has the settings in the file, and its own network, state store, load balancers and name.
    """

    calls: int = Field(gt=0)
    """Maximum concurrent calls per cell. There are enough cells for the load, plus one in case a cell fails."""
    per_account: int = Field(default=10, gt=0)
    """Cells per AWS account or Azure subscription, which share its quotas and fail together."""

    number: int | None = Field(default=None, ge=1)
    """Number of the cell to deploy, starting at 1. The cell's name ends in this number, and its domain begins with it,
    as in ``c2.<name>``. By default, the file describes all cells but is deployed as a single one."""

    def calculate_cell_count(self, load: CallLoad, regions: int) -> int:
        """Return the total number of cells for a load: a multiple of ``regions``, or 1 if one cell is sufficient."""
        required_cells = math.ceil(load.calls * load.peak_factor / self.calls)
        return 1 if required_cells <= 1 else regions * math.ceil((required_cells + 1) / regions)


class MeasuredCapacity(Model):
    """Calls per host, as measured by `voice calibrate`."""

    calls: int = Field(ge=1, le=8192)
    """Maximum concurrent calls for which transcripts keep up with the audio."""
    date: IsoDate
    """Date of the measurement."""
    conditions: str = Field(min_length=10)
    """Conditions of the measurement: model, instance type, fraction of speech."""
