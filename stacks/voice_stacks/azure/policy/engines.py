"""Inference engines in pods, parsed from their argument vectors."""

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from voice_blueprint import catalog
from voice_blueprint.catalog import ModelCard
from voice_blueprint.engines.published.release import EngineTable, load_published_table
from voice_stacks.azure.policy.pods import Container, PodTemplate, list_pods
from voice_stacks.azure.policy.rules import Stack
from voice_stacks.azure.policy.values import Value

SERVE_COMMAND = ("vllm", "serve")
VISIBLE_DEVICES_VARIABLE = "CUDA_VISIBLE_DEVICES"
MEMORY_FRACTION_FLAG = "--gpu-memory-utilization"
FRACTION_PATTERN = re.compile(r"[0-9]*\.?[0-9]+")
PREFILL, DECODE = "kv_producer", "kv_consumer"
"""Roles of the two engines in a cell."""


@dataclass(frozen=True)
class Engine:
    """A ``vllm serve`` process in a pod."""

    pod: PodTemplate
    container: Container
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        """Location of the engine, for messages."""
        return f"{self.pod.name}/{self.container.name}"

    @cached_property
    def flags(self) -> dict[str, str]:
        """Flags and their values; the value of a bare flag is empty."""
        results: dict[str, str] = {}
        for index, argument in enumerate(self.arguments):
            if argument.startswith("--"):
                name, equals, value = argument.partition("=")
                next_arguments = self.arguments[index + 1 : index + 2]
                results[name] = value if equals else next((x for x in next_arguments if not x.startswith("--")), "")
        return results

    @property
    def published_table(self) -> EngineTable:
        """Published options and metrics for the engine's release."""
        return load_published_table("vllm-omni" if self.is_omni else "vllm")

    def parse_int_flag(self, flag: str, default: int) -> int:
        text = self.flags.get(flag, "")
        return int(text) if text.isdecimal() else default

    @property
    def is_omni(self) -> bool:
        return "--omni" in self.flags

    @property
    def repository(self) -> str:
        first = self.arguments[0] if self.arguments else ""
        return self.flags.get("--model") or ("" if first.startswith("--") else first)

    @property
    def model(self) -> ModelCard | None:
        """The served model, or ``None`` if the catalogue does not contain it."""
        cards = catalog.models().values()
        return next((card for card in cards if self.repository in (card.repository, card.fp8_repository)), None)

    @property
    def tensor_parallel_size(self) -> int:
        """Number of GPUs that share each layer."""
        return self.parse_int_flag("--tensor-parallel-size", self.parse_int_flag("-tp", 1))

    @property
    def visible_gpus(self) -> tuple[int, ...]:
        """GPUs in the order of ``CUDA_VISIBLE_DEVICES``; empty if the kubelet assigns the GPUs."""
        text = self.container.environment.get(VISIBLE_DEVICES_VARIABLE, "")
        return tuple(int(part) for part in text.split(",") if part.strip().isdecimal())

    @property
    def used_gpus(self) -> tuple[int, ...]:
        """GPUs for the engine's ranks, which are the first visible GPUs."""
        return self.visible_gpus[: self.tensor_parallel_size]

    @property
    def pod_gpus(self) -> tuple[int, ...]:
        """GPUs for the engine's ranks, numbered within the pod."""
        gpu_request, others = (
            self.container.gpu_count,
            itertools.takewhile(self._is_different_container, self.pod.running_containers),
        )
        if not gpu_request:
            return self.used_gpus
        first = sum(each.gpu_count for each in others)
        gpu_indexes = [first + index for index in self.visible_gpus or range(gpu_request) if index < gpu_request]
        return tuple(gpu_indexes[: self.tensor_parallel_size])

    def _is_different_container(self, other: Container) -> bool:
        return other.name != self.container.name

    @property
    def memory_fraction(self) -> float:
        """Fraction of each GPU's memory that the engine uses, from 0 to 1. The default depends on the release."""
        flag = self.published_table.commands[SERVE_COMMAND[1]].flags_by_name[MEMORY_FRACTION_FLAG]
        candidates = (self.flags.get(name, "") for name in (flag.name, *flag.aliases))
        return float(next(filter(FRACTION_PATTERN.fullmatch, candidates), str(flag.default)))

    @cached_property
    def connectors(self) -> list[Value]:
        """KV connectors that the engine uses, including those inside ``MultiConnector``."""
        try:
            top = Value(json.loads(self.flags.get("--kv-transfer-config") or "null"))
        except json.JSONDecodeError:
            return []
        inner = list(top.get("kv_connector_extra_config", "connectors"))
        return [connector for connector in [top, *inner] if connector]

    @property
    def nixl_role(self) -> str:
        """NIXL role of the engine: ``kv_producer``, ``kv_consumer``, ``kv_both``, or empty."""
        return next((c["kv_role"].text for c in self.connectors if c["kv_connector"].text.startswith("Nixl")), "")


@lru_cache(maxsize=1)
def list_engines(stack: Stack) -> tuple[Engine, ...]:
    """Return the engines in all pods."""
    return tuple(_find_engines(list_pods(stack)))


def _find_engines(pods: Iterable[PodTemplate]) -> Iterator[Engine]:
    for pod in pods:
        for container in pod.running_containers:
            argv = container.argv
            for index in range(len(argv) - 1):
                if (argv[index].rpartition("/")[2], argv[index + 1]) == SERVE_COMMAND:
                    yield Engine(pod, container, argv[index + 2 :])
                    break
