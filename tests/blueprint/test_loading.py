"""Loading of deployment files: every mistake is reported as one problem with its line, without other exceptions."""

import json
import os
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter, ValidationError

import voice_blueprint
from tests.blueprint.checks.azure_cases import callers, peak
from tests.blueprint.documents import (
    AZURE_BASE,
    BASE,
    DEPLOYMENTS,
    edit_document,
    load_text,
    load_with_edits,
    location,
    parse_yaml,
    setting_locations,
    text,
)
from tests.blueprint.mistakes import MISTAKES, Mistake
from voice_blueprint import DeploymentFileError, FileProblem, checks
from voice_blueprint.base import Model
from voice_blueprint.file.messages import MAX_REPORTED_ERRORS
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.suggestion import format_suggestion

SHIPPED_FILES = sorted(DEPLOYMENTS.glob("*.yaml"))
FUZZ = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def problems_in(content: str | bytes, folder: Path) -> tuple[FileProblem, ...]:
    file = folder / "deployment.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DeploymentFileError) as caught:
        voice_blueprint.load(file)
    assert all(problem.file == file for problem in caught.value.problems)
    assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]
    return caught.value.problems


def line_number(content: str, culprit: str) -> int:
    """Return the line on which ``culprit``, which occurs once, starts."""
    assert content.count(culprit) == 1, culprit
    return content.count("\n", 0, content.index(culprit)) + 1


def test_a_deployment_named_like_the_nodes_of_another_is_refused_on_azure(tmp_path: Path) -> None:
    """AKS creates the group for the nodes of ``x``, and deletes it and its resources with the cluster."""
    (problem,) = problems_in(edit_document({"name": "x-nodes"}, AZURE_BASE), tmp_path)
    assert "`name`: x-nodes is also the resource group of the nodes of a deployment x" in str(problem)
    assert load_with_edits({"name": "x-nodes"}, tmp_path).name == "x-nodes"


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_each_mistake_is_reported_as_one_problem_with_its_line(mistake: Mistake, tmp_path: Path) -> None:
    assert BASE.count(mistake.old) >= 1
    content = BASE.replace(mistake.old, mistake.new, 1)
    problems = problems_in(content, tmp_path)
    assert len(problems) == 1, problems
    for words in mistake.says:
        assert words in problems[0].message
    assert problems[0].line == line_number(content, mistake.culprit)
    assert "\n" not in str(problems[0])
    assert len(problems[0].message) < 300


@pytest.mark.parametrize(
    ("content", "line", "message"),
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
def test_an_invalid_document_is_reported_as_one_problem(
    content: str | bytes, line: int | None, message: str, tmp_path: Path
) -> None:
    (problem,) = problems_in(content, tmp_path)
    assert problem.line == line
    assert message in problem.message


@pytest.mark.parametrize(
    ("name", "message"),
    [("absent.yaml", "does not exist"), (".", "is a directory"), ("file/below.yaml", "cannot be read")],
)
def test_a_missing_file_is_reported_as_one_problem(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DeploymentFileError) as caught:
        voice_blueprint.load(tmp_path / name)
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == (tmp_path / name, None)
    assert message in problem.message


def test_a_pipe_without_a_writer_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for file in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(DeploymentFileError, match="is a pipe or a device"):
            voice_blueprint.load(file)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    file.write_text(BASE + "# " + "x" * 1_000_000 + "\n")
    with pytest.raises(DeploymentFileError, match=r"has 1\.0 MB, and a deployment file at most 1 MB"):
        voice_blueprint.load(file)
    file.write_text(BASE + "# " + "x" * 900_000 + "\n")
    assert voice_blueprint.load(file).name


@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_quote_that_is_never_closed_is_reported_where_it_opens(quote: str, tmp_path: Path) -> None:
    (problem,) = problems_in(f"name: base\nenvironment: {quote}production\nload:\n  calls: 1\n", tmp_path)
    assert problem.line == 2
    assert "the quote that opens here is never closed" in problem.message


def test_the_number_of_reported_problems_is_limited(tmp_path: Path) -> None:
    problems = problems_in("".join(f"setting{index}: 1\n" for index in range(5_000)), tmp_path)
    assert len(problems) == MAX_REPORTED_ERRORS + 1
    assert problems[-1].message == "and 4,952 more problems; is it a deployment file?"


def test_a_merge_key_is_reported(tmp_path: Path) -> None:
    (problem,) = problems_in(BASE + "<<: {name: other}\n", tmp_path)
    assert "merge keys (`<<`) are not supported" in problem.message


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("m7i.xlarge", None),
        ("us-east-1", None),
        ("C8G.12xLarge", "c8g.12xlarge"),
        ("c8q.12xlarge", "c8g.12xlarge"),
        ("p5.49xlarge", "p5.48xlarge"),
    ],
)
def test_a_suggestion_has_the_same_instance_family(word: str, meant: str | None) -> None:
    known = ["c8g.xlarge", "c8g.12xlarge", "inf2.xlarge", "p5.48xlarge", "g6e.xlarge"]
    assert format_suggestion(word, known) == (f"; did you mean `{meant}`?" if meant else "")


