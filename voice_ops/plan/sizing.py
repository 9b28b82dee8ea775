"""Builds the tables of engine sizes, layouts and refusals for `voice plan`."""

from collections.abc import Iterator

from rich.table import Table

from voice_blueprint.engines.sizing.kv_store import KvLevel, iter_kv_levels
from voice_blueprint.engines.sizing.layouts import Layout, RejectedLayout
from voice_blueprint.engines.sizing.result import DoesNotFitError, EngineSizing
from voice_blueprint.engines.sizing.service import PoolSizing, ServiceSizing, size_fleet, size_services
from voice_blueprint.file.model.azure import AggregatedService, PrefillDecodeCell
from voice_blueprint.file.model.deployment import Deployment
from voice_ops.output import create_table

SizingResult = ServiceSizing | DoesNotFitError


def create_sizing_tables(deployment: Deployment) -> list[Table]:
    """Return the tables of engines, layouts, KV cache, vLLM fleets and refusals. Empty tables are omitted."""
    services = _calculate_service_sizes(deployment)
    tables = [
        _create_service_table(services),
        _create_layout_table(services),
        _create_kv_table(deployment),
        _create_vllm_fleet_table(deployment),
        _create_refusal_table(deployment, services),
    ]
    return [table for table in tables if table.row_count]


def serialize_sizing(deployment: Deployment) -> dict[str, object]:
    """Return the sizing of all services and fleets for ``--json``."""
    services = {
        name: vars(sizing)
        | ({"enough": sizing.is_sufficient, "verdict": sizing.summary} if isinstance(sizing, ServiceSizing) else {})
        for name, sizing in _calculate_service_sizes(deployment).items()
    }
    return {
        "services": services,
        "fleets": _calculate_fleet_sizes(deployment),
        "kv_levels": dict(_calculate_kv_levels(deployment)),
    }


def _calculate_service_sizes(deployment: Deployment) -> dict[str, SizingResult]:
    return size_services(deployment.azure_section) if deployment.azure_section else {}


def _calculate_fleet_sizes(deployment: Deployment) -> dict[str, EngineSizing | DoesNotFitError]:
    sizings: dict[str, EngineSizing | DoesNotFitError] = {}
    for fleet in deployment.aws_section.asr if deployment.aws_section else ():
        try:
            sizing = size_fleet(fleet)
        except DoesNotFitError as refusal:
            sizings[fleet.name] = refusal
        else:
            if sizing:
                sizings[fleet.name] = sizing
    return sizings


def _create_service_table(services: dict[str, SizingResult]) -> Table:
    table = create_table(
        "engines by service and pool",
        ("service", "pool", "GPUs"),
        ("sessions", "full", "kept", "replicas", "nodes", "most"),
        "limited by",
        "sessions: per engine at the configured length; full: at full context; kept: replicas that KEDA keeps "
        "without load. Replicas and nodes: as needed by the configured load, or kept; most: sessions at the maximum "
        "of both. These are upper limits by memory or published figures, not measured latency",
    )
    for name, sizing in services.items():
        for pool in sizing.pools if isinstance(sizing, ServiceSizing) else ():
            table.add_row(name, pool.pool, _format_gpus(pool), *_format_sizing_cells(pool), pool.engine.limit.value)
    return table


def _format_gpus(pool: PoolSizing) -> str:
    gpu, count = pool.engine.gpu, pool.gpus_per_replica
    if pool.prefill and isinstance(pool.engine, EngineSizing):
        return f"{pool.prefill.tensor_parallel} + {pool.engine.tensor_parallel} x {gpu}"
    return f"{count} x {gpu}"


def _format_sizing_cells(pool: PoolSizing) -> tuple[str, ...]:
    full = f"{pool.engine.sessions_at_full_context:.1f}" if isinstance(pool.engine, EngineSizing) else "-"
    counts = pool.bounds.min, pool.replicas, pool.nodes, pool.sessions
    return str(pool.engine.sessions), full, *map(str, counts)


def _create_layout_table(services: dict[str, SizingResult]) -> Table:
    table = create_table(
        "layouts side by side",
        ("service", "layout"),
        ("sessions", "full", "nodes", "USD/h"),
        "limited by",
        "sessions: per node; nodes and USD/h (pay-as-you-go list price): for the configured sessions",
    )
    for name, sizing in services.items():
        for layout in sizing.alternatives if isinstance(sizing, ServiceSizing) else ():
            table.add_row(name, layout.name, *_format_layout_cells(layout))
    return table


def _format_layout_cells(layout: Layout | RejectedLayout) -> tuple[str, ...]:
    if isinstance(layout, RejectedLayout):
        return "-", "-", "-", "-", f"refused: {layout.refusal.arithmetic}"
    return (
        str(layout.sessions_per_node),
        f"{layout.sessions_per_node_at_full_context:.1f}",
        str(layout.nodes),
        f"{layout.usd_per_hour:,.2f}" if layout.usd_per_hour else "not listed",
        layout.limit.value,
    )


def _create_kv_table(deployment: Deployment) -> Table:
    table = create_table(
        "KV cache outside the GPUs",
        ("service", "level"),
        ("GiB", "sessions", "GB each", "GB/s", "ms"),
        caption="of one replica. GB/s: peak bandwidth of PCIe, or of the disks, to the GPUs. ms: minimum time to load "
        "a session at that bandwidth; the time of an engine is not measured",
    )
    for name, levels in _calculate_kv_levels(deployment):
        for level in levels:
            numbers = f"{level.gib:,}", f"{level.sessions:,}", f"{level.session_gb:.2f}"
            table.add_row(name, level.name, *numbers, f"{level.gb_per_s:.0f}", f"{level.read_ms:.0f}")
    return table


def _calculate_kv_levels(deployment: Deployment) -> Iterator[tuple[str, tuple[KvLevel, ...]]]:
    sizings = _calculate_service_sizes(deployment)
    for service in deployment.azure_section.services if deployment.azure_section else ():
        sizing = sizings[service.name]
        if isinstance(service, PrefillDecodeCell | AggregatedService) and isinstance(sizing, ServiceSizing):
            yield service.name, tuple(iter_kv_levels(service, sizing.pools[0]))


def _create_vllm_fleet_table(deployment: Deployment) -> Table:
    table = create_table("vLLM engines by fleet", ("fleet", "model", "GPUs"), ("sessions/host", "full"), "limited by")
    for name, sizing in _calculate_fleet_sizes(deployment).items():
        if isinstance(sizing, EngineSizing):
            gpus = f"{sizing.tensor_parallel} x {sizing.gpu}"
            full = f"{sizing.sessions_at_full_context:.1f}"
            table.add_row(name, sizing.model, gpus, str(sizing.sessions), full, sizing.limit.value)
    return table


def _create_refusal_table(deployment: Deployment, services: dict[str, SizingResult]) -> Table:
    table = create_table("does not fit", ("service or fleet",), (), "reason and remedy")
    for name, sizing in {**services, **_calculate_fleet_sizes(deployment)}.items():
        if isinstance(sizing, DoesNotFitError):
            table.add_row(name, f"{sizing.arithmetic}\n→ {sizing.remedy}")
        elif isinstance(sizing, ServiceSizing) and not sizing.is_sufficient:
            table.add_row(name, f"{sizing.summary}\n→ raise replicas.max or the pool's nodes.max")
    return table
