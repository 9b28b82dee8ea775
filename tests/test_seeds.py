"""Each sentence of the four design documents has an answer that refers to existing files and tests.

The documents are not part of this repository. The tables quote each of them completely, so that a digest of the
quotations proves that no sentence is missing.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from voice_blueprint.checks import CHECKS

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/seeds"
DIGESTS = {
    "aws": "ae71678aefdc382fb651fb8ad0e0545310ce894b475c79bef4d8cf186c7b6d99",
    "azure": "d9a5568829cce622a06ff57023ae44d0f81b0d6817acf30454377d8cedaae20f",
    "qwen": "9b1be969be05a3e2e76ba471efe699d393bbdc5bdef5027824aa54fd48240bf1",
    "speech": "c9961348a6cf6bc4c1132b556b698867426aa6f77b5192aa7e765264b660fda1",
}
"""SHA-256 of each document without white space and without the characters of Markdown tables and code."""
ANSWERS = ("built", "otherwise", "not", "context")

_ROW = re.compile(r"^\| (\d+) \| (.+) \| (\w+) \| (.+) \|$", re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)+(?:::\w+)?")
_CHECKS = re.compile(r"[Cc]hecks? ((?:`[a-z0-9-]+`(?:, )?)+)")
_TEST_FILE = re.compile(r"(^|/)(tests?|timing)/|(^|/)test_|_test\.")


@dataclass(frozen=True)
class Row:
    """A sentence and its answer."""

    number: int
    quotation: str
    answer: str
    reason: str

    @property
    def paths(self) -> list[str]:
        return [code for code in _CODE.findall(self.reason) if _PATH.fullmatch(code)]

    @property
    def problems(self) -> Iterator[str]:
        """Yield the problems of the row."""
        if self.answer not in ANSWERS:
            yield f"{self.answer} is not one of {', '.join(ANSWERS)}"
        if self.answer in ("built", "otherwise") and not any(map(_TEST_FILE.search, self.paths)):
            yield "no test is named"
        if self.answer in ("otherwise", "not") and len(_CODE.sub("", self.reason)) < len("why it is so"):
            yield "no reason is given"
        for path in self.paths:
            name, _, test = path.partition("::")
            if not (ROOT / name).exists():
                yield f"{name} does not exist"
            elif test and f"def {test}(" not in (ROOT / name).read_text(encoding="utf-8"):
                yield f"{name} has no test {test}"
        named = {check for listed in _CHECKS.findall(self.reason) for check in _CODE.findall(listed)}
        yield from (f"there is no check {check}" for check in sorted(named - {check.id for check in CHECKS}))


def rows(page: str) -> list[Row]:
    """Read the table of a page."""
    return [Row(int(number), *rest) for number, *rest in _ROW.findall(page)]


def digest(table: list[Row]) -> str:
    """Return the digest of all quotations in order."""
    text = re.sub(r"[\s`\\|*]", "", "".join(row.quotation for row in table))
    return hashlib.sha256(text.encode()).hexdigest()


def page(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def test_each_seed_document_has_a_page() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == set(DIGESTS)


@pytest.mark.parametrize("name", DIGESTS)
def test_no_sentence_of_a_document_is_missing(name: str) -> None:
    table = rows(page(name))
    assert [row.number for row in table] == list(range(1, len(table) + 1))
    assert len(table) == sum(line.startswith("| ") for line in page(name).splitlines()) - 1, "a row is not read"
    assert digest(table) == DIGESTS[name]


@pytest.mark.parametrize("name", DIGESTS)
def test_each_answer_refers_to_existing_files_and_tests(name: str) -> None:
    assert [f"{name} {row.number}: {problem}" for row in rows(page(name)) for problem in row.problems] == []


def test_deviations_contain_the_number_of_answers() -> None:
    counted = re.findall(
        r"^\| \[[^]]+\]\(seeds/(\w+)\.md\) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$",
        (ROOT / "docs/deviations.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    answers = {name: Counter(row.answer for row in rows(page(name))) for name in DIGESTS}
    assert {name: tuple(map(int, numbers)) for name, *numbers in counted} == {
        name: tuple(found[answer] for answer in ANSWERS) for name, found in answers.items()
    }


def test_a_dropped_or_changed_sentence_is_detected() -> None:
    table = rows(page("speech"))
    assert digest(table[:-1]) != DIGESTS["speech"]
    assert digest([*table[:-1], Row(0, table[-1].quotation.replace("30+", "60+"), "built", "")]) != DIGESTS["speech"]


@pytest.mark.parametrize(
    ("answer", "reason", "problem"),
    [
        ("done", "`app.py`", "done is not one of built, otherwise, not, context"),
        ("built", "`tests/gone.py`", "tests/gone.py does not exist"),
        ("built", "`tests/test_seeds.py::test_gone`", "tests/test_seeds.py has no test test_gone"),
        ("built", "`stacks/voice_stacks/aws/app.py`", "no test is named"),
        ("not", "`stacks/voice_stacks/aws`", "no reason is given"),
        ("not", "for this reason; check `gone-check`", "there is no check gone-check"),
    ],
)
def test_a_wrong_answer_is_detected(answer: str, reason: str, problem: str) -> None:
    assert problem in list(Row(1, "", answer, reason).problems)
