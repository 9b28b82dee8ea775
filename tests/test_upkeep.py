"""The table of operator tasks: each row has a time, an action, and the alarm or command that reports it."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (DOCS / "guides/upkeep.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| Subject |")
]
ALERTS = set(re.findall(r"^\| \[([a-z-]+)\]", (DOCS / "runbooks/README.md").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_every_row_has_an_alarm_or_states_that_none_exists(row: list[str]) -> None:
    assert len(row) == 4, row
    alarms = re.findall(r"\]\(\.\./runbooks/([a-z-]+)\.md\)", row[3])
    assert set(alarms) <= ALERTS, row
    assert alarms or any(words in row[3] for words in ("no alarm", "pipeline", "`voice preflight`")), row
    assert all(cell for cell in row)


def test_the_topics_of_the_third_month_are_covered() -> None:
    subjects = " ".join(row[0].lower() for row in ROWS)
    for word in ("certificate", "logs", "valkey", "artifacts", "debian", "machine images", "passwords"):
        assert word in subjects
