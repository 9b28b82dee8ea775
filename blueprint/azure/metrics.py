"""Metrics of the cluster that scaling and dashboards read, and the labels that scraping adds to them."""

from enum import StrEnum

SERVICE_SERIES = "voice_service"
"""Label with the service's name."""

POOL_SERIES = "voice_pool"
"""Label with the GPU pool's name."""

ROLE_SERIES = "voice_role"
"""Label with the engine's part in its cell; other engines have none."""

SCRAPE_INTERVAL_S = 15


class EngineMetric(StrEnum):
    """What vLLM publishes of itself; vLLM-Omni publishes the same of its stages."""

    RUNNING = "vllm:num_requests_running"
    WAITING = "vllm:num_requests_waiting"
    KV_USAGE = "vllm:kv_cache_usage_perc"
    """Share of the KV cache in use, 0 to 1."""


class CellRole(StrEnum):
    """Values of ``ROLE_SERIES``."""

    PREFILL = "prefill"
    DECODE = "decode"


def total(metric: EngineMetric, **labels: str) -> str:
    """Return PromQL for the sum of a metric over everything with these labels."""
    selector = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"sum({metric}{{{selector}}})"
