"""Replicas of a service on this machine, and Kubernetes' behaviour: probes, DNS, and stopping."""

import itertools
import threading
import time

from tests.engines.conftest import Bench
from tests.engines.test_health import Kubelet, kubelet
from tests.router.conftest import Cluster, Pod
from voice_blueprint.engines.launch.vllm import VllmServer
from voice_sandbox.engines.processes import READY_TIMEOUT_S, EngineProcess
from voice_sandbox.engines.substitutions import VLLM, CommandRenderer, Substitution

PRE_STOP_S = 4.0
"""Duration of the preStop hook, which exceeds the delay of DNS and router; deployments use ``ENGINE_PRE_STOP_S``."""
PATIENCE_S = READY_TIMEOUT_S


class Replica(Pod):
    """An engine whose probes are run like the kubelet does."""

    def __init__(self, engine: EngineProcess, probe: Kubelet, address: str, port: int) -> None:
        super().__init__(engine.name, address, port)
        self.engine = engine
        self.probe = probe


class Service:
    """Replicas of one model, each at a separate address, and DNS records of the ready ones."""

    def __init__(self, bench: Bench, launcher: VllmServer, cluster: Cluster) -> None:
        self._bench = bench
        self._launcher = launcher
        self.cluster = cluster
        self.model = launcher.model.name
        self.replicas: list[Replica] = []
        self.misses_deletions = False
        self._numbers = itertools.count(2)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self._thread.start()

    def start(self, count: int) -> list[Replica]:
        """Start replicas in parallel, and return them when they are ready."""
        made = [self._start(next(self._numbers)) for _ in range(count)]
        self.replicas.extend(made)
        for each in made:
            each.engine.wait_until_ready()
            each.probe.wait(ready=True, within_s=PATIENCE_S)
        return made

    def _start(self, number: int) -> Replica:
        name, address, port = f"replica-{number}", f"127.0.1.{number}", self.cluster.engine_port
        here = Substitution(VLLM, "--host", address, "each replica has an address of its own")
        ports = {self._launcher.port: port}
        substitutes = CommandRenderer(self._bench.folder / name, self._bench.models, ports, extra_substitutions=(here,))
        engine = EngineProcess(
            name, substitutes.render_process(self._launcher), self._bench.folder, f"http://{address}:{port}"
        )
        engine.start()
        return Replica(engine, kubelet(engine, self._launcher, self._bench.folder), address, port)

    def stop(self, replica: Replica) -> int:
        """Stop a replica like Kubernetes, and return its exit code: DNS first, then preStop, then SIGTERM."""
        self.replicas.remove(replica)
        time.sleep(PRE_STOP_S)
        replica.engine.terminate()
        code = replica.engine.wait(PATIENCE_S)
        replica.probe.stop()
        return code

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        for each in self.replicas:
            each.probe.stop()
            each.engine.kill()

    def _publish(self) -> None:
        """Update DNS like the controllers of Kubernetes. If deletion events are lost, stale entries remain."""
        while not self._ended.wait(0.2):
            if self.misses_deletions:
                continue
            ready: list[Pod] = [each for each in list(self.replicas) if each.probe.ready]
            if ready != self.cluster.published.get(self.model):
                self.cluster.published[self.model] = ready
                self.cluster.publish()
