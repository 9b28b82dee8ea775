"""The sizing of a deployment's engines, for `voice plan`: what fits, what binds, and both layouts side by side."""

from rich.table import Table

from blueprint.engines.sizing.layouts import Layout, RefusedLayout
from blueprint.engines.sizing.result import DoesNotFitError, EngineSizing
from blueprint.engines.sizing.service import PoolSizing, ServiceSizing, size_fleet, size_services
from blueprint.engines.sizing.tts import TtsSizing
from blueprint.file.model.deployment import Deployment
from ops.output import empty_table

Sized = ServiceSizing | DoesNotFitError


def sizing_tables(deployment: Deployment) -> list[Table]:
    """Return the tables of engines, layouts, refusals and vLLM fleets; only those that have rows."""
    services = _services(deployment)
    tables = [
        _service_table(services),
        _layout_table(services),
        _fleet_table(deployment),
        _refusals(deployment, services),
    ]
    return [table for table in tables if table.row_count]


def sizing_as_dict(deployment: Deployment) -> dict[str, object]:
    """Return the same for ``--json``."""
    return {
        "services": {name: _service_as_dict(sized) for name, sized in _services(deployment).items()},
        "fleets": {
            name: _refusal_as_dict(sized) if isinstance(sized, DoesNotFitError) else _engine_as_dict(sized)
            for name, sized in _fleets(deployment).items()
        },
    }


def _services(deployment: Deployment) -> dict[str, Sized]:
    return size_services(deployment.azure_half) if deployment.azure_half else {}


def _fleets(deployment: Deployment) -> dict[str, EngineSizing | DoesNotFitError]:
    sizings: dict[str, EngineSizing | DoesNotFitError] = {}
    for fleet in deployment.aws_half.asr if deployment.aws_half else ():
        try:
            sized = size_fleet(fleet)
        except DoesNotFitError as refusal:
            sizings[fleet.name] = refusal
        else:
            if sized:
                sizings[fleet.name] = sized
    return sizings


def _service_table(services: dict[str, Sized]) -> Table:
    table = empty_table(
        "engines by service and pool",
        ("service", "pool", "GPUs"),
        ("sessions", "full", "replicas", "nodes", "most"),
        "bound by",
        "sessions: that one engine carries at the asked length; full: at full context. Replicas and nodes: what the "
        "asked load needs; most: sessions at the maximum of both. Ceilings of memory or of published figures, not "
        "measured latency",
    )
    for name, sized in services.items():
        for pool in sized.pools if isinstance(sized, ServiceSizing) else ():
            table.add_row(name, pool.pool, _gpus(pool), *_numbers(pool), pool.engine.limit.value)
    return table


def _gpus(pool: PoolSizing) -> str:
    gpu, count = pool.engine.gpu, pool.gpus_per_replica
    if pool.prefill and isinstance(pool.engine, EngineSizing):
        return f"{pool.prefill.tensor_parallel} + {pool.engine.tensor_parallel} x {gpu}"
    return f"{count} x {gpu}"


def _numbers(pool: PoolSizing) -> tuple[str, ...]:
    full = f"{pool.engine.sessions_at_full_context:.1f}" if isinstance(pool.engine, EngineSizing) else "-"
    return str(pool.engine.sessions), full, str(pool.replicas), str(pool.nodes), str(pool.sessions)


def _layout_table(services: dict[str, Sized]) -> Table:
    table = empty_table(
        "layouts side by side",
        ("service", "layout"),
        ("sessions", "full", "nodes", "USD/h"),
        "bound by",
        "sessions: that one node carries; nodes and USD/h (pay-as-you-go list price): for the asked sessions",
    )
    for name, sized in services.items():
        for layout in sized.alternatives if isinstance(sized, ServiceSizing) else ():
            table.add_row(name, layout.name, *_layout_cells(layout))
    return table


def _layout_cells(layout: Layout | RefusedLayout) -> tuple[str, ...]:
    if isinstance(layout, RefusedLayout):
        return "-", "-", "-", "-", f"refused: {layout.refusal.arithmetic}"
    return (
        str(layout.sessions_per_node),
        f"{layout.sessions_per_node_at_full_context:.1f}",
        str(layout.nodes),
        f"{layout.usd_per_hour:,.2f}" if layout.usd_per_hour else "not listed",
        layout.limit.value,
    )


