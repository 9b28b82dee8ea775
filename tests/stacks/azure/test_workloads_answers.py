"""Engine pods are ready and alive while they respond."""

from typing import TypeGuard
from urllib.parse import urlsplit

import pytest

from tests.blueprint.engines.rules import check_endpoint, check_metric
from tests.nonempty import nonempty
from tests.stacks.azure.manifests import Manifest, engine_pods, production, workloads
from voice_blueprint.azure.contract import ENGINE_HTTP
from voice_blueprint.engines.published.release import load_published_table
from voice_constructs.azure.kubernetes.engine_check import PROGRAM_PATH
from voice_constructs.azure.kubernetes.files.check_engine import CheckConfig
from voice_sandbox.azure.graph import Graph

PRODUCTION = production()
WITH_LMCACHE = production({"azure.services.1.lmcache": {"l1_gib": 100}})


@pytest.fixture(scope="module", params=[PRODUCTION, WITH_LMCACHE], ids=["production", "with LMCache"])
def graph(request: pytest.FixtureRequest) -> Graph:
    return workloads(request.param)


def test_readiness_and_liveness_require_an_engine_response(graph: Graph) -> None:
    """In a cell the front is probed, through which a request reaches both engines."""
    for each in nonempty(engine_pods(graph)):
        engines = [one for one in each.main if one["name"] != "gpus"]
        (readiness,) = (checks(probe) for one in each.running if is_check(probe := one.get("readinessProbe")))
        ports = [one["ports"][0]["containerPort"] for one in engines]
        assert readiness.metrics == [f"http://127.0.0.1:{port}/metrics" for port in ports]
        states = [readiness.state]
        for one in engines:
            table = load_published_table("vllm-omni" if "--omni" in one["command"] else "vllm")
            alive = checks(one["livenessProbe"])
            states.append(alive.state)
            for check in (readiness, alive):
                asked = urlsplit(check.url)
                assert not list(check_endpoint(table, "POST", asked.path))
                assert not [name for name in check.counters if list(check_metric(table, name))]
                assert check.body["model"] == option(one, "--served-model-name")
            assert alive.metrics == [f"http://127.0.0.1:{one['ports'][0]['containerPort']}/metrics"]
            assert urlsplit(alive.url).port == one["ports"][0]["containerPort"]
            assert one["livenessProbe"]["terminationGracePeriodSeconds"] < 30, "nothing of it is worth waiting for"
        assert urlsplit(readiness.url).port == ENGINE_HTTP.number
        assert len(states) == len(set(states))


def test_a_hanging_engine_is_unready_after_20_s_and_restarted_after_150_s(graph: Graph) -> None:
    """In the worst case the probe observed progress directly before the engine hung."""
    for each in nonempty(engine_pods(graph)):
        for one in each.running:
            for kind, limit_s in (("readinessProbe", 20), ("livenessProbe", 150)):
                if is_check(probe := one.get(kind)):
                    check = checks(probe)
                    assert check.limit_s < probe["timeoutSeconds"] <= probe["periodSeconds"]
                    assert probe["periodSeconds"] * (1 + probe["failureThreshold"]) + check.limit_s < limit_s


def is_check(probe: Manifest | None) -> TypeGuard[Manifest]:
    return PROGRAM_PATH in ((probe or {}).get("exec") or {}).get("command", ())


def checks(probe: Manifest) -> CheckConfig:
    return CheckConfig.from_json(probe["exec"]["command"][-1])


def option(container: Manifest, flag: str) -> str:
    command: list[str] = container["command"]
    return command[command.index(flag) + 1]
