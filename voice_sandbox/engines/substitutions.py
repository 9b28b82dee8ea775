"""Substitutions in a rendered command for a CPU and a tiny model. All other settings are as deployed."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from voice_blueprint.engines.launch.base import Launcher, dump_compact_json

VLLM, LMCACHE = "vllm", "lmcache"
MODELS_PARENT_PLACEHOLDER = "<beside the models>"
"""Placeholder for the folder that contains the tiny models, which all engines on this machine share."""


@dataclass(frozen=True)
class Substitution:
    """A replaced value of a flag or variable.

    Attributes:
        program: Program whose commands the substitution changes.
        name: Flag with its dashes, or variable.
        value: New value; ``None`` removes the flag; a function receives the old value.
        reason: Limitation of the CPU or the tiny model.
        add_if_missing: Whether the flag or variable is added to a command that lacks it.
        is_required: Whether every launcher of the program must render the flag or variable.
    """

    program: str
    name: str
    value: str | Callable[[str], str] | None
    reason: str
    add_if_missing: bool = False
    is_required: bool = False

    @property
    def is_variable(self) -> bool:
        """Whether the substitution changes an environment variable."""
        return not self.name.startswith("--")


def _use_host_memory(config: str) -> str:
    """Change a ``--kv-transfer-config`` so that its NIXL connectors transfer host memory."""

    def replace_device(value: Any) -> Any:
        if isinstance(value, dict):
            extra = {"kv_buffer_device": "cpu"} if value.get("kv_connector") == "NixlConnector" else {}
            return {name: replace_device(each) for name, each in value.items()} | extra
        return [replace_device(each) for each in value] if isinstance(value, list) else value

    return dump_compact_json(replace_device(json.loads(config)))


def _shrink_store(adapter: str) -> str:
    return dump_compact_json(json.loads(adapter) | {"max_capacity_gb": 1})


SUBSTITUTIONS = (
    Substitution(
        VLLM, "--load-format", "dummy", "weights are random; the seed makes them equal in every process", True
    ),
    Substitution(VLLM, "--quantization", None, "kernels for FP8 weights require a GPU"),
    Substitution(VLLM, "--tensor-parallel-size", "1", "a tiny model does not need two processes", is_required=True),
    Substitution(
        VLLM,
        "--distributed-executor-backend",
        "vllm.v1.executor.uniproc_executor.UniProcExecutor",
        "on a CPU the default is a worker process, which keeps a core busy for a second after each request; "
        "on one GPU it is this one",
        True,
    ),
    Substitution(
        VLLM, "--gpu-memory-utilization", "0.1", "on a CPU, a fraction of the machine's memory", is_required=True
    ),
    Substitution(
        VLLM, "--enforce-eager", "", "compiling takes minutes on two cores, and there are no CUDA graphs", True
    ),
    Substitution(VLLM, "--kv-transfer-config", _use_host_memory, "without a GPU, NIXL transfers host memory"),
    Substitution(
        VLLM, "--kv-cache-memory-bytes", str(2**28), "512 bytes a token; the default is half of the memory", True
    ),
    Substitution(
        VLLM,
        "VLLM_CACHE_ROOT",
        f"{MODELS_PARENT_PLACEHOLDER}/cache",
        "a shared cache of model classes; without it, each engine imports vLLM twice",
    ),
    Substitution(VLLM, "VLLM_CPU_OMP_THREADS_BIND", "nobind", "several engines share two cores", True),
    Substitution(
        VLLM, "OMP_WAIT_POLICY", "PASSIVE", "waiting threads must not occupy the cores of other engines", True
    ),
    Substitution(VLLM, "UCX_TLS", "tcp,shm,self", "there is no CUDA transport"),
    Substitution(
        LMCACHE,
        "--supported-transfer-mode",
        "engine_driven",
        "by default, the server opens the engine's GPU memory",
        True,
    ),
    Substitution(LMCACHE, "--l1-size-gb", "0.25", "several servers share the memory of this machine", is_required=True),
    Substitution(LMCACHE, "--l2-adapter", _shrink_store, "the disk is this machine's"),
)

_VOLUME_PATH_PATTERN = re.compile(
    r"(?<![\w.-])(?:/models|/var/cache/voice|/nvme|/etc/voice|/opt/voice|/tmp)(?=[/;\"]|$)"
)
"""Volumes for a pod or a host. On this machine, they are subfolders of one folder."""


def build_real_weight_substitutions(context_tokens: int) -> tuple[Substitution, ...]:
    """Return the additional substitutions for a small model with actual weights.

    Args:
        context_tokens: Maximum context length of the model.
    """
    return (
        Substitution(VLLM, "--load-format", "auto", "the weights are real"),
        Substitution(VLLM, "--max-model-len", str(context_tokens), "the model has a shorter context length"),
    )


@dataclass(frozen=True)
class RenderedProcess:
    """A launcher's process on this machine.

    Attributes:
        applied_substitutions: Substitutions that had an effect.
    """

    argv: list[str]
    environment: dict[str, str]
    files: dict[Path, str]
    applied_substitutions: list[Substitution]


@dataclass
class CommandRenderer:
    """Renders launcher commands for this machine.

    Attributes:
        folder: Folder of volumes and files.
        models: Folder of tiny models.
        ports: Free local port for each rendered port.
        skipped_names: Names of disabled substitutions.
        extra_substitutions: Additional substitutions, which are applied last.
        weights: Folder of a model with actual weights, which replaces the tiny model.
    """

    folder: Path
    models: Path
    ports: Mapping[int, int] = field(default_factory=dict)
    skipped_names: frozenset[str] = frozenset()
    extra_substitutions: tuple[Substitution, ...] = ()
    weights: Path | None = None

    def render_process(self, launcher: Launcher) -> RenderedProcess:
        """Render a launcher as a process on this machine.

        Raises:
            ValueError: The command lacks a flag of a required substitution.
        """
        argv, environment = remove_numactl(launcher.build_command()), dict(launcher.build_environment())
        argv[0] = Path(argv[0]).name  # the image's program is on PATH on this machine
        program = _find_target_program(argv)
        applied = [
            each
            for each in (*SUBSTITUTIONS, *self.extra_substitutions)
            if each.program == program
            and each.name not in self.skipped_names
            and _apply_substitution(each, argv, environment)
        ]
        local_argv = [self.substitute_ports_and_folders(argument) for argument in argv]
        if program == VLLM:
            local_argv[argv.index(VLLM) + 2] = str(self.weights or self.models / select_tiny_model(argv))
        return RenderedProcess(
            local_argv,
            {name: self.substitute_ports_and_folders(value) for name, value in environment.items()},
            {
                Path(self.substitute_ports_and_folders(path)): self.substitute_ports_and_folders(text)
                for path, text in launcher.render_files().items()
            },
            applied,
        )

    def substitute_ports_and_folders(self, text: str) -> str:
        """Replace the ports and folders in a string with those on this machine."""
        text = text.replace(MODELS_PARENT_PLACEHOLDER, str(self.models.parent))
        text = _VOLUME_PATH_PATTERN.sub(lambda found: f"{self.folder}{found[0]}", text)
        return (
            re.sub(r"(?<![\w.-])\d+(?![\w.-])", lambda found: str(self._map_local_port(found[0])), text)
            if self.ports
            else text
        )

    def _map_local_port(self, number: str) -> int | str:
        return self.ports.get(int(number), number)


def _find_target_program(argv: Sequence[str]) -> str:
    """Return the program to which substitutions apply.

    The decode engine of a cell is a child of its transport check.
    """
    if VLLM in argv:
        return VLLM
    return argv[0] if argv[1:2] != ["coordinator"] else argv[1]


def remove_numactl(argv: Sequence[str]) -> list[str]:
    """Remove ``numactl`` from a command line, since this machine has one NUMA node."""
    if "numactl" not in argv:
        return list(argv)
    start = argv.index("numactl")
    return [*argv[:start], *argv[argv.index("--", start) + 1 :]]


def select_tiny_model(argv: list[str]) -> str:
    """Return the tiny model with the architecture of the model in a ``vllm serve`` command."""
    if "--config-format" in argv:
        return "voxtral"
    return "whisper" if "--limit-mm-per-prompt" in argv else "qwen"


def _apply_substitution(substitution: Substitution, argv: list[str], environment: dict[str, str]) -> bool:
    name, value = substitution.name, substitution.value
    has = name in (environment if substitution.is_variable else argv)
    if not has and substitution.is_required:
        raise ValueError(f"{argv[0]} does not render {name}; correct or remove the substitution")
    if not has and not substitution.add_if_missing:
        return False
    if substitution.is_variable:
        environment[name] = value(environment[name]) if callable(value) else value or ""
        return True
    if not has:
        argv.extend([name, value] if isinstance(value, str) and value else [name])
        return True
    index = argv.index(name)
    if value is None:
        del argv[index : index + 2]
    else:
        argv[index + 1] = value(argv[index + 1]) if callable(value) else value
    return True
