"""A repository created by `voice new` with only the installed wheel."""

import json
import os
import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from tests.package.installed import CONSTRAINTS, WHEELS, Installed, build, earlier_release
from tests.test_pipelines import FILE, Machine, scripts
from voice_blueprint.shipped import CHECKOUT_FOLDER
from voice_ops.new import repository as new
from voice_ops.new.repository import EXECUTABLE_FILES, render_repository_files
from voice_sandbox.rehearsals.azure import Rehearsal

ANSWERS = {
    "aws": ["--cloud", "aws", "--region", "us-east-1", "--calls", "500", "--budget", "20000"],
    "azure": ["--cloud", "azure", "--region", "southcentralus", "--calls", "100", "--budget", "20000"],
}


def write_repository(installation: Installed, folder: Path, cloud: str) -> Path:
    installation.voice(folder, "new", "our platform", *ANSWERS[cloud])
    return folder / "our platform"


def test_a_repository_is_planned_and_synthesized_by_its_own_app(installation: Installed, tmp_path: Path) -> None:
    repository = write_repository(installation, tmp_path, "aws")
    plan = json.loads(installation.voice(repository, "plan", "deployments/staging.yaml", "--json"))
    assert plan["refused"] is False
    context = json.loads((repository / "cdk.json").read_text(encoding="utf-8"))["context"]
    done = installation.run(
        repository,
        "python",
        "app.py",
        CDK_CONTEXT_JSON=json.dumps(context | {"deployment": "deployments/staging.yaml"}),
        CDK_OUTDIR="cdk.out",
        PATH=f"{installation.bin}:/usr/bin:/bin",
    )
    assert done.returncode == 0, done.stderr
    stacks = {file.name.removesuffix(".template.json") for file in (repository / "cdk.out").glob("*.template.json")}
    assert {"staging-network", "staging-edge", "staging-asr-gpu"} <= stacks


def test_the_pulumi_projects_run_with_the_policy_pack(tmp_path: Path) -> None:
    """Runs the projects with the local engine, since Pulumi's command line would require a download."""
    from typer.testing import CliRunner  # noqa: PLC0415

    from voice_ops.cli import app  # noqa: PLC0415

    repository = tmp_path / "platform"
    result = CliRunner().invoke(app, ["new", str(repository), *ANSWERS["azure"]])
    assert result.exit_code == 0, result.output
    projects = [repository / "projects" / name for name in ("cluster", "workloads")]
    with Rehearsal("staging", {}, projects, repository / "projects/policy") as rehearsal:
        done = rehearsal.run()
        assert [each.project.name for each in done] == ["voice-cluster", "voice-workloads"]
        assert all(len(each.preview.graph.resources) > 10 for each in done)
        assert [each for each in rehearsal.find_violations() if each.mandatory] == []


def test_nothing_is_overwritten(installation: Installed, tmp_path: Path) -> None:
    repository = tmp_path / "platform"
    repository.mkdir()
    (repository / "app.py").write_text("ours")
    done = installation.run(tmp_path, "voice", "new", "platform", *ANSWERS["aws"])
    assert done.returncode == 2
    assert "app.py" in done.stderr
    assert [file.name for file in repository.iterdir()] == ["app.py"]
    assert (repository / "app.py").read_text() == "ours"


def test_generated_files_do_not_refer_to_the_checkout() -> None:
    texts = render_repository_files("staging")
    for path, text in texts.items():
        if path.endswith(".md") or path == "deployments/schema.json":
            continue
        assert not re.search(r"\bmake\b", text), path
        assert "stacks/voice_stacks/azure/" not in text, path
        assert "../../../" not in text, path
    for path in (path for path in texts if path.endswith((".yml", ".yaml"))):
        assert yaml.safe_load(texts[path].replace("!reference", "")), path
    named = set(re.findall(r"\.ci/[a-z-]+(?:\.sh)?", "\n".join(texts.values())))
    assert named <= set(texts), "a pipeline calls a script that is not written"
    assert set(EXECUTABLE_FILES) <= set(texts)


def test_both_kinds_of_pipeline_run_the_same_scripts() -> None:
    texts = render_repository_files("staging")
    github = scripts("".join(text for path, text in texts.items() if path.startswith(".github/")))
    gitlab = scripts(texts[".gitlab-ci.yml"])
    assert github == gitlab
    assert {".ci/setup", ".ci/deploy-aws follow", ".ci/images"} < gitlab
    assert not {"ci", "nightly"} & yaml.safe_load(texts[".gitlab-ci.yml"].replace("!reference", "")).keys()


@pytest.mark.parametrize("script", [f"deploy-aws follow {FILE}", f"deploy-azure deploy {FILE} old"])
def test_each_revision_is_set_up_by_its_own_script(script: str, tmp_path: Path) -> None:
    """Rollouts continue from a copy of their revision; rollbacks use a copy of the previous revision."""
    machine = Machine(tmp_path)
    for path, text in render_repository_files("staging").items():
        if path.startswith(".ci/"):
            (tmp_path / path).write_text(text, encoding="utf-8")
    setup = 'mkdir -p "$5/.ci"; printf "echo set up $6 >>$CALLS" >"$5/.ci/setup"; chmod +x "$5/.ci/setup"'
    (tmp_path / "bin/git").write_text(f"#!/usr/bin/env bash\n{setup}\n", encoding="utf-8")
    done = machine.run(f".ci/{script}", UNDER_WAY="old older", STACK="live", FAILING="kubectl*")
    assert "set up old" in machine.calls, done.stderr
    assert not [call for call in machine.calls if call.startswith("make")]


