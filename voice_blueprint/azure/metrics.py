"""Metrics of the cluster that scaling, alerts and dashboards read, and the labels that scraping adds to them."""

from enum import StrEnum

SERVICE_METRIC_LABEL = "voice_service"
"""Label with the service's name."""

POOL_METRIC_LABEL = "voice_pool"
"""Label with the GPU pool's name."""

ROLE_METRIC_LABEL = "voice_role"
"""Label with an engine's role in its cell; engines outside of cells do not have the label."""

SCRAPE_INTERVAL_S = 15


class EngineMetric(StrEnum):
    """Metrics from vLLM. vLLM-Omni publishes them for each stage."""

    RUNNING = "vllm:num_requests_running"
    WAITING = "vllm:num_requests_waiting"
    KV_USAGE = "vllm:kv_cache_usage_perc"
    """Share of the KV cache in use, 0 to 1."""
    GENERATION_TOKENS = "vllm:generation_tokens_total"
    PROMPT_TOKENS = "vllm:prompt_tokens_total"
    """Prompt tokens. All tokens of a prompt are counted at the end of its prefill."""
    TIME_TO_FIRST_TOKEN = "vllm:time_to_first_token_seconds"  # noqa: S105  a token of text, not a credential
    FAILED_TRANSFERS = "vllm:nixl_num_failed_transfers_total"
    """Failed transfers of KV cache from a cell's prefill engine to its decode engine. Only decode engines report values
    above 0."""


class SpeechMetric(StrEnum):
    """vLLM-Omni metrics for whole requests. ``EngineMetric`` counts a request once per stage."""

    GENERATION_TOKENS = "vllm_omni:generation_tokens_total"
    PROMPT_TOKENS = "vllm_omni:prompt_tokens_total"
    AUDIO_FRAMES = "vllm_omni:audio_frames_total"
    RUNNING = "vllm_omni:num_requests_running"
    WAITING = "vllm_omni:num_requests_waiting"
    """Requests that wait for a stage; ``RUNNING`` excludes them (``OmniBase._publish_request_gauges``)."""
    TIME_TO_FIRST_AUDIO = "vllm_omni:audio_ttfp_s"
    FAILED_REQUESTS = "vllm_omni:requests_failed_total"
    SUCCESSFUL_REQUESTS = "vllm_omni:requests_success_total"


class CacheMetric(StrEnum):
    """Metrics from an LMCache server."""

    L1_USAGE_RATIO = "lmcache_mp_l1_usage_ratio"
    """Share of the server's memory in use, 0 to 1."""


class AgentMetric(StrEnum):
    """Metrics from agents (images/agent/src/voice_agent/metrics.py)."""

    CONVERSATIONS = "voice_agent_conversations"
    SLOTS = "voice_agent_slots"
    REFUSED = "voice_agent_refused_total"
    TURN = "voice_agent_turn_seconds"
    STAGE = "voice_agent_stage_seconds"
    BARGE_IN = "voice_agent_barge_in_seconds"


class GpuMetric(StrEnum):
    """Metrics from the DCGM exporter, as configured by `voice_blueprint.engines.launch.dcgm`."""

    UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"
    MEMORY_USED = "DCGM_FI_DEV_FB_USED"
    TENSOR_ACTIVE = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
    MEMORY_ACTIVE = "DCGM_FI_PROF_DRAM_ACTIVE"
    NVLINK_SENT = "DCGM_FI_PROF_NVLINK_TX_BYTES"
    TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"
    XID = "DCGM_FI_DEV_XID_ERRORS"
    """Number of the last XID error, or 0. The value persists until the exporter restarts."""
    XID_COUNT = "DCGM_EXP_XID_ERRORS_COUNT"
    """XID errors in the last five minutes by error number (``xid``), as counted by the exporter."""


class ClusterMetric(StrEnum):
    """Metrics from kube-state-metrics that the cluster's Prometheus agent collects.

    Source: https://github.com/kubernetes/kube-state-metrics/tree/main/docs/metrics
    """

    AVAILABLE_REPLICAS = "kube_deployment_status_replicas_available"
    READY_REPLICAS = "kube_deployment_status_replicas_ready"
    DESIRED_REPLICAS = "kube_deployment_spec_replicas"
    AUTOSCALER_REPLICAS = "kube_horizontalpodautoscaler_status_current_replicas"
    AUTOSCALER_MIN_REPLICAS = "kube_horizontalpodautoscaler_spec_min_replicas"
    AUTOSCALER_MAX_REPLICAS = "kube_horizontalpodautoscaler_spec_max_replicas"
    JOB_FAILED = "kube_job_status_failed"
    NODE_INFO = "kube_node_info"
    NODE_CONDITION = "kube_node_status_condition"
    ALLOCATABLE = "kube_node_status_allocatable"
    """Allocatable amounts by ``resource``; in resource names, underscores replace dots and slashes."""
    CREATED_AT = "kube_pod_created"
    SCHEDULED_AT = "kube_pod_status_scheduled_time"
    STARTED_AT = "kube_pod_container_state_started"
    READY_AT = "kube_pod_status_ready_time"
    POD_READY = "kube_pod_status_ready"
    """One series per value of the label ``condition``; the series of the pod's current condition is 1."""
    DELETED_AT = "kube_pod_deletion_timestamp"
    """Deletion time of terminating pods."""
    RESTARTS = "kube_pod_container_status_restarts_total"


CONTAINER_CPU_METRIC = "container_cpu_usage_seconds_total"
"""CPU time of each container: a kubelet metric that the cluster's Prometheus agent collects by default."""

POD_START_METRIC = "voice:pod_start_seconds"
"""Result of our recording rules: start-up time of a pod by phase (`PHASE_METRIC_LABEL`)."""

PHASE_METRIC_LABEL = "phase"


class CellRole(StrEnum):
    """Values of ``ROLE_METRIC_LABEL``."""

    PREFILL = "prefill"
    DECODE = "decode"


def build_sum_query(metric: EngineMetric | SpeechMetric, **labels: str) -> str:
    """Return PromQL for the sum of a metric over all series with these labels."""
    selector = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"sum({metric}{{{selector}}})"


def build_p95_query(histogram: str, **labels: str) -> str:
    """Return PromQL for the 95th percentile over five minutes."""
    selector = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"histogram_quantile(0.95, sum by (le) (rate({histogram}_bucket{{{selector}}}[5m])))"