def test_all_mistakes_are_reported_in_file_order(tmp_path: Path) -> None:
    content = (
        BASE.replace("environment: production", "environment: prod")
        .replace("cidr:", "cdir:")
        .replace("replicas: 1", "replicas: -1")
        .replace("rx_queues: 4", 'rx_queues: "4"')
        .replace("option: capacity-reservation", "option: reserved")
    )
    problems = problems_in(content, tmp_path)
    culprits = ("environment: prod", "cdir", "replicas", "rx_queues", "reserved")
    assert [problem.line for problem in problems] == [line_number(content, culprit) for culprit in culprits]


def test_all_unknown_names_are_reported_in_file_order(tmp_path: Path) -> None:
    content = BASE.replace("region: us-east-1\n", "region: moon-1\n").replace("c8g.12", "c8q.12")
    content = content.replace("cache.r7g.large", "cache.r7q.large").replace("p5.48xlarge", "p5.49xlarge")
    problems = problems_in(content, tmp_path)
    culprits = ("moon-1", "cache.r7q.large", "c8q.12", "p5.49xlarge")
    assert [problem.line for problem in problems] == [line_number(content, culprit) for culprit in culprits]


def test_a_problem_is_formatted_like_a_compiler_message() -> None:
    assert str(FileProblem(Path("a.yaml"), 3, "is wrong")) == "a.yaml:3: is wrong"
    assert str(FileProblem(Path("a.yaml"), None, "is wrong")) == "a.yaml: is wrong"


@pytest.mark.parametrize("file", SHIPPED_FILES, ids=lambda file: file.stem)
def test_the_name_of_a_shipped_file_matches_its_deployment(file: Path) -> None:
    deployment = voice_blueprint.load(str(file))
    assert deployment.name == file.stem
    assert deployment.source.file == file


def test_there_are_shipped_files() -> None:
    assert {file.stem for file in SHIPPED_FILES} >= {"sandbox", "seed", "production-us-east-1"}


@pytest.mark.parametrize("ending", ["\r\n", "\n"])
@pytest.mark.parametrize("start", ["", "\ufeff", "---\n", "# a comment\n"])
def test_line_endings_and_a_byte_order_mark_do_not_matter(start: str, ending: str, tmp_path: Path) -> None:
    file = tmp_path / "deployment.yaml"
    file.write_bytes((start + BASE).replace("\n", ending).encode())
    assert voice_blueprint.load(file).model_dump() == load_text(BASE, tmp_path).model_dump()


def test_every_value_of_the_file_has_a_line_number(tmp_path: Path) -> None:
    source = load_text(BASE, tmp_path).source
    rows = BASE.splitlines()
    for place in setting_locations(parse_yaml(BASE)):
        line = source.find_line(place)
        assert line
        key = place[-1] if isinstance(place[-1], str) else place[-2]
        assert str(key) in rows[line - 1] or rows[line - 1].lstrip().startswith("- "), place
    assert source.find_line(location("aws.vad.drain_timeout_s")) == line_number(BASE, "  vad:")
    assert source.find_line(("nowhere",)) == 1


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


def test_formatting_does_not_affect_the_loaded_deployment(tmp_path: Path) -> None:
    first = load_text(BASE, tmp_path)
    assert load_text(text(parse_yaml(BASE)), tmp_path).model_dump() == first.model_dump()
    assert Deployment.model_validate_json(first.model_dump_json()).model_dump() == first.model_dump()
    assert load_with_edits({"aws.vad.huge_pages.count": 1}, tmp_path).model_dump() != first.model_dump()


