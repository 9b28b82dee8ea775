"""Conversion of the YAML rows of a catalogue file to typed objects."""

import functools
import json
from collections.abc import Callable
from importlib import resources
from typing import TypeVar

import yaml

from voice_blueprint.base import Model

Row = TypeVar("Row", bound=Model)


def create_table_reader(file: str, row: type[Row], key: str = "name") -> Callable[[], dict[str, Row]]:
    """Return a cached function that returns the rows of a YAML file in this folder, keyed by a column."""

    @functools.cache
    def read() -> dict[str, Row]:
        text = resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
        items = yaml.load(text, Loader=yaml.CSafeLoader)
        # Validation in JSON mode accepts YAML's lists for tuples, but is still strict about scalars.
        results = [row.model_validate_json(json.dumps(item)) for item in items]
        return {str(getattr(each, key)): each for each in results}

    return read