@pytest.mark.parametrize("text", new._PATH_REPLACEMENTS)
def test_replaced_texts_exist_in_the_shipped_files(text: str) -> None:
    """A replacement that no longer matches would silently keep the text of the checkout."""
    shipped = [
        *map(Path, new._SHIPPED_FILES),
        *(path.relative_to(CHECKOUT_FOLDER) for path in new._STACKS_FOLDER.glob("*/*.yaml")),
    ]
    assert any(text in (CHECKOUT_FOLDER / path).read_text(encoding="utf-8") for path in shipped)


def test_scripts_are_valid_shell(tmp_path: Path) -> None:
    for path, text in render_repository_files("staging").items():
        if path.startswith(".ci/"):
            (tmp_path / Path(path).name).write_text(text, encoding="utf-8")
    scripts = sorted(tmp_path.iterdir())
    done = subprocess.run(  # noqa: S603
        ["shellcheck", "--shell=bash", *scripts],  # noqa: S607
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_an_external_app_uses_constructs_like_the_guide(installation: Installed, tmp_path: Path) -> None:
    page = (CHECKOUT_FOLDER / "docs/guides/own-repository.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "foreign.py").write_text(example, encoding="utf-8")
    (tmp_path / "stacks").mkdir()  # as every CDK user has
    (tmp_path / "stacks/__init__.py").touch()
    done = installation.run(
        tmp_path, "python", "foreign.py", CDK_OUTDIR="cdk.out", PATH=f"{installation.bin}:/usr/bin:/bin"
    )
    assert done.returncode == 0, done.stderr
    template = json.loads((tmp_path / "cdk.out/calls.template.json").read_text(encoding="utf-8"))
    types = [resource["Type"] for resource in template["Resources"].values()]
    assert types.count("AWS::EC2::VPC") == 1
    assert types.count("AWS::EC2::Subnet") == 6
    (group,) = [each for each in template["Resources"].values() if each["Type"] == "AWS::ElastiCache::ReplicationGroup"]
    assert group["Properties"]["TransitEncryptionEnabled"] is True
    assert group["Properties"]["CacheNodeType"] == "cache.t4g.small"


PREVIOUS_VERSION = "0.0.9"
RELEASE_CHANGES = (
    ("constructs/voice_constructs/aws/state.py", "Host name of the Valkey primary", "Address of the Valkey primary"),
    ("constructs/voice_constructs/aws/state.py", "port=VALKEY.number,", "port=VALKEY.number + 1,"),
)
"""Differences of the previous release: a description, which can be updated in place, and an immutable property."""


@pytest.mark.nightly
@pytest.mark.timeout(1800)  # pip unpacks a gigabyte
def test_an_upgrade_from_the_previous_release_lists_its_changes(installation: Installed, tmp_path: Path) -> None:
    """Follows README.md of the repository: record, change the version in requirements.txt, run `.ci/setup`, compare."""
    build(earlier_release(tmp_path / "tree", PREVIOUS_VERSION, RELEASE_CHANGES), tmp_path / WHEELS)
    repository = write_repository(installation, tmp_path, "aws")
    requirements = repository / "requirements.txt"
    here = f"=={metadata.version('voice-serve')}"
    text = requirements.read_text(encoding="utf-8")
    assert text.count(here) == 1
    requirements.write_text(text.replace(here, f"=={PREVIOUS_VERSION}"), encoding="utf-8")
    environment = os.environ | {
        "PIP_FIND_LINKS": f"{installation.bin.parents[1] / WHEELS} {tmp_path / WHEELS}",
        "PIP_CONSTRAINT": str(installation.bin.parents[1] / CONSTRAINTS),
        "PIP_NO_COMPILE": "1",  # these commands import only a fifth of 25,000 files
    }

    def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603
            command, cwd=repository, env=environment, check=False, capture_output=True, text=True
        )

    def plan(*options: str) -> subprocess.CompletedProcess[str]:
        return run(repository / ".venv/bin/voice", "plan", "deployments/staging.yaml", *options)

    done = run(".ci/setup")
    assert done.returncode == 0, done.stderr
    assert plan("--record", "releases").returncode == 0
    requirements.write_text(text, encoding="utf-8")
    done = run(".ci/setup")
    assert done.returncode == 0, done.stderr
    refused = plan("--against", "releases")
    assert refused.returncode == 2, refused.stdout
    assert "1 to update, 1 to replace, " in refused.stdout
    (store,) = re.findall(r"AWS::ElastiCache::ReplicationGroup staging-state/(\w+)", refused.stderr)
    assert "Port" in refused.stderr
    accepted = plan("--against", "releases", "--accept-replace", store)
    assert accepted.returncode == 0, accepted.stderr
    assert plan("--record", "releases").returncode == 0
    assert " unchanged" in plan("--against", "releases").stdout
