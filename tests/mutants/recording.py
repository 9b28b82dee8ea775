"""Pytest plugin that passes the number of the current test to the marks of ``reach``."""

import itertools
import json
import mmap
import os
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.mutants.reach import ENVIRONMENT

_NUMBERS = itertools.count(1)
_OUTCOMES: dict[str, str] = {}
_FOLDER = Path(os.environ[ENVIRONMENT])
with (_FOLDER / "current").open("r+b") as _file:
    _CURRENT = mmap.mmap(_file.fileno(), 4)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    number, since = next(_NUMBERS), time.monotonic()
    _CURRENT[:] = number.to_bytes(4, "little")
    result = yield
    row = number, item.nodeid, time.monotonic() - since, _OUTCOMES.get(item.nodeid, "passed")
    with (_FOLDER / "tests").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if not report.passed:
        _OUTCOMES[report.nodeid] = report.outcome
