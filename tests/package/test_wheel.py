"""The installed wheel contains all files that the commands need."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.package.installed import Installed
from voice_blueprint.images import BuiltImage, load_image_specs
from voice_blueprint.shipped import CHECKOUT_FOLDER

DEPLOYMENTS = CHECKOUT_FOLDER / "deployments"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("small", "sandbox", "production-azure"):
        shutil.copy(DEPLOYMENTS / f"{name}.yaml", tmp_path)
    return tmp_path


def test_only_packages_of_this_product_are_installed(installation: Installed) -> None:
    """The wheel must not shadow Canonical's package `ops` or the folder `stacks` of CDK users."""
    (record,) = installation.bin.parent.glob("lib/*/site-packages/voice_serve-*.dist-info/RECORD")
    tops = {line.partition("/")[0] for line in record.read_text(encoding="utf-8").splitlines()}
    assert {"voice_blueprint", "voice_ops", "voice_stacks"} <= tops
    assert {top for top in tops if not top.startswith("voice_") and top != ".."} == set()


def test_both_clouds_are_planned_and_priced(installation: Installed, folder: Path) -> None:
    for name, cloud in (("small", "aws"), ("production-azure", "azure")):
        plan = json.loads(installation.voice(folder, "plan", f"{name}.yaml", "--json"))
        assert (plan["deployment"], plan["refused"]) == (name, False)
        cost = json.loads(installation.voice(folder, "cost", f"{name}.yaml", "--json"))
        assert cost["clouds"][cloud]["usd_per_month"]["expected"] > 100


def test_init_writes_a_file_and_its_schema(installation: Installed, folder: Path) -> None:
    answers = ["--cloud", "aws", "--region", "us-east-1", "--calls", "500", "--budget", "20000"]
    installation.voice(folder, "init", "mine.yaml", *answers)
    first = (folder / "mine.yaml").read_text(encoding="utf-8").splitlines()[0]
    assert first == "# yaml-language-server: $schema=schema.json"
    assert (folder / "schema.json").read_bytes() == (DEPLOYMENTS / "schema.json").read_bytes()
    assert json.loads(installation.voice(folder, "plan", "mine.yaml", "--json"))["refused"] is False


def test_diagrams_are_drawn_without_node_in_path(installation: Installed, folder: Path) -> None:
    installation.voice(folder, "diagram", "small.yaml", "--output", "picture.svg")
    assert "<svg" in (folder / "picture.svg").read_text(encoding="utf-8")
    left = [file for file in (installation.home / ".cache/voice-serve").iterdir() if (file / "node_modules").is_dir()]
    assert len(left) == 1, "installed once, and no draft is left"


def test_a_preview_stores_its_state_in_the_current_folder(installation: Installed, folder: Path) -> None:
    assert "voxtral" in installation.voice(folder, "preview", "azure", "production-azure.yaml")
    assert list((folder / ".voice").rglob("*.json"))
    again = json.loads(installation.voice(folder, "preview", "azure", "production-azure.yaml", "--json"))
    steps = [step["op"] for project in again["projects"].values() for step in project["steps"]]
    assert steps
    assert set(steps) == {"same"}


@pytest.mark.nightly
def test_an_upgrade_is_compared_with_the_recorded_baseline(installation: Installed, folder: Path) -> None:
    installation.voice(folder, "plan", "small.yaml", "--record", "releases")
    assert " unchanged" in installation.voice(folder, "plan", "small.yaml", "--against", "releases")
    text = (folder / "small.yaml").read_text(encoding="utf-8")
    document = yaml.safe_load(text) | {"name": "other"}
    (folder / "small.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    assert installation.run(folder, "voice", "plan", "small.yaml", "--against", "releases").returncode == 2


def copied_files(root: Path, image: str) -> set[Path]:
    """Return the files that an image's Dockerfile copies or mounts from a build context."""
    dockerfile = (root / "images" / image / "Dockerfile").read_text(encoding="utf-8")
    found = {root / source for source in re.findall(r"--mount=type=bind,source=([^,\s]+)", dockerfile)}
    for line in dockerfile.splitlines():
        if line.startswith("COPY") and "--from" not in line:  # lines with a stage copy no file of the context
            *sources, _ = [word for word in line.split()[1:] if not word.startswith("--")]
            for source in sources:
                found |= {root / source} if (root / source).is_file() else set((root / source).rglob("*"))
    return {file.relative_to(root) for file in found if file.is_file() and "__pycache__" not in file.parts}


def test_every_image_is_built_from_files_in_the_wheel(installation: Installed, folder: Path) -> None:
    (packaged,) = installation.bin.parent.glob("lib/*/site-packages/voice_blueprint/packaged")
    listed = json.loads(installation.voice(folder, "images", "--json"))["images"]
    assert [each["image"] for each in listed] == list(load_image_specs())
    built = [spec.name for spec in load_image_specs().values() if isinstance(spec, BuiltImage)]
    # Other tests leave files in the source folders, such as downloaded libraries.
    tracked = subprocess.run(["git", "ls-files"], cwd=CHECKOUT_FOLDER, capture_output=True, text=True, check=True)  # noqa: S607
    sources = {
        name: copied_files(CHECKOUT_FOLDER, name) & set(map(Path, tracked.stdout.splitlines())) for name in built
    }
    assert any(sources.values())
    assert {name: copied_files(packaged, name) for name in built} == sources


@pytest.mark.nightly
def test_the_sandbox_deploys_and_destroys(installation: Installed, folder: Path) -> None:
    printed = installation.voice(folder, "sandbox", "sandbox.yaml")
    assert "teardown: 0 left" in printed
    assert "✓ pulumi preview and simulated up" in installation.voice(folder, "sandbox", "production-azure.yaml")