def is_explained(error: DeploymentFileError, content: str) -> bool:
    # YAML breaks lines at a carriage return too; splitlines() at those and a few more.
    lines = range(1, len(content.splitlines()) + 2)
    return bool(error.problems) and all(
        problem.message and (problem.line is None or problem.line in lines) for problem in error.problems
    )


def assert_loads_or_explains(content: str, folder: Path) -> None:
    try:
        deployment = load_text(content, folder)
    except DeploymentFileError as error:
        if not is_explained(error, content):
            pytest.fail(str(error))
    else:
        assert all(finding.violation.message for finding in checks.run_checks(deployment))


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
def test_mutated_documents_load_or_are_rejected_with_a_problem(data: st.DataObject, tmp_path: Path) -> None:
    document = parse_yaml(BASE)
    for _ in range(data.draw(st.integers(1, 3))):
        *parents, last = data.draw(st.sampled_from(list(setting_locations(document))))
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
def test_mutated_text_loads_or_is_rejected_with_a_problem(start: int, length: int, insert: str, tmp_path: Path) -> None:
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
def test_any_json_document_is_rejected_with_a_problem(document: object, tmp_path: Path) -> None:
    assert problems_in(json.dumps(document), tmp_path)


def _texts(schema: object) -> list[dict[str, Any]]:
    """Return every part of a schema that is a string with a pattern."""
    if isinstance(schema, list):
        return [found for each in schema for found in _texts(each)]
    if not isinstance(schema, dict):
        return []
    return [*([schema] if "pattern" in schema else []), *_texts(list(schema.values()))]


ODD_CHARACTERS = ("ü", "💥", "\x92", "\u202e", "\u200b", " ", "\u0663", "\n", '"', "<x>", "\\", "ü 💥\x92")


def test_every_pattern_has_a_message_and_an_example_and_rejects_odd_characters() -> None:
    texts = {each["pattern"]: each for each in _texts(Deployment.model_json_schema())}
    assert len(texts) > 30
    for pattern, each in texts.items():
        form = TypeAdapter(Annotated[str, Field(pattern=pattern)])
        (example,) = each["examples"]
        assert each["patternErrorMessage"].endswith(f", such as {example}")
        form.validate_python(example)
        for odd in ODD_CHARACTERS:
            for text_ in (odd, example + odd, odd + example, example[:-1] + odd + example[-1]):
                with pytest.raises(ValidationError):
                    form.validate_python(text_)


GROUP = "/subscriptions/11111111-1111-4111-8111-111111111111/resourceGroups/shared/providers"


@pytest.mark.parametrize(
    ("setting", "value", "example"),
    [
        ("aws.account", "1234", "123456789012"),
        ("aws.edge.domain.zone_id", "/hostedzone/Z0123", "Z0123456789EXAMPLE"),
        ("aws.edge.domain.name", "Voice.callers.dev", "voice.example.com"),
        ("aws.vad.machine_image", "ami-xyz", "ami-0123456789abcdef0"),
        ("aws.vad.machine_image", "ami-0123456789", "ami-0123456789abcdef0"),
        ("aws.asr.1.purchase.reservation_id", "cr-ü", "cr-0123456789abcdef0"),
        (
            "aws.edge.certificate_arn",
            "arn:aws:acm:us-east-1:123456789012:certificate/ü 💥\x92",
            "arn:aws:acm:us-east-1",
        ),
        ("aws.edge.trace_collector", "https://collector.example.com/ü", "https://collector.example.com/v1/traces"),
        ("aws.edge.allowed_origins", ["https://💥"], "https://app.example.com"),
        ("aws.edge.allowed_origins", ["https://[f35e]"], "https://app.example.com"),
        ("aws.observability.chat_webhook_secret", "ü", "oncall/webhook"),
        ("aws.observability.email", "on call@example.com", "oncall@example.com"),
        ("aws.network.interface_endpoints", ["com.amazonaws/ü"], "ecr.dkr"),
        *(
            ("aws.availability_zones", [zone], "us-east-1a")
            for zone in (
                "us-east-1",
                "us-east-1ab",
                "us-east-1C",
                "us-east-11",
                "use1-az3",
                "us-east-1-bos-1a",
                "us-east-1ü",
            )
        ),
        ("aws.state.restore_from", "ü", "production-state-2026-11-22"),
        ("aws.edge.gateway.measured.date", "\u0662\u0660\u0662\u0666-11-22", "2026-11-22"),
        ("images.gateway", "latest", "sha256:0123456789abcdef"),
        (
            "azure.existing",
            {"registry_id": f"{GROUP}/Microsoft.ContainerRegistry/registries/ü 💥\x92"},
            "registries/images",
        ),
        ("azure.existing", {"log_workspace_id": f"{GROUP}/Microsoft.OperationalInsights/workspaces/ü"}, "/shared-logs"),
        ("azure.existing", {"private_dns_zones": [f"{GROUP}/Microsoft.Network/privateDnsZones/ü"]}, "azurecr.io"),
        ("azure.access", {"kind": "peering", "network_id": "/subscriptions/mine/x"}, "/virtualNetworks/hub"),
        (
            "azure.pools.0.purchase",
            {"option": "capacity-reservation", "group_id": "a100"},
            "capacityReservationGroups/a100",
        ),
        ("azure.admin_groups", ["Admins"], "11111111-2222-3333-4444-555555555555"),
        ("azure.hub_token_secret", "hub_token", "engine-key"),
        ("azure.access", {"kind": "public", "authorized_ranges": ["everywhere"]}, "198.51.100.0/24"),
        ("azure.kubernetes_version", "1.33.2", "1.33"),
        ("azure.pools.0.name", "GPU-pool", "h100"),
    ],
)
def test_a_text_that_does_not_match_its_pattern_is_rejected_with_an_example(
    setting: str, value: object, example: str, tmp_path: Path
) -> None:
    content = edit_document({setting: value}, AZURE_BASE if setting.startswith("azure") else BASE)
    (problem,) = [each for each in problems_in(content, tmp_path) if "should be" in each.message]
    assert example in problem.message.partition("such as")[2]
    assert f"`{setting}" in problem.message
    assert "^" not in problem.message


