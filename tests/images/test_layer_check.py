"""The program that checks during the build of an image whether the layer is compatible with its base."""

import importlib.util
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

from voice_blueprint.images import IMAGES_FOLDER


@pytest.fixture
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("layer_check", IMAGES_FOLDER / "asr-vllm/src/layer_check.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def install(site: Path, name: str, release: str, *requires: str) -> None:
    folder = site / f"{name.replace('-', '_')}-{release}.dist-info"
    folder.mkdir()
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {release}",
        *(f"Requires-Dist: {x}" for x in requires),
    ]
    (folder / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")


def run(program: ModuleType, site: Path, requirements: str, *pins: str) -> int:
    file = site / "requirements.txt"
    file.write_text(requirements, encoding="utf-8")
    return int(program.main([str(file), *pins]))


def test_a_valid_layer_passes(program: ModuleType, site: Path) -> None:
    install(
        site, "x-base", "2.1+cu130", "x-math>=1", 'x-absent; extra == "audio"', 'x-windows; sys_platform == "win32"'
    )
    install(site, "x-math", "1.5rc1")
    install(site, "x-layer", "3.0", "x-base")
    assert run(program, site, "x-layer==3.0 \\\n    --hash=sha256:aa\n", "x-base==2.1") == 0


@pytest.mark.parametrize(
    ("math", "pin", "message"),
    [
        ("0.9", "x-base==2.1", "x-base needs x-math>=1, but 0.9 is installed"),
        (None, "x-base==2.1", "x-base needs x-math>=1, which is not installed"),
        ("1.5", "x-base==2.2", "x-base 2.2 is required, but the image has 2.1"),
        ("1.5", "x-base==2.0", "x-base 2.0 is required, but the image has 2.1"),
    ],
)
def test_version_conflicts_are_reported(
    program: ModuleType, site: Path, math: str | None, pin: str, message: str
) -> None:
    install(site, "x-base", "2.1", "x-math>=1")
    if math:
        install(site, "x-math", math)
    name, _, wanted = pin.partition("==")
    assert list(program.find_incompatibilities([], {name: wanted})) == [message]


def test_a_layer_with_conflicting_packages_fails_the_build(
    program: ModuleType, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(site, "x-layer", "3.0", "pytest<1")
    assert run(program, site, "x-layer==3.0\n") == 1
    assert capsys.readouterr().err == f"x-layer needs pytest<1, but {version('pytest')} is installed\n"


def test_the_check_receives_the_requirements_and_the_packages(site: Path) -> None:
    file = site / "requirements.txt"
    file.write_text(f"pytest=={version('pytest')}\n", encoding="utf-8")
    command = [sys.executable, str(IMAGES_FOLDER / "asr-vllm/src/layer_check.py"), str(file)]
    for pin, code in ((version("pytest"), 0), ("0.0", 1)):
        done = subprocess.run([*command, f"pytest=={pin}"], check=False, capture_output=True)  # noqa: S603
        assert done.returncode == code
