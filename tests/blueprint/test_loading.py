"""Reading a deployment file: every mistake is one problem with its line, and nothing else ever escapes."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import blueprint
from blueprint import DeploymentFileError, Problem, checks
from blueprint.base import Model
from blueprint.file.model.deployment import Deployment
from tests.blueprint.documents import BASE, DEPLOYMENTS, load_edited, load_text, location, parsed, places, text
from tests.blueprint.mistakes import MISTAKES, Mistake

SHIPPED = sorted(DEPLOYMENTS.glob("*.yaml"))
FUZZ = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def problems_of(content: str | bytes, folder: Path) -> tuple[Problem, ...]:
    file = folder / "deployment.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DeploymentFileError) as caught:
        blueprint.load(file)
    assert all(problem.file == file for problem in caught.value.problems)
    assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]
    return caught.value.problems


def line_of(content: str, culprit: str) -> int:
    """The line on which ``culprit`` starts, which stands in the text once."""
    assert content.count(culprit) == 1, culprit
    return content.count("\n", 0, content.index(culprit)) + 1


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_each_mistake_is_one_problem_on_its_line(mistake: Mistake, tmp_path: Path) -> None:
    assert BASE.count(mistake.old) >= 1
    content = BASE.replace(mistake.old, mistake.new, 1)
    problems = problems_of(content, tmp_path)
    assert len(problems) == 1, problems
    for words in mistake.says:
        assert words in problems[0].message
    assert problems[0].line == line_of(content, mistake.culprit)
    assert "\n" not in str(problems[0])
    assert len(problems[0].message) < 300


@pytest.mark.parametrize(
    ("content", "line", "says"),
    [
        ("", None, "is empty or no mapping"),
        ("# only\n# comments\n", None, "is empty or no mapping"),
        ("\nhello\n", 2, "is empty or no mapping"),
        ("\n\n- name: base\n", 3, "is empty or no mapping"),
        (b"name: base\nenvironment: \xff\n", 2, "is not UTF-8 text (byte 24)"),
        ("name: base\n".encode("utf-16"), 1, "is not UTF-8 text"),
    ],
    ids=["empty", "comments", "scalar", "list", "bytes", "utf-16"],
)
def test_what_is_no_document_is_one_problem(content: str | bytes, line: int | None, says: str, tmp_path: Path) -> None:
    (problem,) = problems_of(content, tmp_path)
    assert problem.line == line
    assert says in problem.message


@pytest.mark.parametrize(
    ("name", "says"),
    [("absent.yaml", "does not exist"), (".", "is a directory"), ("file/below.yaml", "cannot be read")],
)
def test_what_is_no_file_is_one_problem(name: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DeploymentFileError) as caught:
        blueprint.load(tmp_path / name)
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == (tmp_path / name, None)
    assert says in problem.message


def test_all_mistakes_are_reported_in_file_order(tmp_path: Path) -> None:
    content = (
        BASE.replace("environment: production", "environment: prod")
        .replace("cidr:", "cdir:")
        .replace("replicas: 1", "replicas: -1")
        .replace("rx_queues: 4", 'rx_queues: "4"')
        .replace("option: capacity-reservation", "option: reserved")
    )
    problems = problems_of(content, tmp_path)
    culprits = ("environment: prod", "cdir", "replicas", "rx_queues", "reserved")
    assert [problem.line for problem in problems] == [line_of(content, culprit) for culprit in culprits]


def test_all_unknown_names_are_reported_in_file_order(tmp_path: Path) -> None:
    content = BASE.replace("region: us-east-1\n", "region: moon-1\n").replace("c8g.12", "c8q.12")
    content = content.replace("cache.r7g.large", "cache.r7q.large").replace("p5.48xlarge", "p5.49xlarge")
    problems = problems_of(content, tmp_path)
    culprits = ("moon-1", "cache.r7q.large", "c8q.12", "p5.49xlarge")
    assert [problem.line for problem in problems] == [line_of(content, culprit) for culprit in culprits]


def test_a_problem_reads_like_a_compiler_message() -> None:
    assert str(Problem(Path("a.yaml"), 3, "is wrong")) == "a.yaml:3: is wrong"
    assert str(Problem(Path("a.yaml"), None, "is wrong")) == "a.yaml: is wrong"


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_file_loads_under_its_own_name(file: Path) -> None:
    deployment = blueprint.load(str(file))
    assert deployment.name == file.stem
    assert deployment.source.file == file


def test_there_are_shipped_files() -> None:
    assert {file.stem for file in SHIPPED} >= {"sandbox", "seed", "production-us-east-1"}


@pytest.mark.parametrize("ending", ["\r\n", "\n"])
@pytest.mark.parametrize("start", ["", "\ufeff", "---\n", "# a comment\n"])
def test_line_endings_and_a_byte_order_mark_do_not_matter(start: str, ending: str, tmp_path: Path) -> None:
    file = tmp_path / "deployment.yaml"
    file.write_bytes((start + BASE).replace("\n", ending).encode())
    assert blueprint.load(file).model_dump() == load_text(BASE, tmp_path).model_dump()


def test_every_value_of_the_file_has_its_line(tmp_path: Path) -> None:
    source = load_text(BASE, tmp_path).source
    rows = BASE.splitlines()
    for place in places(parsed(BASE)):
        line = source.line(place)
        assert line
        key = place[-1] if isinstance(place[-1], str) else place[-2]
        assert str(key) in rows[line - 1] or rows[line - 1].lstrip().startswith("- "), place
    assert source.line(location("aws.vad.drain_timeout_s")) == line_of(BASE, "  vad:")
    assert source.line(("nowhere",)) == 1


def models_in(value: object) -> list[Model]:
    if isinstance(value, Model):
        return [value, *(model for field in type(value).model_fields for model in models_in(getattr(value, field)))]
    return [model for item in value for model in models_in(item)] if isinstance(value, tuple) else []


def test_loaded_objects_are_frozen(tmp_path: Path) -> None:
    models = models_in(load_text(BASE, tmp_path))
    assert len({type(model) for model in models}) > 10
    for model in models:
        for field in type(model).model_fields:
            with pytest.raises(ValidationError, match="frozen"):
                setattr(model, field, getattr(model, field))


def test_lists_of_the_file_become_tuples(tmp_path: Path) -> None:
    deployment = load_text(BASE, tmp_path)
    for value in (deployment.aws.availability_zones, deployment.aws.asr, deployment.aws.vad.scaling):
        assert isinstance(value, tuple)


def test_only_values_decide_what_is_loaded(tmp_path: Path) -> None:
    first = load_text(BASE, tmp_path)
    assert load_text(text(parsed(BASE)), tmp_path).model_dump() == first.model_dump()
    assert Deployment.model_validate_json(first.model_dump_json()).model_dump() == first.model_dump()
    assert load_edited({"aws.vad.huge_pages.count": 1}, tmp_path).model_dump() != first.model_dump()


def explained(error: DeploymentFileError, content: str) -> bool:
    # YAML breaks lines at a carriage return too; splitlines() at those and a few more.
    lines = range(1, len(content.splitlines()) + 2)
    return bool(error.problems) and all(
        problem.message and (problem.line is None or problem.line in lines) for problem in error.problems
    )


def assert_loads_or_explains(content: str, folder: Path) -> None:
    try:
        deployment = load_text(content, folder)
    except DeploymentFileError as error:
        if not explained(error, content):
            pytest.fail(str(error))
    else:
        assert all(finding.violation.message for finding in checks.run(deployment))


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.dates(),
    st.binary(max_size=5),
    st.sampled_from([[], {}, [[]], {"a": 1}, "", "0", "us-east-1", "p5.4xlarge", "spot", 10**30, -1, 0]),
)


@FUZZ
@given(data=st.data())
def test_mutated_documents_load_or_are_explained(data: st.DataObject, tmp_path: Path) -> None:
    document = parsed(BASE)
    for _ in range(data.draw(st.integers(1, 3))):
        *parents, last = data.draw(st.sampled_from(list(places(document))))
        at: Any = document
        for part in parents:
            at = at[part]
        change = data.draw(st.sampled_from(["drop", "rename", "replace", "duplicate"]))
        if change == "replace":
            at[last] = data.draw(VALUES)
        elif change == "duplicate" and isinstance(at, list):
            at.append(data.draw(st.sampled_from(at)))
        elif change == "rename" and isinstance(at, dict):
            at[data.draw(st.text(max_size=8))] = at.pop(last)
        else:
            del at[last]
        if not document:
            break
    assert_loads_or_explains(text(document), tmp_path)


YAML_MARKS = "\n\t :-[]{}!&*#?|>'\"%@`\\,~=<0.x\0"


@FUZZ
@given(
    start=st.integers(0, len(BASE)),
    length=st.integers(0, 20),
    insert=st.text(alphabet=st.sampled_from(YAML_MARKS) | st.characters(codec="utf-8"), max_size=8),
)
def test_mutated_text_loads_or_is_explained(start: int, length: int, insert: str, tmp_path: Path) -> None:
    content = BASE[:start] + insert + BASE[start + length :]
    assert_loads_or_explains(content, tmp_path)


@FUZZ
@given(
    document=st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        max_leaves=15,
    )
)
def test_any_json_document_is_explained(document: object, tmp_path: Path) -> None:
    assert problems_of(json.dumps(document), tmp_path)
