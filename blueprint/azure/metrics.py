"""Metrics of the cluster that scaling, alerts and dashboards read, and the labels that scraping adds to them."""

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
    FIRST_TOKEN = "vllm:time_to_first_token_seconds"  # noqa: S105  a token of text
    TRANSFERS_FAILED = "vllm:nixl_num_failed_transfers_total"
    """Of KV cache, from a cell's prefill engine to its decode engine; only the latter's are above 0."""


class SpeechMetric(StrEnum):
    """What vLLM-Omni publishes of whole requests."""

    FIRST_SOUND = "vllm_omni:audio_ttfp_s"
    FAILED = "vllm_omni:requests_failed_total"
    SUCCEEDED = "vllm_omni:requests_success_total"


class CacheMetric(StrEnum):
    """What an LMCache server publishes."""

    USED = "lmcache_mp_l1_usage_ratio"
    """Share of its memory in use, 0 to 1."""


class AgentMetric(StrEnum):
    """What the agents publish (images/agent/src/voice_agent/metrics.py)."""

    CONVERSATIONS = "voice_agent_conversations"
    SLOTS = "voice_agent_slots"
    REFUSED = "voice_agent_refused_total"
    TURN = "voice_agent_turn_seconds"
    STAGE = "voice_agent_stage_seconds"
    BARGE_IN = "voice_agent_barge_in_seconds"


class GpuMetric(StrEnum):
    """What the DCGM exporter publishes; `blueprint.engines.launch.dcgm` asks it for these."""

    BUSY = "DCGM_FI_DEV_GPU_UTIL"
    MEMORY_USED = "DCGM_FI_DEV_FB_USED"
    TENSOR_ACTIVE = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
    MEMORY_ACTIVE = "DCGM_FI_PROF_DRAM_ACTIVE"
    NVLINK_SENT = "DCGM_FI_PROF_NVLINK_TX_BYTES"
    TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"
    XID = "DCGM_FI_DEV_XID_ERRORS"
    """The last error's number; 0 is none."""


class ClusterMetric(StrEnum):
    """What kube-state-metrics publishes, and the cluster's Prometheus agent is told to keep.

    Source: https://github.com/kubernetes/kube-state-metrics/tree/main/docs/metrics
    """

    AVAILABLE = "kube_deployment_status_replicas_available"
    READY = "kube_deployment_status_replicas_ready"
    WANTED = "kube_deployment_spec_replicas"
    SCALED = "kube_horizontalpodautoscaler_status_current_replicas"
    SCALED_MIN = "kube_horizontalpodautoscaler_spec_min_replicas"
    SCALED_MAX = "kube_horizontalpodautoscaler_spec_max_replicas"
    JOB_FAILED = "kube_job_status_failed"
    NODE = "kube_node_info"
    NODE_CONDITION = "kube_node_status_condition"
    CREATED = "kube_pod_created"
    SCHEDULED_AT = "kube_pod_status_scheduled_time"
    STARTED_AT = "kube_pod_container_state_started"
    READY_AT = "kube_pod_status_ready_time"
    RESTARTS = "kube_pod_container_status_restarts_total"


CONTAINER_CPU = "container_cpu_usage_seconds_total"
"""What the kubelets publish of each container; the cluster's Prometheus agent keeps it by itself."""

START_SECONDS = "voice:pod_start_seconds"
"""What our recording rules publish: how long a pod's start took, by part (`PHASE_SERIES`)."""

PHASE_SERIES = "phase"


class CellRole(StrEnum):
    """Values of ``ROLE_SERIES``."""

    PREFILL = "prefill"
    DECODE = "decode"


def total(metric: EngineMetric, **labels: str) -> str:
    """Return PromQL for the sum of a metric over everything with these labels."""
    selector = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"sum({metric}{{{selector}}})"


def p95(histogram: str, **labels: str) -> str:
    """Return PromQL for what one request in twenty exceeds, over five minutes."""
    selector = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"histogram_quantile(0.95, sum by (le) (rate({histogram}_bucket{{{selector}}}[5m])))"
