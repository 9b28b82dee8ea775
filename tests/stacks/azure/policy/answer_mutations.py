"""Mistakes in engines' probes."""

import json

from tests.stacks.azure.policy.graphs import WORKLOADS, Damage, Emitted, Mutation
from tests.stacks.azure.policy.mutations import CELL

PREFILL_METRICS = ["http://127.0.0.1:8001/metrics"]
UNSERVED_URL = "http://127.0.0.1:8001/v1/audio/speech"
ASKED, RIGHT = ("engines-answer",), ("answers-are-of-their-engine",)
READY, ALIVE = "readinessProbe", "livenessProbe"


def by_health(probe: str, *container: str) -> Damage:
    """Only check the HTTP server."""

    def damage(graph: Emitted) -> None:
        asked = graph.container(*container)[probe]
        del asked["exec"]
        asked["httpGet"] = {"path": "/health", "port": 8000}

    return damage


def change_probe(probe: str, *container: str, **values: object) -> Damage:
    """Change the command of a probe."""

    def damage(graph: Emitted) -> None:
        command = graph.container(*container)[probe]["exec"]["command"]
        command[-1] = json.dumps(json.loads(command[-1]) | values)

    return damage


def within_a_second(graph: Emitted) -> None:
    """Use the default timeout of the kubelet."""
    del graph.container("voxtral")[ALIVE]["timeoutSeconds"]


# fmt: off
ANSWERS = (
    Mutation("liveness by /health", WORKLOADS, by_health(ALIVE, "voxtral"), ASKED),
    Mutation("readiness by /health", WORKLOADS, by_health(READY, "voxtral"), ASKED),
    Mutation("readiness of a cell by its front's /health", WORKLOADS, by_health(READY, CELL, "front"), ASKED),
    Mutation("readiness of a cell without decode", WORKLOADS, change_probe(READY, CELL, "front",
             metrics=PREFILL_METRICS), ASKED),
    Mutation("probe for another model", WORKLOADS, change_probe(READY, "voxtral", body={"model": "voxtral"}), RIGHT),
    Mutation("request to a port without a listener", WORKLOADS, change_probe(ALIVE, "speech", url=UNSERVED_URL), RIGHT),
    Mutation("liveness by the other engine", WORKLOADS, change_probe(ALIVE, CELL, "decode", metrics=PREFILL_METRICS),
             RIGHT),
    Mutation("counters that the engine lacks", WORKLOADS, change_probe(READY, "speech", counters=["tokens_total"]),
             RIGHT),
    Mutation("probe that the kubelet gives up", WORKLOADS, within_a_second, RIGHT),
)
# fmt: on
