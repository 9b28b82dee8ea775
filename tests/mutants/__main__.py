"""Mutation testing: ``python -m tests.mutants`` changes the product's sources at one place at a time, in a copy.

First the mistakes of ``named``, all of which must be detected. Then places drawn at random, with operators of
cosmic-ray: a number changed by one, another comparison, a negated condition. It prints every surviving mutant, and the
score. ``equivalent`` explains those that no test can detect. A mutant of an image's program is run with the tests that
cover its line (``reach``), which first run once in copies that record coverage.
"""

import argparse
import ast
import contextlib
import difflib
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from tests.mutants.azure import AZURE_MUTANTS
from tests.mutants.equivalent import EQUIVALENT, close_duration
from tests.mutants.forks import Forks
from tests.mutants.images import IMAGE_MUTANTS
from tests.mutants.named import AWS_MUTANTS
from tests.mutants.reach import Reach, instrument, record

ROOT = Path(__file__).parents[2]
GOAL_PERCENT = 90
LIMIT_S = 900
MIN_LIMIT_S = 120
MAX_TESTS_S = 150
"""Time limit of the tests of a mutant in an image. All of them run the lines of a program's start."""

ARITHMETIC = "(Add|Sub|Mul|Div|FloorDiv|Mod)"
OPERATORS = re.compile(
    r"(?!.*Operator_(Is_Eq|IsNot_NotEq|Eq_Is|NotEq_IsNot)$)"
    r"core/(NumberReplacer|ReplaceComparison|ReplaceTrue|ReplaceFalse|ReplaceAnd|ReplaceOr|AddNot|"
    rf"ReplaceBinaryOperator_{ARITHMETIC}_{ARITHMETIC}$)"
)
"""Without operators that rewrite annotations (``|``), cause changes that every review would reject, or exchange
identity and equality, which are the same for an enum's member."""

UNTESTABLE_LINE = re.compile(r"frozen=")
UNTESTABLE_TEXT = re.compile(r"\*,")
"""What mypy checks: frozen classes, and stars before keyword arguments, which cosmic-ray would change."""

AREAS = {
    "voice_blueprint/observability/aws/alerts": (
        "tests/stacks/aws/test_alert_table.py",
        "tests/blueprint/test_alerts.py",
    ),
    "voice_blueprint/checks": (
        "tests/blueprint/checks",
        "tests/test_site.py::test_the_references_match_the_code",
    ),
    "constructs/voice_constructs/aws": (
        "tests/stacks/aws/test_numbers.py",
        "tests/stacks/aws",
        "tests/contract",
        "tests/settings",
    ),
    "constructs/voice_constructs/azure": ("tests/stacks/azure", "tests/settings"),
    "userdata": ("tests/userdata", "tests/stacks/aws/test_fleets.py"),
    "images/agent/src": ("images/agent/tests", "tests/images/test_limits.py"),
    "images/gateway/src": ("images/gateway/tests", "tests/images/test_limits.py"),
    "images/asr-vllm/src": ("tests/images/test_layer_check.py",),
    "images/runtime/src": ("images/runtime/tests", "images/gateway/tests", "tests/images/test_limits.py"),
    "images/telemetry/src": ("images/telemetry/tests",),
    "images/whisper-engine/src": ("images/whisper-engine/tests", "tests/images/test_limits.py"),
}
"""Folders and the tests that must detect a change in them, the fastest first."""


class Mutant(NamedTuple):
    """A changed file, and the tests that must detect it."""

    file: str
    source: str
    runs: tuple[tuple[str, ...], ...]
    """Tests of each run of pytest, the fastest first; without any the mutant survives."""
    limit_s: float = LIMIT_S
    """Timeout of each run; a mutant that makes tests hang counts as detected."""
    is_recorded: bool = False
    """Whether its tests have passed while their coverage was recorded."""


def random_mutants(number: int, seed: int, areas: list[str], reach: Reach) -> Iterator[Mutant]:
    """Yield random mutants, all with the same probability."""
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
                    line = lines[start[0] - 1]
                    if UNTESTABLE_LINE.search(line) or UNTESTABLE_TEXT.match(line, start[1]):
                        continue
                    places.setdefault((str(path.relative_to(ROOT)), start), []).append((name, occurrence))
    chosen = chance.sample(sorted(places), min(number, len(places)))
    print(f"{len(chosen)} of {len(places)} places, seed {seed}")
    for file, start in chosen:
        name, occurrence = chance.choice(places[file, start])
        mutated = mutate_code((ROOT / file).read_text(encoding="utf-8"), plugins.get_operator(name)(), occurrence)
        if mutated is None or not _is_python(mutated):
            continue
        if file.startswith("images/"):
            tests, tests_s = _quickest(reach, file, start[0])
            runs = (tests,) if tests else ()
            yield Mutant(file, mutated, runs, MIN_LIMIT_S + 4 * tests_s, is_recorded=True)
        else:
            tests = next(tests for area, tests in AREAS.items() if file.startswith(f"{area}/"))
            yield Mutant(file, mutated, tuple((each,) for each in tests))


