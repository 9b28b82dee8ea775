"""Series over which each alert on Azure fires, of the file `cells.yaml`; over the healthy ones none does."""

from typing import NamedTuple

CELLS = 'voice_service="voxtral-cells",voice_pool="cells"'
HEALTHY = {
    'kube_node_info{node="n"}': "1",
    'kube_node_status_condition{node="n",condition="Ready",status="true"}': "1",
    'DCGM_FI_DEV_XID_ERRORS{Hostname="n",gpu="0",pod="p"}': "0",
    **{
        f'{metric}{{namespace="voice",deployment="{name}"}}': "2"
        for name in ("router", "voxtral-cells", "voxtral", "speech", "qwen-a100", "gateway", "vad", "asr", "agent")
        for metric in (
            "kube_deployment_status_replicas_available",
            "kube_deployment_status_replicas_ready",
            "kube_deployment_spec_replicas",
        )
    },
    **{
        f'kube_horizontalpodautoscaler_{figure}{{namespace="voice",horizontalpodautoscaler="keda-hpa-voxtral"}}': value
        for figure, value in (("status_current_replicas", "2"), ("spec_min_replicas", "1"), ("spec_max_replicas", "3"))
    },
    # Bounds of one number: always at its maximum, and nothing to tell.
    **{
        f'kube_horizontalpodautoscaler_{figure}{{namespace="voice",horizontalpodautoscaler="keda-hpa-one"}}': "1"
        for figure in ("status_current_replicas", "spec_min_replicas", "spec_max_replicas")
    },
    'kube_pod_container_status_restarts_total{namespace="voice",pod="p",container="engine"}': "1",
    'kube_job_status_failed{namespace="voice",job_name="fetch"}': "0",
    **{
        f'vllm:num_requests_{state}{{voice_service="{service}",voice_pool="{pool}",voice_role="{role}",pod="p"}}': "0"
        for service, pool, role in (
            ("voxtral-cells", "cells", "prefill"),
            ("voxtral-cells", "cells", "decode"),
            ("voxtral", "h100", ""),
            ("speech", "h200", ""),
            ("qwen", "a100", ""),
        )
        for state in ("running", "waiting")
    },
    f'vllm:kv_cache_usage_perc{{{CELLS},voice_role="decode",pod="p"}}': "1.6",  # two replicas at 80 %
    'vllm:time_to_first_token_seconds_bucket{voice_service="voxtral",le="0.5"}': "0+60x90",
    'vllm:time_to_first_token_seconds_bucket{voice_service="voxtral",le="2.5"}': "0+60x90",
    'vllm:time_to_first_token_seconds_bucket{voice_service="voxtral",le="+Inf"}': "0+60x90",
    'vllm_omni:requests_failed_total{voice_service="speech"}': "0",
    'vllm_omni:requests_success_total{voice_service="speech"}': "0+60x90",
    'voice_agent_conversations{pod="a"}': "6",
    'voice_agent_refused_total{reason="busy",pod="a"}': "0",
    **{
        f'voice_agent_{what}_seconds_bucket{{le="{le}"}}': "0+60x90"
        for what, bounds in (("turn", ("1.5", "5.0", "+Inf")), ("barge_in", ("0.5", "2.0", "+Inf")))
        for le in bounds
    },
    'voice_open_sockets{Fleet="gateway",pod="g"}': "8",
    'voice_vad_sessions{Fleet="vad",pod="v"}': "4",
    'voice_vad_stopped{Fleet="vad",pod="v"}': "0",
    'voice_free_slots{Fleet="asr",pod="a"}': "0",
    'voice_free_slots{Fleet="asr",pod="b"}': "3",
    'voice_sessions_refused_total{Fleet="gateway",pod="g"}': "0",
    'voice_rx_dropped_total{Fleet="vad",Reason="unknown-session",pod="v"}': "0+900x90",
    'voice_rx_dropped_total{Fleet="vad",Reason="ring-full",pod="v"}': "0+5x90",
    'voice_speech_lost_total{Fleet="asr",Loss="given_up",pod="a"}': "0+1x90",
    'voice_speech_lost_total{Fleet="asr",Loss="partials_shed",pod="a"}': "0+90x90",
    'voice_time_to_final_bucket{Fleet="gateway",le="750.0"}': "0+60x90",
    'voice_time_to_final_bucket{Fleet="gateway",le="2000.0"}': "0+60x90",
    'voice_time_to_final_bucket{Fleet="gateway",le="+Inf"}': "0+60x90",
    f'vllm:nixl_num_failed_transfers_total{{{CELLS},voice_role="decode"}}': "0",
}
"""Values after a minute each; one that stands alone stays as it is."""


