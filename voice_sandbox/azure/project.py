"""A Pulumi project on disk, with its Pulumi.yaml, the configuration of a stack, and the program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from voice_sandbox.azure.errors import ProjectError


@dataclass(frozen=True)
class Project:
    """A project and one of its stacks.

    Attributes:
        name: Project name.
        folder: Folder of the project, in which the program runs.
        stack: Stack name.
        config: Configuration by full key, such as `voice-cluster:deployment`.
        secret_keys: Keys of `config` whose values are secret.
    """

    name: str
    folder: Path
    stack: str
    config: Mapping[str, str] = field(default_factory=dict)
    secret_keys: tuple[str, ...] = ()

    @property
    def program(self) -> Path:
        """Entry point of the program."""
        return self.folder / "__main__.py"

    @property
    def full_stack_name(self) -> str:
        """Full name for stack references."""
        return f"local/{self.name}/{self.stack}"

    @classmethod
    def load(cls, folder: Path, stack: str, overrides: Mapping[str, str] | None = None) -> Project:
        """Read a project and the configuration of one of its stacks.

        Args:
            folder: Folder with its Pulumi.yaml.
            stack: Stack name; `Pulumi.<stack>.yaml` is read if it exists.
            overrides: Configuration that takes precedence over the stack's file; a key without a colon belongs to the
                project.

        Raises:
            ProjectError: A file is missing or invalid, or the program is not Python's `__main__.py`.
        """
        settings = _read_yaml(folder / "Pulumi.yaml", required=True)
        name = settings.get("name")
        if not isinstance(name, str) or not name:
            raise ProjectError(f"{folder / 'Pulumi.yaml'}: a project needs a name")
        runtime = settings.get("runtime")
        if (runtime.get("name") if isinstance(runtime, dict) else runtime) != "python":
            raise ProjectError(
                f"{folder / 'Pulumi.yaml'}: runtime is {runtime!r}; the local engine only supports python"
            )
        if not (folder / "__main__.py").is_file():
            raise ProjectError(f"{folder}: has no __main__.py, which is the program of a Python project")
        config, secrets = _parse_config(name, _read_yaml(folder / f"Pulumi.{stack}.yaml", required=False))
        config |= {_qualify_key(name, key): value for key, value in (overrides or {}).items()}
        return cls(name, folder.resolve(), stack, config, tuple(sorted(secrets)))


def _parse_config(project: str, document: dict[str, Any]) -> tuple[dict[str, str], set[str]]:
    config, secrets = {}, set()
    for key, value in (document.get("config") or {}).items():
        full = _qualify_key(project, str(key))
        if isinstance(value, dict) and set(value) == {"secure"}:
            # Only the stack's own key decrypts the value. A program sees a secret, but not its value.
            secrets.add(full)
            config[full] = "[secret]"
        else:
            config[full] = value if isinstance(value, str) else json.dumps(value)
    return config, secrets


def _qualify_key(project: str, key: str) -> str:
    return key if ":" in key else f"{project}:{key}"


def _read_yaml(file: Path, *, required: bool) -> dict[str, Any]:
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if required:
            raise ProjectError(f"{file}: this file does not exist, but a Pulumi project requires it") from None
        return {}
    except (OSError, yaml.YAMLError) as error:
        raise ProjectError(f"{file}: {error}") from None
    if document is None and not required:
        return {}
    if not isinstance(document, dict):
        raise ProjectError(f"{file}: contains {type(document).__name__}, not a mapping")
    return document
