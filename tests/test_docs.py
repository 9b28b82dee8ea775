"""Links, anchors, commands, targets and paths in documents exist."""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache, partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import yaml
from botocore import xform_name
from pydantic import ValidationError
from typer import Abort
from typer._click import Command  # typer carries a click of its own
from typer._click.exceptions import UsageError
from typer.core import TyperGroup

from tests.excerpts import WRITE, excerpt, outputs, recorded, update_excerpts
from tests.nonempty import nonempty
from voice_blueprint.file.model.deployment import Deployment
from voice_gateway.traces import TRACED_STAGES
from voice_ops.cli import COMMANDS, load_command

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for path in (
        *ROOT.glob("*.md"),
        *ROOT.glob(".github/*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("images/*/*.md"),
        *ROOT.glob("voice_sandbox/*/*.md"),
    )
)
TOP_FOLDERS = {
    path.name for path in ROOT.iterdir() if path.is_dir() and (path.name[0] != "." or path.name == ".ci")
} - {"build"}
"""Folders in the root; code that starts with one of them is a path."""
CREATED_BY_COMMANDS = ("deployments/mine.yaml", "deployments/staging.yaml")
"""Files that a guide's commands create."""

_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*(?:\[\][^\]]*)*\]\(([^)\s]+)\)")