def _quickest(reach: Reach, file: str, line: int) -> tuple[tuple[str, ...], float]:
    """Return the tests that cover a line, and their duration in seconds: those that import its module come first.

    A constant or field is also covered by tests that import its module, such as one that compares it with a document.
    """
    module = re.compile(rf"\b{Path(file).parent.name}(\.| import .*\b){Path(file).stem}\b")

    @cache
    def imports(test_file: str) -> bool:
        return bool(module.search((ROOT / test_file).read_text(encoding="utf-8")))

    covering = set(reach.tests(file, line))
    importing = {test for test in reach.duration_s if imports(test.partition("::")[0])}
    if not reach.is_in_function(file, line):
        covering |= importing
    tests: list[str] = []
    tests_s = 0.0
    for test in sorted(covering, key=lambda each: (each not in importing, reach.duration_s[each], each)):
        if not tests or tests_s + reach.duration_s[test] <= MAX_TESTS_S:
            tests.append(test)
            tests_s += reach.duration_s[test]
    return tuple(tests), tests_s


def _is_python(source: str) -> bool:
    """Return whether a mutant can be imported."""
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def named_mutants(pattern: str) -> Iterator[Mutant]:
    for each in (*AWS_MUTANTS, *AZURE_MUTANTS, *IMAGE_MUTANTS):
        source = (ROOT / each.file).read_text(encoding="utf-8")
        if pattern in each.what:
            runs = tuple((tests,) for tests in each.tests)
            yield Mutant(each.file, source.replace(each.old, each.new), runs)


def difference(mutant: Mutant) -> str:
    before = (ROOT / mutant.file).read_text(encoding="utf-8").splitlines()
    lines = difflib.unified_diff(before, mutant.source.splitlines(), lineterm="", n=0)
    changed = [line for line in lines if not line.startswith(("---", "+++"))]
    return "\n".join([mutant.file, *changed])


def environment(tree: Path) -> dict[str, str]:
    """Return the environment of tests in a tree, from which their child processes import as well."""
    folders = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    path = os.pathsep.join(str(tree / folder) for folder in folders["pythonpath"])
    return {**os.environ, "CI": "1", "PYTHONDONTWRITEBYTECODE": "", "PYTHONPATH": path}


def run_tests(tests: tuple[str, ...], tree: Forks, limit_s: float) -> int | None:
    """Run tests in a tree until the first failure, and return pytest's exit code, or ``None`` after the limit."""
    return tree.run(["-x", "-q", "-p", "no:cacheprovider", *tests], limit_s)


def has_failures(tests: tuple[str, ...], tree: Forks, limit_s: float = LIMIT_S) -> bool:
    """Return whether tests fail in a tree, or hang."""
    return run_tests(tests, tree, limit_s) != pytest.ExitCode.OK


@cache
def check(tests: str, tree: Forks) -> None:
    """Run tests in the unchanged tree, where they must pass.

    Raises:
        SystemExit: The tests fail.
    """
    if has_failures((tests,), tree):
        raise SystemExit(f"{tests}: fails without any mutant")


def is_killed(mutant: Mutant, tree: Forks) -> bool:
    """Return whether tests fail with a mutant in place, and not without it.

    Raises:
        SystemExit: The tests also fail without the mutant.
    """
    if not mutant.is_recorded:
        for tests in mutant.runs:
            check(*tests, tree)
    file, started_at = tree.folder / mutant.file, time.monotonic()
    original = file.read_text(encoding="utf-8")
    file.write_text(mutant.source, encoding="utf-8")
    try:
        has_failed = any(has_failures(tests, tree, mutant.limit_s) for tests in mutant.runs)
    finally:
        file.write_text(original, encoding="utf-8")
    if not (has_failed and mutant.is_recorded):
        return has_failed
    # In this selection, or on a busy machine, a test may also fail without the mutant.
    limit_s = 2 * (time.monotonic() - started_at)
    return all(run_tests(tests, tree, limit_s) in (pytest.ExitCode.OK, None) for tests in mutant.runs)


def explanation(mutant: Mutant) -> str:
    """Return why no test can detect a mutant, if that is known."""
    source = (ROOT / mutant.file).read_text(encoding="utf-8")
    equal = (each for each in EQUIVALENT if each.file == mutant.file)
    listed = next((each.why for each in equal if source.replace(each.old, each.new) == mutant.source), "")
    return listed or close_duration(source, mutant.source)


