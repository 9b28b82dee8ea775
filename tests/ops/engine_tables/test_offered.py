"""Connectors, metrics, endpoints and environment variables are extracted from the source."""

import pytest

from tests.ops.engine_tables.conftest import Wheel
from tools.engine_tables import offered
from tools.engine_tables.names import MissingDefinitionError
from voice_blueprint.engines.published.release import Endpoint


def test_registered_connectors_are_read(wheel: Wheel) -> None:
    reader = wheel(
        {
            "a.py": 'Factory.register("One", "m", "C")\nFactory.register(NAME, "m", "C")\nNAME = "Two"\n',
            "b.py": 'Other.register("Three", "m", "C")\nregister("four", C)\n',
        }
    )
    assert offered.find_registered_names(reader, "register", "Factory") == ["One", "Two"]
    assert offered.find_registered_names(reader, "register") == ["four"]


METRICS = """
    from .names import DEFINED, Offload

    class Logger:
        _gauge_cls = Gauge
        def __init__(self):
            self._gauge_cls(name="x:running", documentation="d")
            self._counter_cls(name="x:tokens", documentation="d")
            Counter(name="x:done_total", documentation="d")
            Histogram(DEFINED, "d", buckets=[1])
            self.definitions = {Offload.USED: GaugeMetadata("d")}
            definitions[Offload.STORED] = CounterMetadata("d")
            specs = [("x:drafts", "d")]
            self._gauge_cls(name=name_of("other"), documentation="see x:running")
            Counter(name="y:foreign", documentation="d")
"""
OTEL = """
    meter = metrics.get_meter("x.lookup")
    a = meter.create_counter("x.hit", unit="tokens", description="d")
    b = meter.create_histogram("x.load", description="d", unit="GB/s")
    c = meter.create_counter("x.failures_total", unit="{failures}")
    d = meter.create_histogram("x.wait_seconds", unit="s")
    register_gauge("x.engine", "x.depth", "d", f)
"""


def test_metrics_are_named_as_prometheus_exposes_them(wheel: Wheel) -> None:
    reader = wheel(
        {
            "p/__init__.py": "",
            "p/metrics.py": METRICS,
            "p/names.py": 'DEFINED = "x:wait_seconds"\nclass Offload:\n    USED = "x:used"\n    STORED = "x:stored"\n',
        }
    )
    found = {metric.name: metric.kind for metric in offered.find_metrics(reader, ["x:"])}
    assert found == {
        "x:running": "gauge",
        "x:tokens_total": "counter",
        "x:done_total": "counter",
        "x:wait_seconds": "histogram",
        "x:used": "gauge",
        "x:stored_total": "counter",
        "x:drafts": "unknown",
    }


def test_opentelemetry_adds_units_to_names(wheel: Wheel) -> None:
    found = {metric.name: metric.kind for metric in offered.find_metrics(wheel({"m.py": OTEL}), ["x."])}
    assert found == {
        "x_hit_tokens_total": "counter",
        "x_load_GB_per_second": "histogram",
        "x_failures_total": "counter",
        "x_wait_seconds": "histogram",
        "x_depth": "gauge",
    }


def test_endpoints_with_their_methods(wheel: Wheel) -> None:
    reader = wheel(
        {
            "api/routes.py": """
                router = APIRouter()
                sub_router = APIRouter(prefix="/sub")
                @router.post("/v1/speech", responses={})
                async def speech(): ...
                @router.websocket("/v1/live")
                async def live(): ...
                @sub_router.delete("/{name}")
                async def remove(): ...
                @app.get("/health")
                async def health(): ...
                router.add_api_route("/abort", abort, methods=["POST"])
                route = Mount("/metrics", app)
                settings.get("/not/an/endpoint")
            """,
            "client/calls.py": '@router.get("/elsewhere")\ndef f(): ...\n',
        }
    )
    assert offered.find_endpoints(reader, ["api/"]) == (
        Endpoint(method="POST", path="/abort"),
        Endpoint(method="GET", path="/health"),
        Endpoint(method="GET", path="/metrics"),
        Endpoint(method="DELETE", path="/sub/{name}"),
        Endpoint(method="WEBSOCKET", path="/v1/live"),
        Endpoint(method="POST", path="/v1/speech"),
    )


def test_environment_variables_declared_and_read(wheel: Wheel) -> None:
    reader = wheel(
        {
            "p/envs.py": """
                import os
                if TYPE_CHECKING:
                    P_PORT: int = 5600
                    P_HOST: str | None = None
                    _P_INTERNAL: int = 1
                environment_variables: dict = {"P_PORT": lambda: 1, "P_EXTRA": lambda: 2}
            """,
            "p/use.py": 'import os\nos.getenv("P_READ")\nos.environ.get("P_ALSO", "1")\nos.getenv("HOME")\n',
            "p/listed.py": 'NAMES = ("P_LISTED",)\nDEFINED: dict = {"size": {"type": float, "default": 5.0}}\n',
        }
    )
    assert offered.find_declared_variables(reader, "p.envs") == {"P_PORT": 5600, "P_HOST": None, "P_EXTRA": None}
    assert offered.find_read_variables(reader, "P_") == {"P_READ": None, "P_ALSO": None}
    assert offered.find_listed_variables(reader, "p.listed.NAMES") == {"P_LISTED": None}
    assert offered.find_settings_variables(reader, "P_", "p.listed.DEFINED") == {"P_SIZE": 5.0}
    with pytest.raises(MissingDefinitionError, match=r"no p\.gone"):
        offered.find_declared_variables(reader, "p.gone")
