"""Checks that the processes of a pod are consistent, based on their command lines, variables and files.

Each launcher knows only its own process. Some conditions can only be checked for all processes together: prefill and
decode use the same settings, an engine connects to the port of its cache server, and ports are unique.
"""

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from voice_blueprint.engines.launch.base import LOOPBACK, Launcher
from voice_blueprint.engines.launch.fabric import HASH_SEED_ENVIRONMENT, SIDE_CHANNEL_PORT_VARIABLE
from voice_blueprint.engines.launch.kv_transfer import NIXL_ROLE_BY_ENGINE_ROLE, EngineRole

KV_COMPATIBILITY_FLAGS = (
    "--served-model-name",
    "--revision",
    "--quantization",
    "--dtype",
    "--kv-cache-dtype",
    "--block-size",
    "--max-model-len",
)
"""Flags of ``vllm serve`` that must be equal for engines that transfer KV cache. NIXL compares most of them at the
first handshake, when callers may already be connected (vllm 0.32.0: ``kv_connector/v1/nixl/metadata.py``,
``compute_nixl_compatibility_hash``; ``base_worker.py``, ``_validate_remote_agent_handshake``)."""

DEFAULT_BLOCK_TOKENS = 16
"""vLLM's block size on GPUs without ``--block-size`` (vllm 0.32.0: ``config/cache.py``, ``DEFAULT_BLOCK_SIZE``)."""

_PORT_FLAGS = ("--port", "--http-port", "--prometheus-port")
_NIXL_ROLE_BY_FLAG = {
    "--prefill": NIXL_ROLE_BY_ENGINE_ROLE[EngineRole.PREFILL],
    "--decode": NIXL_ROLE_BY_ENGINE_ROLE[EngineRole.DECODE],
}
_SERVE_COMMAND = ("vllm", "serve")
_LMCACHE_SERVER_COMMAND = ("lmcache", "server")
_LISTEN_PORT_PATTERN = re.compile(r"^\s*listen (\d+);", re.MULTILINE)
_LOOPBACK_PORT_PATTERN = re.compile(rf"\b{re.escape(LOOPBACK)}:(\d+)\b")


def validate_pod_consistency(processes: Mapping[str, Launcher | None]) -> None:
    """Reject inconsistent processes in a pod.

    Args:
        processes: Processes by name; ``None`` for a process that the pod does not contain.

    Raises:
        ValueError: The processes are inconsistent; the message contains all reasons.
    """
    members = [_PodProcess(name, launcher) for name, launcher in processes.items() if launcher]
    problems = list(dict.fromkeys(itertools.chain.from_iterable(rule(members) for rule in _CONSISTENCY_RULES)))
    if problems:
        raise ValueError("; ".join(problems))


@dataclass(frozen=True)
class _PodProcess:
    name: str
    launcher: Launcher

    @cached_property
    def argv(self) -> tuple[str, ...]:
        return self.launcher.build_command()

    @cached_property
    def environment(self) -> dict[str, str]:
        return self.launcher.build_environment()

    @cached_property
    def command_and_files(self) -> str:
        """Command and files as one text."""
        return "\n".join([*self.argv, *self.launcher.render_files().values()])

    def runs_program(self, program: tuple[str, str]) -> bool:
        # The program of a publisher's image may be outside of PATH; the command then contains the full path.
        return program in ((PurePosixPath(name).name, after) for name, after in itertools.pairwise(self.argv))

    def get_flag_value(self, flag: str, default: str = "") -> str:
        return next((after for name, after in itertools.pairwise(self.argv) if name == flag), default)

    @property
    def repository(self) -> str:
        return self.argv[self.argv.index(_SERVE_COMMAND[1]) + 1]

    @cached_property
    def connectors(self) -> list[dict[str, Any]]:
        """KV connectors of the engine, including those inside ``MultiConnector``."""
        connector = json.loads(self.get_flag_value("--kv-transfer-config", "{}"))
        return [connector, *connector.get("kv_connector_extra_config", {}).get("connectors", ())]

    @property
    def nixl_role(self) -> str | None:
        return next((each["kv_role"] for each in self.connectors if each.get("kv_connector") == "NixlConnector"), None)

    @property
    def cache_port(self) -> str | None:
        """Port of the engine's LMCache server."""
        extras = (each.get("kv_connector_extra_config", {}) for each in self.connectors)
        return next((str(extra["lmcache.mp.port"]) for extra in extras if "lmcache.mp.port" in extra), None)

    def iter_listening_ports(self) -> Iterator[str]:
        yield from filter(
            None, (*map(self.get_flag_value, _PORT_FLAGS), self.environment.get(SIDE_CHANNEL_PORT_VARIABLE, ""))
        )
        yield from _LISTEN_PORT_PATTERN.findall(self.command_and_files)


def _find_port_conflicts(members: Iterable[_PodProcess]) -> Iterator[str]:
    owners: dict[str, str] = {}
    for member in members:
        for port in member.iter_listening_ports():
            if port in owners:
                yield f"{owners[port]} and {member.name} both listen on port {port}: give each its own"
            owners[port] = member.name