class Case(NamedTuple):
    """A change of the healthy series.

    Attributes:
        alert: What fires.
        series: Other values of series; `None` takes one away.
        minutes: By when it fires; a minute before it has to be pending.
    """

    alert: str
    series: dict[str, str | None]
    minutes: int


def _all(part: str, value: str | None) -> dict[str, str | None]:
    found: dict[str, str | None] = {series: value for series in HEALTHY if part in series}
    assert found
    return found


CASES = (
    Case("telemetry-silent-cluster", _all("kube_node_info", None), 5),
    Case("telemetry-silent-voxtral", _all('voice_service="voxtral",voice_pool="h100"', None), 5),
    Case("service-down-router", _all('status_replicas_available{namespace="voice",deployment="router"', "0"), 2),
    Case("service-down-voxtral", _all('status_replicas_available{namespace="voice",deployment="voxtral"', "0"), 5),
    Case(
        "replicas-at-maximum", _all('current_replicas{namespace="voice",horizontalpodautoscaler="keda-hpa-vox', "3"), 15
    ),
    Case("service-down-asr", _all('status_replicas_available{namespace="voice",deployment="asr"', "0"), 2),
    Case("telemetry-silent-vad", _all("voice_vad_sessions", None), 5),
    Case("sessions-refused", _all("sessions_refused", "0+1x90"), 4),
    Case("first-transcript-slow", _all('le="750.0"', "0+30x90"), 12),
    Case("vad-packets-dropped", _all("ring-full", "0+20x90"), 6),
    Case("vad-stopped", _all("vad_stopped", "1"), 2),
    Case("asr-slots-exhausted", _all("voice_free_slots", "0"), 1),
    Case("speech-lost", _all("given_up", "0+4x90"), 6),
    Case("service-down-agent", _all('status_replicas_available{namespace="voice",deployment="agent"', "0"), 2),
    Case("conversations-refused", _all("agent_refused", "0+1x90"), 4),
    Case("turn-slow", _all('turn_seconds_bucket{le="1.5"', "0+30x90"), 12),
    Case("barge-in-slow", _all('barge_in_seconds_bucket{le="0.5"', "0+30x90"), 12),
    Case("replicas-missing", _all('kube_deployment_spec_replicas{namespace="voice",deployment="speech"', "3"), 45),
    Case("engine-restarts", _all("restarts_total", "0+4x90"), 2),
    Case("model-fetch-failed", _all("kube_job_status_failed", "1"), 1),
    Case("node-not-ready", _all("kube_node_status_condition", "0"), 10),
    Case("gpu-error", _all("XID", "79"), 1),
    Case(
        "service-saturated-voxtral-requests",
        _all('running{voice_service="voxtral",', "1000"),  # 500 a replica of 512
        15,
    ),
    Case("service-saturated-voxtral-cells-decode-kv-cache", _all("kv_cache_usage_perc", "1.96"), 15),
    Case(
        "service-saturated-voxtral-cells-prefill-waiting",
        _all('waiting{voice_service="voxtral-cells",voice_pool="cells",voice_role="prefill"', "200"),
        15,
    ),
    Case("first-answer-slow-voxtral", _all('le="0.5"', "0+30x90"), 12),
    Case("speech-fails-speech", _all("requests_failed_total", "0+2x90"), 7),
    Case("kv-transfers-fail-voxtral-cells", _all("failed_transfers", "0+1x90"), 7),
)
