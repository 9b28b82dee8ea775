"""The shell code of each pipeline job, run with fakes of programs that need an account."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = {file.stem: yaml.safe_load(file.read_text()) for file in (ROOT / ".github/workflows").glob("*.yml")}
FAKES = (
    "apt-get",
    "aws",
    "az",
    "cdk",
    "cosign",
    "docker",
    "gh",
    "git",
    "grype",
    "kubectl",
    "kubelogin",
    "make",
    "pulumi",
    "python",
    "skopeo",
    "sudo",
    "syft",
    "voice",
)
MATRIX_VALUES = {"${{ matrix.job }}": "images"}
"""Sample value of each matrix variable."""
FAKE = r"""#!/usr/bin/env bash
echo "$(basename "$0") $*" >>"$CALLS"
case "$(basename "$0") $*" in
  "voice images build-args router"*) echo "az acr import --name x --source y@sha256:1 --image router:1-abc" ;;
  "voice images build-args"*) echo "docker buildx build --tag $5/$3:1-abc --push ." ;;
  "skopeo inspect"*) printf 'sha256:%064d\n' 7 ;;
  "git worktree add"*) mkdir -p "$5" ;;
  "git rev-parse"*) echo 0123abc ;;
  "voice rollout"*"--current") echo "${UNDER_WAY:-}" ;;
