"""Reading a catalogue file: YAML rows to typed objects."""

import json
from importlib import resources
from typing import TypeVar

import yaml

from blueprint.base import Model

Row = TypeVar("Row", bound=Model)


def rows(file: str, row: type[Row]) -> tuple[Row, ...]:
    """Return the rows of one file beside this module.

    Raises:
        pydantic.ValidationError: A row does not fit its type.
    """
    text = resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
    # JSON-mode validation accepts YAML's lists for tuples while staying strict about scalars.
    return tuple(row.model_validate_json(json.dumps(item)) for item in yaml.load(text, Loader=yaml.CSafeLoader))