def surviving_mutants(mutants: Iterable[Mutant], trees: list[Forks]) -> Counter[tuple[str, str]]:
    """Test mutants in parallel, one per tree, and print each outcome.

    Returns:
        Mutants by area and outcome.
    """
    free: SimpleQueue[Forks] = SimpleQueue()
    for each in trees:
        free.put(each)

    def outcome(mutant: Mutant) -> tuple[str, str]:
        started, tree = time.monotonic(), free.get()
        try:
            why = explanation(mutant)
            found = f"explained ({why})" if why else "found" if is_killed(mutant, tree) else "LIVES"
        finally:
            free.put(tree)
        tests = sum(map(len, mutant.runs))
        print(f"{found} in {time.monotonic() - started:.0f} s by {tests} tests: {difference(mutant)}", flush=True)
        area = next((area for area in AREAS if mutant.file.startswith(f"{area}/")), "elsewhere")
        return area, found.partition(" ")[0]

    with ThreadPoolExecutor(len(trees)) as pool:
        return Counter(pool.map(outcome, mutants))


def score(title: str, outcomes: Counter[tuple[str, str]]) -> float:
    """Print how many mutants of each area are detected or explained; return the percentage of all."""
    for area in sorted({area for area, _ in outcomes}):
        found, explained, lives = (outcomes[area, each] for each in ("found", "explained", "LIVES"))
        tried = found + explained + lives
        print(f"{title}, {area}: {found} found and {explained} explained of {tried}: {100 - 100 * lives / tried:.0f} %")
    lives = sum(count for (_, outcome), count in outcomes.items() if outcome == "LIVES")
    return 100 - 100 * lives / max(1, outcomes.total())


def copy_of_tree(tree: Path) -> Path:
    """Copy the tree's files except ignored ones."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    (tree / "node_modules").symlink_to(ROOT / "node_modules")
    return tree


def test_reach(areas: list[str], folder: Path, jobs: int) -> Reach:
    """Return the tests that cover the lines of the images' programs in some areas.

    The record of a test file is kept in ``build`` until that file or a program changes.
    """
    reach = Reach()
    marked = reach.read(ROOT, [area for area in AREAS if area.startswith("images/")])
    kept = {file: record_file(file) for file in _test_files(areas)}
    missing = [file for file, record in kept.items() if not record.exists()]
    shares = [share for job in range(jobs) if (share := missing[job::jobs])]
    trees = [copy_of_tree(folder / str(job)) for job, _ in enumerate(shares)]
    for tree in trees:
        instrument(tree, marked)

    def save_record(tree: Path, share: list[str]) -> None:
        recorded = record(tree, share, environment(tree))
        for file in share:
            rows = {name: row for name, row in recorded.items() if name.partition("::")[0] == file}
            kept[file].parent.mkdir(parents=True, exist_ok=True)
            kept[file].write_text(json.dumps(rows), encoding="utf-8")

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(save_record, trees, shares))
    for each in kept.values():
        reach.add(json.loads(each.read_text(encoding="utf-8")))
    return reach


def _test_files(areas: list[str]) -> list[str]:
    folders = {ROOT / tests for area in areas if area.startswith("images/") for tests in AREAS[area]}
    files = (file for each in folders for file in ([each] if each.is_file() else each.rglob("test_*.py")))
    return sorted(str(file.relative_to(ROOT)) for file in files)


def record_file(test_file: str) -> Path:
    """Return the location of a test file's record."""
    digest = hashlib.sha256((ROOT / test_file).read_bytes())
    for path in sorted(ROOT.glob("images/*/src/**/*.py")):
        digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return ROOT / f"build/mutants/{test_file.replace('/', '-')}-{digest.hexdigest()[:16]}.json"


def main() -> int:
    """Test named and random mutants.

    Returns:
        1 if a named mutant survives, or if fewer than 90 % of the random ones are detected or explained.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Mutation testing")
    parser.add_argument("--sample", type=int, default=150, help="places to change at random, or 0")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--area", choices=sorted(AREAS), action="append", help="folders to draw from; all by default")
    parser.add_argument("--named", default="", help="only the named mutants with this text; 'none' for none")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    asked = parser.parse_args()
    areas = asked.area or list(AREAS)
    with TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        copies = [copy_of_tree(Path(folder) / f"tree-{job}") for job in range(asked.jobs)]
        trees = [stack.enter_context(Forks(copy, environment(copy))) for copy in copies]
        named_score = score("named", surviving_mutants(named_mutants(asked.named), trees))
        if not asked.sample:
            return int(named_score < 100)
        reach = test_reach(areas, Path(folder) / "recorded", asked.jobs)
        # Names that pytest does not find would count as detected mutants.
        if reach.duration_s and has_failures((*reach.duration_s, "--collect-only"), trees[0]):
            raise SystemExit("tests that were recorded cannot be collected by their names")
        drawn_score = score("drawn", surviving_mutants(random_mutants(asked.sample, asked.seed, areas, reach), trees))
        print(f"drawn: {drawn_score:.0f} % found or explained, {GOAL_PERCENT} % are wanted")
    return int(named_score < 100 or drawn_score < GOAL_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