@pytest.mark.parametrize(
    ("old", "new", "culprit", "message"),
    [
        (
            "name: pairs",
            "name: cells",
            "cells\n      vm_size: Standard_NC96ads_A100_v4\n      nodes: {min: 1, max: 2}",
            "`azure.pools.1.name`: cells is listed twice",
        ),
        (
            "name: qwen\n",
            "name: pair\n",
            "name: pair\n      model: qwen3",
            "`azure.services.3.name`: pair is listed twice",
        ),
        ('["1", "2", "3"]', '["1", "2", "1"]', '"1", "2", "1"', "`azure.availability_zones.2`: 1 is listed twice"),
        (
            "admin_groups: [",
            "admin_groups: [11111111-2222-3333-4444-555555555555, ",
            "admin_groups: [",
            "`azure.admin_groups.1`: 11111111-2222-3333-4444-555555555555 is listed twice",
        ),
        (
            "pod_cidr: 10.244.0.0/16",
            "pod_cidr: 10.60.0.0/16",
            "pod_cidr",
            "`azure.network.pod_cidr`: 10.60.0.0/16 overlaps",
        ),
        (
            "{cidr: 10.60.0.0/16",
            "{cidr: 10.60.0.0/24",
            "cidr: 10.60.0.0/24",
            "`azure.network.cidr`: 10.60.0.0/24 is a /24",
        ),
        ("pool: cells", "pool: cell", "pool: cell\n", "`cell` is not a pool of this file; did you mean `cells`?"),
        (
            "pools: [a100]",
            "pools: [zzz]",
            "zzz",
            "`zzz` is not a pool of this file; use `a100`, `cells`, `h200` or `pairs`",
        ),
        ("location: southcentralus", "location: westeuropa", "westeuropa", "did you mean `westeurope`?"),
        (
            "location: southcentralus",
            "location: mars",
            "mars",
            "`mars` is not a known Azure region in voice_blueprint/catalog/vm_sizes.yaml",
        ),
        ("Standard_D8ds_v5", "Standard_D8ds_v55", "Standard_D8ds_v55", "did you mean `Standard_D8ds_v5`?"),
        ("model: qwen3-8b", "model: qwen3-8c", "qwen3-8c", "did you mean `qwen3-8b`?"),
        ("model: voxtral-4b-tts, ref", "model: voxtral-4b, ref", "voxtral-4b, ref", "did you mean `voxtral-4b-tts`?"),
    ],
)
def test_an_azure_mistake_is_reported_as_one_problem_with_its_line(
    old: str, new: str, culprit: str, message: str, tmp_path: Path
) -> None:
    content = AZURE_BASE.replace(old, new, 1)
    (problem,) = problems_in(content, tmp_path)
    assert message in problem.message
    assert problem.line == line_number(content, culprit)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("network.service_cidr", "172.31.0.0/16", "172.31.0.0/16 overlaps 172.31.0.0/16, which AKS reserves"),
        ("network.service_cidr", "172.30.8.0/24", "172.30.8.0/24 overlaps 172.30.0.0/16, which AKS reserves"),
        ("network.pod_cidr", "172.28.0.0/14", "172.28.0.0/14 overlaps 172.30.0.0/16, which AKS reserves"),
        ("network.cidr", "172.30.0.0/16", "172.30.0.0/16 overlaps 172.30.0.0/16, which AKS reserves"),
        ("network.cidr", "172.31.252.0/22", "172.31.252.0/22 overlaps 172.31.0.0/16, which AKS reserves"),
        ("network.service_cidr", "10.16.0.0/12", "is a /12; a range of services is a /13 to a /26"),
        ("network.service_cidr", "10.61.0.0/27", "is a /27; a range of services is a /13 to a /26"),
        ("network.service_cidr", "10.61.0.0/32", "is a /32; a range of services is a /13 to a /26"),
        ("access.authorized_ranges", [f"203.0.113.{n}" for n in range(200)], "at most 199"),
        ("pools.3.purchase.max_usd_per_hour", 1.123456, "1.123456 has more than 5 decimal places"),
        ("pools.3.purchase.max_usd_per_hour", 0.000001, "write 0.00001"),
        ("model_cache_gib", 102_401, "less than or equal to 102400"),
    ],
)
def test_a_value_that_azure_rejects_is_rejected_with_its_limit(
    setting: str, value: object, message: str, tmp_path: Path
) -> None:
    edits: dict[str, object] = {"azure.pools.3.purchase": {"option": "spot"}}
    if setting.startswith("access"):
        edits["azure.access"] = {"kind": "public"}
    content = edit_document(edits | {f"azure.{setting}": value}, AZURE_BASE)
    (problem,) = problems_in(content, tmp_path)
    assert f"`azure.{setting}`" in problem.message
    assert message in problem.message


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("network.service_cidr", "10.64.0.0/13"),
        ("network.service_cidr", "172.29.255.192/26"),
        ("network.cidr", "172.29.0.0/16"),
        ("access.authorized_ranges", [f"203.0.113.{n}" for n in range(199)]),
        ("pools.3.purchase.max_usd_per_hour", 1.12345),
        ("model_cache_gib", 102_400),
    ],
)
def test_a_value_at_a_limit_of_azure_loads(setting: str, value: object, tmp_path: Path) -> None:
    edits: dict[str, object] = {"azure.pools.3.purchase": {"option": "spot"}}
    if setting.startswith("access"):
        edits["azure.access"] = {"kind": "public"}
    load_text(edit_document(edits | {f"azure.{setting}": value}, AZURE_BASE), tmp_path)


