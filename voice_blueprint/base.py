"""Base class for all typed objects: deployment files, catalogues, published tables, image specifications."""

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """A frozen object that rejects unknown keys and implicit conversions.

    ``strict`` prevents ``"3"`` from being converted to 3.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