@cache
def read_document(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def anchors(name: str) -> set[str]:
    """Return anchors like GitHub: lower case, no punctuation, hyphens for spaces, and a number for duplicates."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ +(.+)$", _FENCED.sub("", read_document(name)), re.MULTILINE):
        shown = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def broken_links(name: str) -> list[str]:
    broken = []
    for link in _LINK.findall(_CODE.sub("", _FENCED.sub("", read_document(name)))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = ((ROOT / name).parent / path).resolve() if path else ROOT / name
        if not target.exists() or (anchor and anchor not in anchors(str(target.relative_to(ROOT)))):
            broken.append(link)
    return broken


def code_in(name: str) -> list[str]:
    """Return every line of code blocks without comments, and all inline code."""
    blocks = [line for block in _FENCED.findall(read_document(name)) for line in block.splitlines()[1:-1]]
    return [line.partition(" #")[0] for line in blocks] + _CODE.findall(_FENCED.sub("", read_document(name)))


def shown() -> list[tuple[str, str]]:
    """Return the code of all documents, each with its document."""
    return nonempty((name, code) for name in DOCUMENTS for code in code_in(name))


def test_links_have_targets() -> None:
    broken = {name: broken_links(name) for name in DOCUMENTS}
    assert {name: links for name, links in broken.items() if links} == {}


def test_a_link_that_has_no_target_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other.md").write_text("# One heading\n", encoding="utf-8")
    (tmp_path / "page.md").write_text("[a](other.md#one-heading) [b](other.md#two) [c](gone.md)\n", encoding="utf-8")
    monkeypatch.setattr("tests.test_docs.ROOT", tmp_path)
    assert broken_links("page.md") == ["other.md#two", "gone.md"]


def test_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", read_document("Makefile"), re.MULTILINE))
    for name, code in shown():
        for target in re.findall(r"(?:^|[\s$;])make ([a-z][a-z0-9-]*)\b", code):
            assert target in targets, f"{name}: no target `make {target}`"


def options_for(command: Command) -> set[str]:
    parts = command.commands.values() if isinstance(command, TyperGroup) else ()
    own = {option for parameter in command.params for option in parameter.opts}
    return own.union({"--help"}, *(options_for(part) for part in parts))


def test_commands_and_options_exist() -> None:
    for name, code in shown():
        for command, given in re.findall(r"(?:^|[\s/$;])voice ([a-z][a-z-]*)\b((?: [^|;#]+)?)", code):
            assert command in COMMANDS, f"{name}: no command `voice {command}`"
            options = set(re.findall(r"(?<=\s)--[a-z][a-z-]*", given))
            assert options <= options_for(load_command(command)), f"{name}: `voice {command}` has no {options}"


def test_paths_exist() -> None:
    """Code that starts with a root folder is a path there or next to the document; ``<name>`` matches any."""
    for name, code in shown():
        for path in re.findall(r"(?:^|(?<=\s))([\w.-]+/[\w./<>*-]*\w[\w/<>*]*)", code):
            if path.split("/")[0] in TOP_FOLDERS and path not in CREATED_BY_COMMANDS:
                pattern = re.sub(r"<\w+>", "*", path.rstrip("/"))
                assert [*ROOT.glob(pattern), *(ROOT / name).parent.glob(pattern)], f"{name}: no {path}"


ACCOUNT = 'sh title="needs an account"'
"""Marker of code blocks whose commands need an account, as in all runbooks."""
FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
KINDS = {"sh", ACCOUNT, "text", "python", "yaml", "json", "mermaid"}
EDITS = ("voice init", "cp ", "sed -i")
"""Commands that write a deployment file."""
OFFLINE_COMMANDS = (
    *EDITS,
    "voice plan",
    "voice schema",
    "voice checks",
    "voice images",
    "voice diagram",
    "export ",
)
"""Commands that take seconds and run on every change; others run nightly."""
MANUAL_COMMANDS = {
    "voice sandbox --keep": "waits until it is interrupted",
    "voice sandbox --hosts deployments/hosts.yaml": "make rehearse-hosts",
    "voice gameday deployments/sandbox.yaml": "tests/ops/gameday",
    "voice cost deployments/mine.yaml --diff HEAD": "tests/ops/cost, in a git repository of its own",
}
"""Commands that are tested in another way, with the reason."""


def shell_blocks(name: str) -> list[tuple[str, str]]:
    """Return kind and dedented text of each block of shell commands in a document."""
    return [
        (ACCOUNT if name.startswith("docs/runbooks/") else kind, re.sub(f"^{indent}", "", text, flags=re.MULTILINE))
        for indent, kind, text in FENCE.findall(read_document(name))
        if kind in ("sh", ACCOUNT)
    ]


def commands_in(block: str) -> list[str]:
    """Return the commands of a block without comments, each in one line."""
    lines = (re.sub(r"(^|\s+)# .*", "", line) for line in block.replace("\\\n", "").splitlines())
    return [line.strip().removeprefix(".venv/bin/") for line in lines if line.strip()]


@cache
def documented_commands() -> list[tuple[str, str]]:
    """Return the commands of all documents that need no account, in order, each with its document."""
    found = [
        (name, command)
        for name in DOCUMENTS
        for kind, block in shell_blocks(name)
        for command in (commands_in(block) if kind != ACCOUNT else ())
        if not command.startswith("make ") and command not in MANUAL_COMMANDS
    ]
    return list(dict.fromkeys(found))


def quick_commands(name: str) -> list[str]:
    """Return the commands of a document that run on every change, in order."""
    return [each for document, each in documented_commands() if document == name and each.startswith(OFFLINE_COMMANDS)]


def test_every_code_block_is_of_a_tested_kind() -> None:
    for name in DOCUMENTS:
        pictures = {""} if name.startswith("images/") else set()
        benches = (
            {""} if "<!-- bench: " in read_document(name) else set()
        )  # bench/record.py writes what a bench printed
        queries = {"sql"} if name == "docs/archive.md" else set()  # images/gateway/tests/test_archive.py runs the same
        assert {kind for _, kind, _ in FENCE.findall(read_document(name))} <= KINDS | pictures | benches | queries, name


def test_a_block_of_commands_is_valid_shell() -> None:
    """Code blocks contain commands without a prompt or output, so that they can be copied."""
    blocks = [(name, block) for name in DOCUMENTS for _, block in shell_blocks(name)]
    for name, block in nonempty(blocks):
        done = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, check=False)  # noqa: S607
        assert done.stderr == "", f"{name}: {block}"
        assert not [command for command in commands_in(block) if command.startswith("$ ")], f"{name}: has a prompt"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_sample_output_matches_the_programs(name: str) -> None:
    text = read_document(name)
    if WRITE:
        (ROOT / name).write_text(update_excerpts(text), encoding="utf-8")
        text = (ROOT / name).read_text(encoding="utf-8")
    assert text == update_excerpts(text), "VOICE_WRITE_SCREENS=1 pytest tests/test_docs.py writes it again"
    assert len(list(outputs(text))) == [kind for _, kind, _ in FENCE.findall(text)].count("text"), "a screen is missing"


def test_an_excerpt_contains_the_requested_lines() -> None:
    screen = "a\nb 1\nc\nd\ne\n"
    assert excerpt(screen, []) == screen
    assert excerpt(screen, ["b … c", "d"]) == "b 1\nc\nd\n"
    assert excerpt(screen, ["a", "c … d"]) == "a\n...\nc\nd\n"
    with pytest.raises(LookupError, match="no line with 'a'"):
        excerpt(screen, ["c", "a"])


def voice_commands(name: str) -> Iterator[list[str]]:
    for _, block in shell_blocks(name):
        for command in commands_in(block):
            for given in re.findall(r"(?:^|&& |\()voice ((?:'[^']*'|\"[^\"]*\"|[^|;)>&'\"])+)", command):
                yield shlex.split(given)


def test_commands_parse() -> None:
    """Options, choices and arguments are parsed by the program; files and other inputs are not read."""
    for command, *arguments in nonempty(each for name in DOCUMENTS for each in voice_commands(name)):
        parsed = load_command(command)
        # After parsing, missing options would be prompted, but pytest has no input.
        with contextlib.suppress(Abort, OSError):
            if isinstance(parsed, TyperGroup) and arguments:
                parsed.commands[arguments[0]].make_context(arguments[0], arguments[1:])
            else:
                parsed.make_context(command, arguments)


def test_a_command_with_a_wrong_option_is_detected() -> None:
    with pytest.raises(UsageError, match="No such option: --nothing"):
        load_command("plan").make_context("plan", ["x.yaml", "--nothing"])


AWS = re.compile(r"(?:^|[;|&(]|\bdo)\s*aws ((?:[a-z0-9-]+ )+[^|;)]*)")
HIGH_LEVEL = {"logs tail", "s3 cp", "s3 ls", "s3 sync", "ecr get-login-password", "ssm start-session", "configure sso"}
"""Commands of the AWS CLI in addition to the operations of services."""
GLOBAL_OPTIONS = {"region", "query", "output", "profile", "no-cli-pager", "max-items"}
"""Options of every command of the AWS CLI, and of commands with pagination."""


def unknown_aws_commands(command: str) -> list[str]:
    """Return names in an `aws` command that are missing from the service's description."""
    service, operation, *rest = command.split()
    if f"{service} {operation}" in HIGH_LEVEL:
        return []
    with warnings.catch_warnings():
        model = botocore.session.get_session().get_service_model(service)
    operations = {xform_name(each, "-"): each for each in model.operation_names}
    if operation not in operations:
        return [f"{service} {operation}"]
    shape = model.operation_model(operations[operation]).input_shape
    members = {xform_name(each, "-"): shape.members[each].type_name for each in shape.members} if shape else {}
    known = {*members, *(f"no-{each}" for each, kind in members.items() if kind == "boolean"), *GLOBAL_OPTIONS}
    options = [each.removeprefix("--").partition("=")[0] for each in rest if each.startswith("--")]
    return [f"{service} {operation} --{each}" for each in options if each not in known]


def test_aws_commands_exist() -> None:
    commands = [command for name in DOCUMENTS for _, block in shell_blocks(name) for command in commands_in(block)]
    unknown = [each for command in commands for given in AWS.findall(command) for each in unknown_aws_commands(given)]
    assert any(map(AWS.search, commands))
    assert unknown == []


def test_a_nonexistent_aws_command_is_detected() -> None:
    assert unknown_aws_commands("ec2 describe-hosts-of-mine") == ["ec2 describe-hosts-of-mine"]
    assert unknown_aws_commands("ec2 describe-instances --instance-ids i --nothing") == [
        "ec2 describe-instances --nothing"
    ]


def test_cdk_options_exist() -> None:
    used: dict[str, set[str]] = {}
    for name in DOCUMENTS:
        for code in code_in(name):
            for command, given in re.findall(r"\bcdk ([a-z]+)([^|;#]*)", code):
                used.setdefault(command, {"--app"}).update(re.findall(r"(?<=\s)--[a-z][a-z-]*", given))
    assert {"bootstrap", "deploy", "diff", "synth"} <= used.keys()
    for command, options in used.items():
        done = subprocess.run(  # noqa: S603
            [ROOT / "node_modules/.bin/cdk", command, "--help"], capture_output=True, text=True, check=False
        )
        assert f"cdk {command}" in done.stdout
        assert options <= set(re.findall(r"--[a-z][a-z-]*", done.stdout)), command


def test_samples_of_data_and_programs_are_valid() -> None:
    samples = [(name, kind, text) for name in DOCUMENTS for _, kind, text in FENCE.findall(read_document(name))]
    assert {"python", "json", "yaml"} <= {kind for _, kind, _ in samples}
    for name, kind, text in samples:
        if kind == "python":
            compile(text, name, "exec")
        elif kind == "json":
            decoder, rest = json.JSONDecoder(), text.strip()
            while rest:
                _, end = decoder.raw_decode(rest)
                rest = rest[end:].strip()
        elif kind == "yaml":
            unknown = [error for error in _errors(yaml.safe_load(text)) if error["type"] == "extra_forbidden"]
            assert unknown == [], f"{name}: a deployment file has no such setting"


def _errors(document: object) -> list[Any]:
    """Return the errors of the deployment file model for a section."""
    try:
        Deployment.model_validate(document)
    except ValidationError as error:
        return [dict(each) for each in error.errors(include_context=False)]
    return []


def test_a_nonexistent_setting_is_detected() -> None:
    assert any(error["type"] == "extra_forbidden" for error in _errors({"aws": {"nothing": 1}}))


def test_the_gateways_readme_lists_the_stages_of_an_utterance() -> None:
    (listed,) = re.findall(r"\(with the stages ([^)]*)\)", read_document("images/gateway/README.md"))
    assert re.findall(r"`([^`]+)`", listed) == ["vad end, ship", *TRACED_STAGES, "commit"]


def test_documented_make_targets_are_run_by_ci() -> None:
    run = {"setup", "demo-page", *read_document(".ci/run").split(), *read_document(".ci/nightly").split()}
    blocks = "\n".join(block for name in DOCUMENTS for _, block in shell_blocks(name))
    assert set(re.findall(r"^make ([a-z-]+)", blocks, re.MULTILINE)) <= run, "neither .ci/run nor .ci/nightly runs it"


def run_documented(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(  # noqa: S603
        ["bash", "-c", command],  # noqa: S607
        cwd=folder,
        env=os.environ | {"PATH": path, "AWS_EC2_METADATA_DISABLED": "true"},
        input="aws\nus-east-1\nn\n500\n20000\n",  # to `voice init` without options
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the shipped files and the user's file, which most documents assume."""
    folder = tmp_path_factory.mktemp("files")
    shutil.copytree(ROOT / "deployments", folder / "deployments")
    assert run_documented("voice init deployments/mine.yaml", folder).returncode == 0
    return folder / "deployments"


def run_in_copy(folder: Path, files: Path, commands: Iterable[str]) -> None:
    """Run commands in the folder of the files; refusals by checks are accepted."""
    shutil.copytree(files, folder / "deployments")
    for command in commands:
        if command.startswith("voice init"):
            (folder / "deployments/mine.yaml").unlink(missing_ok=True)
        done = run_documented(command, folder)
        # A load above the capacity of the file is refused, and the table shows the required values.
        expected = {2} if "seed.yaml" in command else {0, 2} if "plan" in command and "--calls" in command else {0}
        assert done.returncode in expected, f"{command}: {done.stdout}{done.stderr}"


def test_commands_that_need_an_account_are_marked() -> None:
    """Regression: unmarked commands of `az`, and a load test of deployed engines, only failed in the long test."""
    unmarked = [command for _, command in documented_commands()]
    assert {command.split()[0] for command in unmarked} == {"cp", "export", "sed", "voice"}
    assert [command for command in unmarked if command.startswith(("voice call", "voice loadtest"))] == []


@pytest.mark.parametrize("name", sorted({name for name, _ in documented_commands() if quick_commands(name)}))
def test_documented_commands_run(name: str, files: Path, tmp_path: Path) -> None:
    run_in_copy(tmp_path, files, quick_commands(name))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "command"), [each for each in documented_commands() if not each[1].startswith(OFFLINE_COMMANDS)]
)
def test_long_documented_commands_run(name: str, command: str, files: Path, tmp_path: Path) -> None:
    """The commands before it in the document that write a deployment file run first."""
    before = takewhile(lambda each: each != (name, command), documented_commands())
    edits = [each for document, each in before if document == name and each.startswith(EDITS)]
    run_in_copy(tmp_path, files, [*edits, command])


def test_measured_commits_are_in_the_history() -> None:
    """Regression: commits that a later one had replaced were listed, so their measurements could not be repeated."""
    git = partial(subprocess.run, cwd=ROOT, capture_output=True, text=True, check=True)
    if git(["git", "rev-parse", "--is-shallow-repository"]).stdout.strip() == "true":
        pytest.skip("the history is not part of a shallow clone")
    history = git(["git", "log", "--format=%H"]).stdout.split()
    listed = set(
        re.findall(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,9}\b", read_document("docs/measurements.md"))
    )
    assert len(listed) > 10
    assert {commit for commit in listed if not any(each.startswith(commit) for each in history)} == set()


def test_the_changelog_begins_with_the_current_version() -> None:
    version = tomllib.loads(read_document("pyproject.toml"))["project"]["version"]
    newest, *_ = re.findall(r"^## (\S+?),", read_document("CHANGELOG.md"), re.MULTILINE)
    assert newest == version, "write a section of CHANGELOG.md for the version of pyproject.toml"


def test_the_documented_price_of_the_small_file_matches_the_command() -> None:
    row = re.search(r"^  total +(\d+) +(\d+) +(\d+)$", recorded("voice cost deployments/small.yaml"), re.MULTILINE)
    assert row
    low, expected, peak = map(int, row.groups())
    assert f"about {round(expected, -1)} USD a month" in read_document("README.md")
    assert f"{round(low, -1)} to {round(peak, -1)} USD a month" in read_document("docs/guides/aws.md")


def test_targets_are_listed_in_80_columns() -> None:
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607
    assert len(done.stdout.splitlines()) > 30
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []


def test_the_readme_is_short() -> None:
    assert len(read_document("README.md").splitlines()) <= 90
    assert len(read_document("README.md").split()) <= 700