@pytest.mark.parametrize("cpus", [0.005, 0.01, 0.09])
def test_a_gateway_pod_that_carries_no_call_is_rejected(cpus: float, tmp_path: Path) -> None:
    (problem,) = problems_in(edit_document(callers(gateway={"cpus": cpus}), AZURE_BASE), tmp_path)
    assert f"`azure.callers.edge.gateway.cpus` is {cpus}" in problem.message
    assert "greater than or equal to 0.1" in problem.message


def test_the_smallest_gateway_pod_has_a_recommended_size(tmp_path: Path) -> None:
    content = edit_document(callers(gateway={"cpus": 0.1, "memory_gib": 1}) | peak(100), AZURE_BASE)
    assert "load-fits-callers" not in {each.check.id for each in checks.run_checks(load_text(content, tmp_path))}


@pytest.mark.parametrize("name", ["system", "cpu"])
def test_a_gpu_pool_with_the_name_of_another_pool_is_rejected(name: str, tmp_path: Path) -> None:
    content = AZURE_BASE.replace("name: a100", f"name: {name}").replace("pools: [a100]", f"pools: [{name}]")
    (problem,) = problems_in(content, tmp_path)
    assert f"`azure.pools.3.name`: {name} is the name of" in problem.message
    assert "use another name" in problem.message
    assert problem.line == line_number(content, f"- name: {name}")


def test_enum_values_are_case_sensitive(tmp_path: Path) -> None:
    (problem,) = problems_in(edit_document({"azure.maintenance": {"day": "sunday"}}, AZURE_BASE), tmp_path)
    assert "should be 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday' or 'Sunday'" in problem.message
