"""Runs a manifest's pod as processes on this machine, and starts, probes and stops them in the kubelet's order.

Sidecars start one after another, each after the previous one has passed its startup probe; then the main containers
start together. On termination, the main containers run their preStop hooks and get SIGTERM together. After they have
exited, the sidecars get SIGTERM in reverse order
(https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/ and
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination).
"""

import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from voice_blueprint.engines.launch.base import Launcher
from voice_sandbox.engines.processes import LOOPBACK, EngineError, EngineProcess
from voice_sandbox.engines.substitutions import CommandRenderer

Manifest = Mapping[str, Any]

READY_TIMEOUT_S = 800.0
"""All engines in a pod start together, which takes a minute on two idle cores and many minutes on busy ones."""
_POLL_INTERVAL_S = 0.2


@dataclass(frozen=True)
class ManifestContainer(Launcher):
    """A container of a manifest.

    Attributes:
        manifest: The container.
        config_files: Files of the pod's ConfigMaps, by key.
    """

    manifest: Manifest
    config_files: Mapping[str, str]

    @property
    def name(self) -> str:
        return str(self.manifest["name"])

    def build_command(self) -> tuple[str, ...]:
        """Return the command, which all engine containers set."""
        return tuple(self.manifest["command"])

    def build_environment(self) -> dict[str, str]:
        """Return the environment variables. References are not supported, since none of these pods uses them."""
        return {entry["name"]: entry["value"] for entry in self.manifest.get("env", ())}

    def render_files(self) -> dict[str, str]:
        """Return the files that are mounted from ConfigMaps."""
        mounts = self.manifest["volumeMounts"]
        return {mount["mountPath"]: self.config_files[mount["subPath"]] for mount in mounts if "subPath" in mount}

    @property
    def pre_stop_s(self) -> float:
        """Seconds between the start of termination and SIGTERM."""
        return float(self.manifest.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0))


class Pod:
    """The processes of one pod.

    Attributes:
        containers: Processes by container name, sidecars first, in start order.
    """

    def __init__(
        self, spec: Manifest, texts: Mapping[str, str], substitutes: CommandRenderer, skip: frozenset[str] = frozenset()
    ) -> None:
        """Render the containers for this machine.

        Args:
            spec: Pod specification. Init containers that exit are skipped; they check the node's GPUs.
            texts: Files of the pod's ConfigMaps, by key.
            substitutes: Renders the commands.
            skip: Containers that are not needed on this machine.
        """
        sidecars = [each for each in spec.get("initContainers", ()) if each.get("restartPolicy") == "Always"]
        self._substitutes = substitutes
        self._sidecars = [ManifestContainer(each, texts) for each in sidecars if each["name"] not in skip]
        self._engines = [ManifestContainer(each, texts) for each in spec["containers"] if each["name"] not in skip]
        self.grace_s = float(spec["terminationGracePeriodSeconds"])
        self.containers = {each.name: self._create_process(each) for each in (*self._sidecars, *self._engines)}
        for name in ("tmp", "nvme", "models"):
            (substitutes.folder / name).mkdir(parents=True, exist_ok=True)

    def _create_process(self, container: ManifestContainer) -> EngineProcess:
        process = self._substitutes.render_process(container)
        get = next((probe["httpGet"] for probe in self._list_probes(container) if "httpGet" in probe), None)
        url = f"http://{LOOPBACK}:{self._find_local_port(get['port'])}" if get else ""
        return EngineProcess(container.name, process, self._substitutes.folder, url, get["path"] if get else "")

    def _find_local_port(self, rendered: int) -> int:
        return self._substitutes.ports.get(rendered, rendered)

    def get_url(self, port: int) -> str:
        """Return the local URL of a port in the manifest."""
        return f"http://{LOOPBACK}:{self._find_local_port(port)}"

    @property
    def ports(self) -> Mapping[int, int]:
        """Local port for each port in the manifest."""
        return self._substitutes.ports

    @staticmethod
    def _list_probes(container: ManifestContainer) -> list[Manifest]:
        names = ("startupProbe", "readinessProbe", "livenessProbe")
        return [container.manifest[name] for name in names if container.manifest.get(name)]

    def _list_all_containers(self) -> list[ManifestContainer]:
        return [*self._sidecars, *self._engines]

    def passes_probe(self, name: str, probe: str) -> bool:
        """Return True if a container passes its probe now or, without a probe, if it is running."""
        (container,) = (each for each in self._list_all_containers() if each.name == name)
        probe_spec, process = container.manifest.get(probe), self.containers[name]
        if process.get_exit_code() is not None:
            return False
        if not probe_spec:
            return True
        if "httpGet" in probe_spec:
            get = probe_spec["httpGet"]
            at = EngineProcess(name, process.process, process.folder, self.get_url(get["port"]), get["path"])
            return at.fetch_health_status(float(probe_spec.get("timeoutSeconds", 1))) in range(200, 400)
        argv = [self._substitutes.substitute_ports_and_folders(argument) for argument in probe_spec["exec"]["command"]]
        try:
            return subprocess.run(argv, capture_output=True, check=False, timeout=30).returncode == 0  # noqa: S603
        except subprocess.TimeoutExpired:  # the kubelet treats a probe that times out as failed
            return False

    def start(self) -> None:
        """Start all containers in the kubelet's order, and return once the engines have been started.

        Raises:
            EngineError: A sidecar exited, or did not pass its startup probe in time.
        """
        for each in self._sidecars:
            self.containers[each.name].start()
            self.wait_for_probe(each.name, "startupProbe")
        for each in self._engines:
            self.containers[each.name].start()

    def wait_for_probe(self, name: str, probe: str = "readinessProbe", within_s: float = READY_TIMEOUT_S) -> float:
        """Wait until a container passes a probe, and return the duration in seconds.

        Raises:
            EngineError: The container exited, or did not pass the probe in time.
        """
        began, process = time.monotonic(), self.containers[name]
        while not self.passes_probe(name, probe):
            if process.get_exit_code() is not None:
                raise EngineError(f"{name} ended with {process.get_exit_code()}:\n{process.read_log_tail()}")
            if time.monotonic() - began > within_s:
                raise EngineError(
                    f"{name} did not pass its {probe} within {within_s:.0f} s:\n{process.read_log_tail()}"
                )
            time.sleep(_POLL_INTERVAL_S)
        return time.monotonic() - began

    def wait_until_ready(self) -> None:
        """Wait until every container passes its readiness probe, so that the pod is ready.

        Raises:
            EngineError: A container exited, or did not become ready in time.
        """
        for each in reversed(self._list_all_containers()):
            self.wait_for_probe(each.name)

    @property
    def pre_stop_s(self) -> float:
        """Seconds between the start of the pod's termination and SIGTERM to its engines."""
        return max(each.pre_stop_s for each in self._engines)

    def terminate(self) -> dict[str, tuple[int, float]]:
        """Stop the pod as the kubelet does after the engines' preStop hooks.

        Returns:
            The exit code of each container, and the seconds until it exited.

        Raises:
            EngineError: A container was still running at the end of the grace period.
        """
        began, ends = time.monotonic(), {}
        limit = began + self.grace_s - self.pre_stop_s
        for each in self._engines:
            self.containers[each.name].terminate()
        for each in (*self._engines, *reversed(self._sidecars)):
            process = self.containers[each.name]
            process.terminate()
            ends[each.name] = (process.wait(limit - time.monotonic()), time.monotonic() - began)
        return ends

    def kill(self) -> None:
        """Kill all remaining processes."""
        for each in self.containers.values():
            each.kill()