def _fleet_table(deployment: Deployment) -> Table:
    table = empty_table("vLLM engines by fleet", ("fleet", "model", "GPUs"), ("sessions/host", "full"), "bound by")
    for name, sized in _fleets(deployment).items():
        if isinstance(sized, EngineSizing):
            gpus = f"{sized.tensor_parallel} x {sized.gpu}"
            full = f"{sized.sessions_at_full_context:.1f}"
            table.add_row(name, sized.model, gpus, str(sized.sessions), full, sized.limit.value)
    return table


def _refusals(deployment: Deployment, services: dict[str, Sized]) -> Table:
    table = empty_table("does not fit", ("service or fleet",), (), "why, and what would")
    for name, sized in {**services, **_fleets(deployment)}.items():
        if isinstance(sized, DoesNotFitError):
            table.add_row(name, f"{sized.arithmetic}\n→ {sized.remedy}")
        elif isinstance(sized, ServiceSizing) and not sized.enough:
            table.add_row(name, f"{sized.verdict}\n→ raise replicas.max or the pool's nodes.max")
    return table


def _service_as_dict(sized: Sized) -> dict[str, object]:
    if isinstance(sized, DoesNotFitError):
        return _refusal_as_dict(sized)
    return {
        "kind": sized.kind,
        "model": sized.model,
        "asked_sessions": sized.asked,
        "sessions_at_most": sized.sessions,
        "enough": sized.enough,
        "verdict": sized.verdict,
        "pools": [_pool_as_dict(pool) for pool in sized.pools],
        "layouts": [_layout_as_dict(layout) for layout in sized.alternatives],
    }


def _pool_as_dict(pool: PoolSizing) -> dict[str, object]:
    return {
        "pool": pool.pool,
        "vm_size": pool.vm_size,
        "gpus_per_replica": pool.gpus_per_replica,
        "replicas_per_node": pool.replicas_per_node,
        "replicas": pool.replicas,
        "nodes": pool.nodes,
        "replicas_at_most": pool.most_replicas,
        "host_memory": pool.host.arithmetic(),
        "engine": _engine_as_dict(pool.engine),
        "prefill": _engine_as_dict(pool.prefill) if pool.prefill else None,
    }


def _engine_as_dict(engine: EngineSizing | TtsSizing) -> dict[str, object]:
    common: dict[str, object] = {
        "model": engine.model,
        "gpu": engine.gpu,
        "sessions": engine.sessions,
        "limit": engine.limit.value,
        "max_num_seqs": engine.max_num_seqs,
        "max_model_len": engine.max_model_len,
        "arithmetic": engine.arithmetic,
        "reasons": dict(engine.reasons),
    }
    if isinstance(engine, TtsSizing):
        return common
    return {
        **common,
        "tensor_parallel": engine.tensor_parallel,
        "profile": engine.profile.value,
        "kv_cache_tokens": engine.kv_cache_tokens,
        "sessions_at_full_context": round(engine.sessions_at_full_context, 1),
        "max_num_batched_tokens": engine.max_num_batched_tokens,
        "max_queued_requests": engine.max_queued_requests,
        "cudagraph_capture_sizes": list(engine.cudagraph_capture_sizes),
    }


def _layout_as_dict(layout: Layout | RefusedLayout) -> dict[str, object]:
    if isinstance(layout, RefusedLayout):
        return {"layout": layout.name, "vm_size": layout.vm_size, **_refusal_as_dict(layout.refusal)}
    return {
        "layout": layout.name,
        "vm_size": layout.vm_size,
        "sessions_per_node": layout.sessions_per_node,
        "sessions_per_node_at_full_context": round(layout.sessions_per_node_at_full_context, 1),
        "replicas": layout.replicas,
        "nodes": layout.nodes,
        "usd_per_hour": layout.usd_per_hour,
        "limit": layout.limit.value,
    }


def _refusal_as_dict(refusal: DoesNotFitError) -> dict[str, object]:
    return {"refused": refusal.arithmetic, "remedy": refusal.remedy}
