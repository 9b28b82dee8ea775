"""What callers bring, and what was measured of it."""

from typing import Annotated

from pydantic import Field

from blueprint.base import Model


class CallLoad(Model):
    """What callers bring: sizes, quotas, traffic and cost follow from it.

    They come to the AWS half; of a file without one, to the services on Azure that take audio.
    """

    calls: int = Field(gt=0)
    """Calls at the same time, the mean of a month."""
    minutes_each: float = Field(default=3.0, gt=0, le=1440)
    """Mean length of a call, minutes."""
    speech_share: float = Field(default=0.5, gt=0, le=1)
    """Share of a call in which the caller speaks; the rest is not transcribed."""
    conversation_share: float = Field(default=1.0, ge=0, le=1)
    """Share of the calls that are conversations with an agent, where there are `agents`."""
    peak_factor: float = Field(default=2.0, ge=1)
    """Calls at the peak, over that mean; of a day of office hours it is about 2."""


class Measured(Model):
    """Calls that one host carries, as measured, by `voice calibrate`."""

    calls: int = Field(ge=1, le=8192)
    """Calls at the same time, with transcripts that keep up."""
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    """Day of the measurement."""
    conditions: str = Field(min_length=10)
    """What ran on what: model, instance type, share of speech."""
