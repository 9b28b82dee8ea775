"""Reading a catalogue file: YAML rows to typed objects."""

import functools
import json
from collections.abc import Callable
from importlib import resources
from typing import TypeVar

import yaml

from blueprint.base import Model

Row = TypeVar("Row", bound=Model)


def table(file: str, row: type[Row], key: str = "name") -> Callable[[], dict[str, Row]]:
    """Return the reader of one file beside this module: its rows by a column, read when they are first asked for."""

    @functools.cache
    def read() -> dict[str, Row]:
        text = resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
        items = yaml.load(text, Loader=yaml.CSafeLoader)
        # JSON-mode validation accepts YAML's lists for tuples while staying strict about scalars.
        found = [row.model_validate_json(json.dumps(item)) for item in items]
        return {str(getattr(each, key)): each for each in found}

    return read
