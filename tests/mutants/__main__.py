"""Mutation testing: ``python -m tests.mutants`` changes the product's sources one place at a time, in a copy.

First the mistakes of ``named``, all of which have to be found. Then places drawn at random, with operators of
cosmic-ray: a number one off, another comparison, a condition turned round. It prints every mutant that its tests let
live, and the score.
"""

import argparse
import ast
import difflib
import os
import random
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from tests.mutants.azure import UNDONE
from tests.mutants.named import NAMED

ROOT = Path(__file__).parents[2]
GOAL_PERCENT = 90
LIMIT_S = 900
"""For the tests of one mutant; one that makes them hang counts as found."""

ARITHMETIC = "(Add|Sub|Mul|Div|FloorDiv|Mod)"
OPERATORS = re.compile(
    r"(?!.*Operator_(Is_Eq|IsNot_NotEq|Eq_Is|NotEq_IsNot)$)"
    r"core/(NumberReplacer|ReplaceComparison|ReplaceTrue|ReplaceFalse|ReplaceAnd|ReplaceOr|AddNot|"
    rf"ReplaceBinaryOperator_{ARITHMETIC}_{ARITHMETIC}$)"
)
"""Not those that rewrite annotations (``|``), write what no reader of a diff would let pass, or only compare identities
where values were compared, and the other way round: an enum's member is one object."""

NO_TEST_CAN = re.compile(r"frozen=|^ +\*,$|^ *def .*\*, ")
"""Lines that mypy holds: a frozen class, and the star before keywords, which is a multiplication to cosmic-ray."""

AREAS = {
    "blueprint/aws/alerts": ("tests/stacks/aws/test_alert_table.py", "tests/blueprint/test_alerts.py"),
    "blueprint/checks": ("tests/blueprint/checks", "tests/test_site.py::test_the_references_are_what_the_code_says"),
    "constructs/voice_constructs/aws": (
        "tests/stacks/aws/test_numbers.py",
        "tests/stacks/aws",
        "tests/contract",
        "tests/settings",
    ),
    "constructs/voice_constructs/azure": ("tests/stacks/azure", "tests/settings"),
    "userdata": ("tests/userdata", "tests/stacks/aws/test_fleets.py"),
}
"""Folders and the tests that have to notice a change in them, the quickest first."""


class Mutant(NamedTuple):
    """One changed file, and the tests that have to notice."""

    file: str
    source: str
    tests: tuple[str, ...]


def drawn(number: int, seed: int, areas: list[str]) -> Iterator[Mutant]:
    """Yield mutants of places drawn at random, every place as likely as any other."""
    chance = random.Random(seed)  # noqa: S311  no secret
    names = [name for name in sorted(plugins.operator_names()) if OPERATORS.match(name)]
    places: dict[tuple[str, tuple[int, int]], list[tuple[str, int]]] = {}
    for area in areas:
        for path in sorted((ROOT / area).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            tree, lines = get_ast(source), source.splitlines()
            for name in names:
                operator = plugins.get_operator(name)()
                found = (start for node in ast_nodes(tree) for start, _ in operator.mutation_positions(node))
                for occurrence, start in enumerate(found):
                    if NO_TEST_CAN.search(lines[start[0] - 1]):
                        continue
                    places.setdefault((str(path.relative_to(ROOT)), start), []).append((name, occurrence))
    chosen = chance.sample(sorted(places), min(number, len(places)))
    print(f"{len(chosen)} of {len(places)} places, seed {seed}")
    for file, start in chosen:
        name, occurrence = chance.choice(places[file, start])
        mutated = mutate_code((ROOT / file).read_text(encoding="utf-8"), plugins.get_operator(name)(), occurrence)
        if mutated is not None and _is_python(mutated):
            yield Mutant(file, mutated, next(tests for area, tests in AREAS.items() if file.startswith(f"{area}/")))


def _is_python(source: str) -> bool:
    """Whether a mutant can be imported at all."""
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def named(pattern: str) -> Iterator[Mutant]:
    for each in (*NAMED, *UNDONE):
        source = (ROOT / each.file).read_text(encoding="utf-8")
        if pattern in each.what:
            yield Mutant(each.file, source.replace(each.old, each.new), each.tests)


def difference(mutant: Mutant) -> str:
    before = (ROOT / mutant.file).read_text(encoding="utf-8").splitlines()
    lines = difflib.unified_diff(before, mutant.source.splitlines(), lineterm="", n=0)
    changed = [line for line in lines if not line.startswith(("---", "+++"))]
    return "\n".join([mutant.file, *changed])


def fails(tests: str, tree: Path) -> bool:
    """Whether tests fail in a tree, or hang."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", tests]
    # Programs that tests start import from the tree too, not from where the packages are installed.
    folders = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    path = os.pathsep.join(str(tree / folder) for folder in folders["pythonpath"])
    environment = {**os.environ, "CI": "1", "PYTHONDONTWRITEBYTECODE": "", "PYTHONPATH": path}
    try:
        done = subprocess.run(  # noqa: S603
            command, cwd=tree, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != pytest.ExitCode.OK


@cache
def holds(tests: str, tree: Path) -> bool:
    """Whether tests pass in the tree as it is: without that no mutant is found by them."""
    return not fails(tests, tree)


def dies(mutant: Mutant, tree: Path) -> bool:
    """Whether tests fail with a mutant in place.

    Raises:
        SystemExit: They fail without it.
    """
    broken = [tests for tests in mutant.tests if not holds(tests, tree)]
    if broken:
        raise SystemExit(f"{', '.join(broken)}: fails without any mutant")
    file = tree / mutant.file
    original = file.read_text(encoding="utf-8")
    file.write_text(mutant.source, encoding="utf-8")
    try:
        return any(fails(tests, tree) for tests in mutant.tests)
    finally:
        file.write_text(original, encoding="utf-8")


def living(mutants: Iterator[Mutant], copy: Path) -> tuple[int, int]:
    """Return how many mutants were tried and how many live; print each that lives."""
    tried = lives = 0
    for mutant in mutants:
        started = time.monotonic()
        found = dies(mutant, copy)
        tried, lives = tried + 1, lives + (not found)
        took = time.monotonic() - started
        print(f"{'found' if found else 'LIVES'} in {took:.0f} s: {difference(mutant)}", flush=True)
    return tried, lives


def main() -> int:
    """Run both parts; 1 when a named mutant lives or fewer than 90 % of the drawn ones are found."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Mutation testing")
    parser.add_argument("--sample", type=int, default=150, help="places to change at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--area", choices=sorted(AREAS), action="append", help="folders to draw from; all by default")
    parser.add_argument("--named", default="", help="only the named mutants with this text; 'none' for none")
    asked = parser.parse_args()
    score = 100.0
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).exists():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
        (copy / "node_modules").symlink_to(ROOT / "node_modules")
        tried, unseen = living(named(asked.named), copy)
        if tried:
            print(f"named: {tried - unseen} of {tried} found")
        drawn_tried, drawn_unseen = living(drawn(asked.sample, asked.seed, asked.area or list(AREAS)), copy)
        if drawn_tried:
            score = 100 * (drawn_tried - drawn_unseen) / drawn_tried
            print(f"drawn: {drawn_tried - drawn_unseen} of {drawn_tried} found, {score:.0f} %")
    return int(unseen > 0 or score < GOAL_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
