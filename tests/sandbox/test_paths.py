"""The repository works in any folder: the CDK's command line runs the app's command in a shell."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

import voice_blueprint
from voice_blueprint.shipped import ROOT
from voice_sandbox.rehearsals import cdk

FILE = ROOT / "tests/deployments/small.yaml"


@pytest.mark.parametrize("folder", ["my work", "it's", "a;b", "$(touch x)", "plain"])
def test_the_app_runs_in_a_folder_of_any_name(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / folder
    root.mkdir()
    (root / "app.py").write_text("print(__file__)\n")
    monkeypatch.setattr(cdk, "ROOT", root)
    made = cdk.Cdk(SimpleNamespace(), voice_blueprint.load(FILE), tmp_path)
    assert made.app[0] not in "'\"", "the CDK's command line removes quotes around an argument"
    done = subprocess.run(["/bin/sh", "-c", made.app], cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603
    assert (done.returncode, done.stdout.strip()) == (0, str(root / "app.py")), done.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == [folder]