esac
[[ -z ${CONTINUING:-} || "$(basename "$0") $*" != $CONTINUING ]] || exit 75
[[ -n ${FAILING:-} && "$(basename "$0") $*" == $FAILING && ! -e $CALLS.failed ]] || exit 0
touch "$CALLS.failed"
exit 1
"""
"""Records its call; ends with 75 if the call matches CONTINUING, and fails once if it matches FAILING."""


class Machine:
    """A folder with the scripts of .ci, and fakes of all programs that they call."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls_file = folder, folder / "calls"
        shutil.copytree(ROOT / ".ci", folder / ".ci")
        (folder / "bin").mkdir()
        for name in FAKES:
            (folder / "bin" / name).write_text(FAKE)
            (folder / "bin" / name).chmod(0o755)

    def run(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(  # noqa: S603
            ["bash", "-e", "-c", script],  # noqa: S607
            cwd=self.folder,
            env={"PATH": path, "HOME": str(self.folder), "CALLS": str(self.calls_file), **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines() if self.calls_file.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def steps() -> list[tuple[str, str, str, dict[str, Any]]]:
    return [
        (name, job, step["run"], step.get("env", {}))
        for name, workflow in sorted(WORKFLOWS.items())
        for job, body in workflow["jobs"].items()
        for step in body["steps"]
        if "run" in step
    ]


@pytest.mark.parametrize(("name", "job", "script", "environment"), steps())
def test_the_shell_script_of_every_step_runs(
    name: str, job: str, script: str, environment: dict[str, Any], machine: Machine
) -> None:
    values = {key: MATRIX_VALUES.get(value, f"{key.lower()}-x") for key, value in environment.items()}
    done = machine.run(script, **values)
    assert done.returncode == 0, f"{name}, {job}: {done.stdout}{done.stderr}"
    assert machine.calls


def scripts(text: str) -> set[str]:
    """Return the scripts of .ci that a pipeline calls, with their actions."""
    return set(re.findall(r"\.ci/[a-z-]+(?: (?:plan|deploy|follow)\b)?", text))


def test_both_kinds_of_pipeline_run_the_same_scripts() -> None:
    github = scripts("\n".join(run for _, _, run, _ in steps()))
    assert github == scripts((ROOT / ".gitlab-ci.yml").read_text().partition("stages:")[2])
    deploys = {f"deploy-{each}" for each in ("aws plan", "aws deploy", "aws follow", "azure plan", "azure deploy")}
    assert github == {f".ci/{each}" for each in {"run", "nightly", "images", "drift"} | deploys}


def test_every_action_is_pinned_to_a_commit_with_a_version_comment() -> None:
    text = "\n".join(file.read_text() for file in (ROOT / ".github/workflows").glob("*.yml"))
    uses = re.findall(r"uses: (.+)", text)
    assert len(uses) > 10
    assert [each for each in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v[0-9.]+", each)] == []


def test_workflows_have_no_permissions_beyond_those_of_their_jobs() -> None:
    assert [name for name, workflow in WORKFLOWS.items() if workflow["permissions"] != {}] == []


FILE = "deployments/mine.yaml"
DEPLOY = {
    "aws": [f"voice rollout {FILE} --start 0123abc abc"],
    "azure": [
        f"pulumi -C stacks/voice_stacks/azure/{project} {what}"
        for project in ("cluster", "workloads")
        for what in (
            "config set --stack live deployment ../../../../deployments/mine.yaml",
            "up --stack live --yes --policy-pack ../policy",
        )
    ],
}
PROBE = {
    "aws": f"voice status {FILE}",
    "azure": "kubectl --namespace voice wait --for=condition=Available deployment --all --timeout=15m",
}
SETUP_COMMANDS = {"aws": ["git rev-parse HEAD"], "azure": []}
ROLLBACK_COMMANDS = {
    "aws": [
        "git worktree add --force --detach build/abc abc",
        "make -C build/abc setup",
        f"voice rollout {FILE} --start abc --minutes 0",
    ],
    "azure": [
        "git worktree add --force --detach build/previous abc",
        "make -C build/previous setup",
        *DEPLOY["azure"],
    ],
}
ROLLING_BACK = {"aws": "rolling back to abc", "azure": "rolled back to abc"}


@pytest.mark.parametrize("cloud", DEPLOY)
def test_a_deploy_is_probed(cloud: str, machine: Machine) -> None:
    done = machine.run(f".ci/deploy-{cloud} deploy {FILE} abc", STACK="live")
    assert done.returncode == 0, done.stderr
    assert machine.calls == [*SETUP_COMMANDS[cloud], *DEPLOY[cloud], PROBE[cloud]]


@pytest.mark.parametrize("cloud", DEPLOY)
def test_a_deploy_with_a_failed_probe_rolls_back(cloud: str, machine: Machine) -> None:
    done = machine.run(f".ci/deploy-{cloud} deploy {FILE} abc", STACK="live", FAILING=f"{PROBE[cloud][:9]}*")
    assert done.returncode == 1
    assert machine.calls == [*SETUP_COMMANDS[cloud], *DEPLOY[cloud], PROBE[cloud], *ROLLBACK_COMMANDS[cloud]]
    assert ROLLING_BACK[cloud] in done.stderr


@pytest.mark.parametrize("cloud", DEPLOY)
def test_a_deploy_that_fails_is_not_probed_and_rolls_back(cloud: str, machine: Machine) -> None:
    first = DEPLOY[cloud][0]
    done = machine.run(f".ci/deploy-{cloud} deploy {FILE} abc", STACK="live", FAILING=first)
    assert done.returncode == 1
    assert machine.calls == [*SETUP_COMMANDS[cloud], first, *ROLLBACK_COMMANDS[cloud]]


def test_a_rollout_in_progress_is_not_rolled_back(machine: Machine) -> None:
    done = machine.run(f".ci/deploy-aws deploy {FILE} abc", CONTINUING="voice rollout*--start*")
    assert done.returncode == 0, done.stderr
    assert machine.calls == [*SETUP_COMMANDS["aws"], *DEPLOY["aws"]]


def test_without_a_rollout_nothing_is_followed(machine: Machine) -> None:
    assert machine.run(f".ci/deploy-aws follow {FILE}").returncode == 0
    assert machine.calls == [f"voice rollout {FILE} --current"]


def test_the_probe_includes_a_call_if_a_server_is_reported(machine: Machine) -> None:
    machine.run(".ci/deploy-aws deploy f.yaml abc", PROBE_SERVER="https://api.example.org", PROBE_AUDIO="a.wav")
    assert machine.calls[-1] == "voice call a.wav --server https://api.example.org --auth iam"


@pytest.mark.parametrize("cloud", DEPLOY)
def test_a_plan_reports_everything_even_if_a_part_fails(cloud: str, machine: Machine) -> None:
    done = machine.run(f".ci/deploy-{cloud} plan f.yaml report.md", FAILING="voice plan*")
    assert done.returncode == 1
    report = (machine.folder / "report.md").read_text()
    assert report.count("<details>") == report.count("</details>") == 3
    assert "voice cost f.yaml --diff origin/main" in report


IMAGES = ".ci/images registry/x gateway BASE=sha256:1"
SIGNING = {"SIGNING_KEY": "awskms:///alias/voice-images", "BUILDER": "https://builders.dev/one"}


def test_an_image_is_signed_by_its_digest_after_its_scan(machine: Machine) -> None:
    done = machine.run(IMAGES, **SIGNING)
    assert done.returncode == 0, done.stderr
    digest = f"registry/x/gateway@sha256:{7:064}"
    assert [call.split()[0] for call in machine.calls] == [
        "voice",
        "docker",
        "skopeo",
        "syft",
        "python",
        "grype",
        "skopeo",
        "python",
        "git",
        "git",
        "cosign",
        "cosign",
        "cosign",
    ]
    signed, *attested = machine.calls[10:]
    # The tools on hosts can only verify this format.
    form = "--new-bundle-format=false --use-signing-config=false --tlog-upload=false"
    assert signed == f"cosign sign --yes --key awskms:///alias/voice-images {form} {digest}"
    assert [call.split("--type ")[1].split()[0] for call in attested] == ["cyclonedx", "slsaprovenance1"]
    assert all(call.endswith(digest) and form in call for call in attested)
    provenance = json.loads((machine.folder / "build/images/gateway.provenance.json").read_text())
    assert provenance["buildDefinition"]["externalParameters"] == {"image": "gateway", "from": ["BASE=sha256:1"]}
    assert provenance["buildDefinition"]["resolvedDependencies"][0]["digest"] == {"gitCommit": "0123abc"}
    assert provenance["runDetails"]["builder"]["id"] == SIGNING["BUILDER"]


def test_images_imported_by_an_acr_are_signed_in_the_acr(machine: Machine) -> None:
    done = machine.run(".ci/images x.azurecr.io router UPSTREAM=sha256:1", **SIGNING)
    assert done.returncode == 0, done.stderr
    assert "skopeo inspect --format {{.Digest}} docker://x.azurecr.io/router:1-abc" in machine.calls
    assert [call.split()[-1] for call in machine.calls if call.startswith("cosign sign ")] == [
        f"x.azurecr.io/router@sha256:{7:064}"
    ]


def test_nothing_is_built_without_a_key_to_sign_it(machine: Machine) -> None:
    refused = machine.run(IMAGES)
    assert refused.returncode != 0
    assert "SIGNING_KEY" in refused.stderr
    assert machine.calls == []


@pytest.mark.parametrize("failing", ["docker*", "skopeo*", "syft*", "grype*", "python*"])
def test_images_that_failed_are_never_signed(failing: str, machine: Machine) -> None:
    assert machine.run(IMAGES, FAILING=failing, **SIGNING).returncode == 1
    assert not [call for call in machine.calls if call.startswith("cosign")]


def test_drift_of_one_file_does_not_hide_another(machine: Machine) -> None:
    done = machine.run(".ci/drift a.yaml b.yaml", FAILING="voice status a.yaml")
    assert done.returncode == 1
    assert machine.calls == ["voice status a.yaml", "voice status b.yaml"]


@pytest.mark.parametrize("script", ["deploy-aws", "deploy-azure"])
def test_an_unknown_action_is_refused(script: str, machine: Machine) -> None:
    done = machine.run(f".ci/{script} destroy f.yaml x")
    assert (done.returncode, machine.calls) == (2, [])
    assert "destroy is neither plan nor deploy" in done.stderr