def _find_connection_errors(members: list[_PodProcess]) -> Iterator[str]:
    ports = {port for member in members for port in member.iter_listening_ports()}
    for member in members:
        for port in _LOOPBACK_PORT_PATTERN.findall(member.command_and_files):
            if port not in ports:
                yield f"{member.name} connects to port {port}, on which no process of the pod listens"


def _find_cache_server_errors(members: list[_PodProcess]) -> Iterator[str]:
    servers = {
        member.get_flag_value("--port"): member for member in members if member.runs_program(_LMCACHE_SERVER_COMMAND)
    }
    engines: dict[str, list[_PodProcess]] = defaultdict(list)
    for member in members:
        if member.runs_program(_SERVE_COMMAND) and member.cache_port:
            engines[member.cache_port].append(member)
    for port, engines_on_port in engines.items():
        if len(engines_on_port) > 1:
            names = " and ".join(engine.name for engine in engines_on_port)
            yield f"{names} share the LMCache server on port {port}: give each its own"
        if port not in servers:
            yield f"{engines_on_port[0].name} connects to an LMCache server on port {port}, and the pod has none there"
            continue
        for engine in engines_on_port:
            yield from _find_cache_inconsistencies(engine, servers[port])
    for port, server in servers.items():
        if port not in engines:
            yield f"no engine connects to {server.name} on port {port}: correct lmcache.mp.port, or remove the server"


def _find_cache_inconsistencies(engine: _PodProcess, server: _PodProcess) -> Iterator[str]:
    """Yield the inconsistencies between an engine and its cache.

    LMCache itself requires chunk sizes to be multiples of a block.

    https://github.com/LMCache/LMCache, 0.5.6: ``lmcache/integration/vllm/vllm_multi_process_adapter.py``.
    """
    chunk, block = (
        int(server.get_flag_value("--chunk-size")),
        int(engine.get_flag_value("--block-size", str(DEFAULT_BLOCK_TOKENS))),
    )
    if chunk % block:
        yield (
            f"chunks of {chunk} tokens of {server.name} are no multiple of {engine.name}'s blocks of {block}: "
            "change --chunk-size or --block-size"
        )


def _find_hash_seed_errors(members: list[_PodProcess]) -> Iterator[str]:
    for variable in HASH_SEED_ENVIRONMENT:
        seeds = {
            member.name: member.environment.get(variable, "random")
            for member in members
            if member.runs_program(_LMCACHE_SERVER_COMMAND)
            or (member.runs_program(_SERVE_COMMAND) and member.cache_port)
        }
        if len(set(seeds.values())) > 1 or "random" in seeds.values():
            description = ", ".join(f"{name} {seed}" for name, seed in seeds.items())
            yield (
                f"engines and LMCache servers hash chunks differently: {variable} of {description}; set the same value"
            )


def _find_role_inconsistencies(members: list[_PodProcess]) -> Iterator[str]:
    cell_engines = [member for member in members if member.runs_program(_SERVE_COMMAND) and member.nixl_role]
    if not cell_engines:
        return
    roles = sorted(str(engine.nixl_role) for engine in cell_engines)
    if roles != sorted(NIXL_ROLE_BY_ENGINE_ROLE.values()):
        description = ", ".join(f"{engine.name} is {engine.nixl_role}" for engine in cell_engines)
        yield f"NIXL needs one {' and one '.join(NIXL_ROLE_BY_ENGINE_ROLE.values())}: {description}"
    for flag in KV_COMPATIBILITY_FLAGS:
        values = {engine.name: engine.get_flag_value(flag, "the default") for engine in cell_engines}
        if len(set(values.values())) > 1:
            yield _describe_difference(flag, values)
    if len({engine.repository for engine in cell_engines}) > 1:
        yield _describe_difference("their model", {engine.name: engine.repository for engine in cell_engines})


def _describe_difference(subject: str, values: Mapping[str, str]) -> str:
    description = ", ".join(f"{name} has {value}" for name, value in values.items())
    return f"engines that hand over KV cache differ in {subject}: {description}"


def _find_route_errors(members: list[_PodProcess]) -> Iterator[str]:
    roles = {
        member.get_flag_value("--port"): member.nixl_role for member in members if member.runs_program(_SERVE_COMMAND)
    }
    for member in members:
        for flag, role in _NIXL_ROLE_BY_FLAG.items():
            port = member.get_flag_value(flag).rpartition(":")[2]
            if port and roles.get(port) != role:
                yield f"{member.name}: {flag} is port {port}, whose engine is {roles.get(port, 'none')}, not {role}"


_CONSISTENCY_RULES = (
    _find_port_conflicts,
    _find_connection_errors,
    _find_cache_server_errors,
    _find_hash_seed_errors,
    _find_role_inconsistencies,
    _find_route_errors,
)
