"""Adds the data files that ``voice`` reads to the wheel, in the layout of the checkout."""

import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TARGET_FOLDER = "voice_blueprint/packaged"
"""Folder in the wheel in which ``voice_blueprint.shipped`` finds the files."""

SHIPPED_FILE_PATTERNS = (
    ".ci/*",  # these and the workflows are part of the output of `voice new`
    ".github/workflows/*",
    ".gitlab-ci.yml",
    ".dockerignore",
    "app.py",
    "cdk.json",
    "package.json",
    "package-lock.json",
    "deployments/schema.json",
    "deployments/small.yaml",  # `voice init` writes it for few calls
    "voice_blueprint/contract/**/*",  # images are built with it
    "images/*.yaml",
    "images/*.sh",
    "images/*/*",
    "images/*/src/**/*",
    "images/vad-dataplane/subprojects/*.*",
    "images/vad-dataplane/tests/**/*",  # its build compiles them
)


class ShippedFilesHook(BuildHookInterface):  # type: ignore[type-arg]  # hatchling is there while a wheel is built only
    """Build hook that adds the files. An editable installation reads the files in the checkout instead."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        # A copy, since hatchling skips a file whose target differs from its location.
        root, self._copy = Path(self.root), Path(mkdtemp(prefix="voice-wheel-"))
        for pattern in SHIPPED_FILE_PATTERNS:
            for file in root.glob(pattern):
                if file.is_file() and "__pycache__" not in file.parts:
                    path = file.relative_to(root)
                    (self._copy / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, self._copy / path)
                    build_data["force_include"][str(self._copy / path)] = f"{TARGET_FOLDER}/{path}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        if version != "editable":
            shutil.rmtree(self._copy)
