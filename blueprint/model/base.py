"""The base of every object in a deployment file, and the value types that several sections share."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Model(BaseModel):
    """A frozen object that refuses unknown keys and silent conversions.

    ``strict`` keeps ``"3"`` from becoming 3: a deployment file says what it means.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


Name = Annotated[
    str,
    Field(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$", max_length=32),
]
"""Lower-case words joined by hyphens; it becomes part of AWS and Azure resource names."""

ImageDigest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
"""Content address of a container image; tags float and are not accepted."""

Percent = Annotated[float, Field(ge=0, le=100)]
