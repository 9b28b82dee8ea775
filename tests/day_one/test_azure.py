"""The Azure guide's commands lead from an empty machine to deployed workloads, for two files."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import voice_blueprint
from tests.day_one.walk import ROOT, Reader, commands, repository_of_the_tree
from tests.registry import Registry, registry
from tests.stacks.azure.recorded import cluster
from voice_blueprint import checks
from voice_blueprint.azure.names import ClusterOutput
from voice_blueprint.checks.base import Severity
from voice_blueprint.hosts import list_required_images

GUIDE = (ROOT / "docs/guides/azure.md").read_text(encoding="utf-8")
INIT, COPY = "voice init deployments/mine.yaml", "cp deployments/production-azure.yaml deployments/mine.yaml"
BASE = f"--build-arg BASE_IMAGE=debian@sha256:{'a' * 64}"
AZURE = "stacks/voice_stacks/azure"
GATEWAY = f"{BASE} --file images/gateway/Dockerfile --tag ghcr.io/you/gateway:1 --push ."
GROUP = "11111111-2222-3333-4444-555555555555"


@pytest.fixture(scope="module")
def local_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return repository_of_the_tree(tmp_path_factory.mktemp("origin"))


@pytest.fixture
def reader(local_registry: Registry, origin: Path, tmp_path: Path) -> Reader:
    secret = tmp_path / "secret"
    secret.write_text("of the reader")
    places = {
        "ghcr.io/you": f"{local_registry.host}/voice",
        "REPOSITORY": str(tmp_path / "origin.git"),
        "--file token": f"--file {secret}",
        "--file chat-key": f"--file {secret}",
    }
    shutil.copytree(origin, tmp_path / "origin.git")
    return Reader(tmp_path / "home", tmp_path / "origin.git", local_registry, places)


def apply_edits(file: Path, *edits: tuple[str, str]) -> None:
    """Apply the guide's edits to a file, once each."""
    text = file.read_text(encoding="utf-8")
    for pattern, new in edits:
        text, count = re.subn(pattern, lambda _, new=new: new, text, count=1, flags=re.MULTILINE)  # type: ignore[misc]
        assert count, f"{pattern} is not in {file}"
    file.write_text(text, encoding="utf-8")


def apply_guide_edit(reader: Reader, command: str, file: Path) -> None:
    """Apply the edits that the text between two blocks describes."""
    if command.startswith((INIT, COPY)):
        apply_edits(
            file, (r"^name: .*", "name: mine"), (r"00000000-0000-0000-0000-000000000000\](?=  # yours)", f"{GROUP}]")
        )
        text = file.read_text(encoding="utf-8")
        made = cluster(text).outputs
        outputs = {name.value: str(made[name]) for name in ClusterOutput if name in made}
        (reader.home / "outputs.json").write_text(json.dumps(outputs))
    elif command.startswith("grep") and "build/publish.log" in command:
        apply_edits(
            file,
            (
                r"^images: \{\}",
                "images:\n" + "".join(f"  {each}\n" for each in reader.outputs[-1][1].split("\n") if each),
            ),
        )
    elif command.startswith("cosign public-key"):
        (_, signature), (_, key) = reader.outputs[-2:]
        signing = {"image_signing": {"public_key": key, "signature": signature.strip()}}
        apply_edits(file, (r"^images:", yaml.safe_dump(signing, width=1000) + "images:"))


@pytest.mark.timeout(1800)  # on a busy machine the dozen images need minutes
@pytest.mark.parametrize("left_out", [COPY, INIT], ids=["voice init", "production-azure.yaml"])
def test_following_the_guide_passes_plan_and_preview(left_out: str, reader: Reader) -> None:
    file = reader.repository / "deployments/mine.yaml"
    for command in commands(GUIDE):
        if not command.startswith(left_out):
            reader.run(command)
            apply_guide_edit(reader, command, file)

    deployment = voice_blueprint.load(file)
    told = {finding.check.id: finding.violation.message for finding in checks.run_checks(deployment)
            if finding.check.level is not Severity.INFO and not finding.acceptance_reason}  # fmt: skip
    assert set(told) <= {"model-revision-pinned"}, told
    assert set(deployment.images) == set(list_required_images(deployment)), "each image has a digest"
    plans, previews = (last_output(reader, f"voice {what} deployments/mine.yaml") for what in ("plan", "preview azure"))
    for printed in (plans, previews):
        assert "images-have-digests" not in printed
        assert "images-signed" not in printed

    imported = {each.name: json.loads(each.read_text()) for each in (reader.home / "imported").iterdir()}
    assert {name: each["digest"] for name, each in imported.items()} == deployment.images
    outputs = json.loads((reader.home / "outputs.json").read_text())
    login_server = outputs[ClusterOutput.REGISTRY_LOGIN_SERVER]
    assert {f"{each['registry']}.azurecr.io" for each in imported.values()} == {login_server}
    stacks = {each.parent.name: each.read_text() for each in (reader.home / "stacks").rglob("mine")}
    assert stacks == {"voice-cluster": "up", "voice-workloads": "up"}
    assert (reader.home / "voice/deployments/mine.yaml").read_text() == file.read_text(), (
        "what is deployed is what was planned"
    )

    apply_edits(file, (next(iter(deployment.images.values())), f"sha256:{'0' * 64}"))
    with pytest.raises(AssertionError, match="images-signed"):
        reader.run(f"voice plan {file}")


@pytest.mark.parametrize(
    ("commands", "refusal"),
    [
        (["voice plan deployments/production-azure.yaml"], "voice: command not found"),
        ([f"pulumi -C {AZURE}/cluster stack init mine", f"pulumi -C {AZURE}/cluster stack output vaultName"],
         "no outputs before `pulumi up`"),
        ([f"pulumi -C {AZURE}/workloads up --policy-pack ../policy"], "no stack of voice-workloads is selected"),
        ([f"cd {AZURE}/cluster", f"docker buildx build {GATEWAY}"], "do not exist as seen from"),
        (["az acr import --name x --source ghcr.io/you/gateway:1 --image gateway:1"], "does not pin a digest"),
        ([f"az acr import --name x --source ghcr.io/you/never@sha256:{'a' * 64} --image never:1"], "manifest unknown"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_guide_is_detected(commands: list[str], refusal: str, reader: Reader) -> None:
    """Omit the set-up, reorder commands, change the folder, or use an image that was not pinned or published."""
    if not commands[0].startswith("voice "):
        reader.run("make setup")
        reader.run("export PATH=$PWD/.venv/bin:$PWD/node_modules/.bin:$PATH")
    for command in commands[:-1]:
        reader.run(command)
    with pytest.raises(AssertionError, match=refusal):
        reader.run(commands[-1])


def last_output(reader: Reader, command: str) -> str:
    return [printed for run, printed in reader.outputs if run.strip() == command][-1]
