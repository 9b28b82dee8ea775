"""The base of every typed object: deployment files, catalogues, published tables, image specifications."""

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """A frozen object that refuses unknown keys and silent conversions.

    ``strict`` keeps ``"3"`` from becoming 3: a deployment file says what it means.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
