"""Time series for `cells.yaml` that fire each alert on Azure; the healthy series fire none."""

from typing import NamedTuple

CELLS = 'voice_service="voxtral-cells",voice_pool="cells"'
HEALTHY = {
    'kube_node_info{node="n"}': "1",
    **{f'kube_node_info{{node="{node}"}}': "1" for node in ("aks-cells-1-vmss0", "aks-h100-1-vmss0")},
    'kube_node_status_allocatable{node="aks-cells-1-vmss0",resource="nvidia_com_gpu",unit="integer"}': "4",
    'kube_node_status_allocatable{node="aks-h100-1-vmss0",resource="nvidia_com_gpu",unit="integer"}': "2",
    'kube_node_status_condition{node="n",condition="Ready",status="true"}': "1",
    # The last error code remains after its cause has been fixed, and must not fire an alert.
    'DCGM_FI_DEV_XID_ERRORS{hostname="n",gpu="0",pod="p"}': "79",
    'DCGM_EXP_XID_ERRORS_COUNT{hostname="n",gpu="0",xid="79"}': "0",
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
    # Services of fixed size are always at their maximum, and have no alert.
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
    **{
        f'vllm_omni:num_requests_{state}{{voice_service="speech",voice_pool="h200",pod="p"}}': "0"
        for state in ("running", "waiting")
    },
    'vllm_omni:requests_failed_total{voice_service="speech"}': "0",
    'vllm_omni:requests_success_total{voice_service="speech"}': "0+60x90",
    'voice_agent_conversations{pod="a"}': "6",
    'voice_agent_refused_total{reason="busy",pod="a"}': "0",
    **{
        f'voice_agent_{what}_seconds_bucket{{le="{le}"}}': "0+60x90"
        for what, bounds in (("turn", ("2.5", "5.0", "+Inf")), ("barge_in", ("0.5", "2.0", "+Inf")))
        for le in bounds
    },
    'voice_agent_turn_seconds_count{pod="a"}': "0+60x90",
    'voice_open_sockets{Fleet="gateway",pod="g"}': "8",
    'voice_vad_sessions{Fleet="vad",pod="v"}': "4",
    'voice_vad_stopped{Fleet="vad",pod="v"}': "0",
    'voice_free_slots{Fleet="asr",pod="a"}': "0",
    'voice_free_slots{Fleet="asr",pod="b"}': "3",
    'voice_sessions_refused_total{Fleet="gateway",pod="g"}': "0",
    'voice_sessions_created_total{Fleet="gateway",pod="g"}': "0+100x90",
    'voice_rx_dropped_total{Fleet="vad",Reason="unknown-session",pod="v"}': "0+900x90",
    'voice_rx_dropped_total{Fleet="vad",Reason="ring-full",pod="v"}': "0+5x90",
    'voice_speech_lost_total{Fleet="asr",Loss="given_up",pod="a"}': "0+1x90",
    'voice_speech_lost_total{Fleet="asr",Loss="partials_shed",pod="a"}': "0+90x90",
    'voice_front_door_answers{Fleet="gateway",pod="g"}': "1",
    'voice_synthetic_call_succeeds{Fleet="gateway",pod="g"}': "1",
    'voice_certificate_days{Fleet="gateway",pod="g"}': "40",
    'voice_time_to_final_count{Fleet="gateway"}': "0+60x90",
    'voice_time_to_final_bucket{Fleet="gateway",le="1000.0"}': "0+60x90",
    'voice_time_to_final_bucket{Fleet="gateway",le="2000.0"}': "0+60x90",
    'voice_time_to_final_bucket{Fleet="gateway",le="+Inf"}': "0+60x90",
    f'vllm:nixl_num_failed_transfers_total{{{CELLS},voice_role="decode"}}': "0",
    **{
        f'kube_pod_status_ready{{namespace="voice",condition="true",pod="{pod}"}}': values
        for pod, values in (
            ("voxtral-6d4f9cbb7-abcde", "1"),
            ("voxtral-cells-7c5bd49-fghij", "1"),
            ("voxtral-6d4f9cbb7-start", "0"),
            # A pod that was ready and is terminated by a rollout.
            ("voxtral-6d4f9cbb7-leave", "1+0x20 0+0x70"),
        )
    },
    'kube_pod_deletion_timestamp{namespace="voice",pod="voxtral-6d4f9cbb7-leave"}': "1",
    **{
        f'vllm:generation_tokens_total{{voice_service="{service}",voice_role="{role}",pod="{pod}"}}': "0+6x90"
        for service, role, pod in (
            ("voxtral", "", "voxtral-6d4f9cbb7-abcde"),
            ("voxtral-cells", "prefill", "voxtral-cells-7c5bd49-fghij"),
            ("voxtral-cells", "decode", "voxtral-cells-7c5bd49-fghij"),
        )
    },
}
"""One value per minute; a single value is constant."""


class Case(NamedTuple):
    """A change of the healthy series.

    Attributes:
        alert: The alert that fires.
        series: Changed series; `None` removes one.
        minutes: Time by which it fires; a minute earlier it must be pending.
    """

    alert: str
    series: dict[str, str | None]
    minutes: int


def _set_all(part: str, value: str | None) -> dict[str, str | None]:
    found: dict[str, str | None] = {series: value for series in HEALTHY if part in series}
    assert found
    return found


CASES = (
    Case("telemetry-silent-cluster", _set_all("kube_node_info", None), 5),
    Case("telemetry-silent-voxtral", _set_all('voice_service="voxtral",voice_pool="h100"', None), 5),
    Case("service-down-router", _set_all('status_replicas_available{namespace="voice",deployment="router"', "0"), 2),
    Case("service-down-voxtral", _set_all('status_replicas_available{namespace="voice",deployment="voxtral"', "0"), 5),
    Case(
        "replicas-at-maximum",
        _set_all('current_replicas{namespace="voice",horizontalpodautoscaler="keda-hpa-vox', "3"),
        15,
    ),
    Case("service-down-asr", _set_all('status_replicas_available{namespace="voice",deployment="asr"', "0"), 2),
    Case("telemetry-silent-vad", _set_all("voice_vad_sessions", None), 5),
    Case("sessions-refused", _set_all("sessions_refused", "0+10x90"), 6),
    # 9 % with a budget of 0.5 %
    Case("error-budget-burns-admission-1h", _set_all("sessions_refused", "0+10x90"), 4),
    Case("error-budget-burns-transcript-1h", _set_all('le="1000.0"', "0+30x90"), 4),
    Case("error-budget-burns-turn-1d", _set_all('turn_seconds_bucket{le="2.5"', "0+50x90"), 4),
    Case("first-transcript-slow", _set_all('le="1000.0"', "0+30x90"), 12),
    Case("front-door-closed", _set_all("front_door", "0"), 5),
    Case("synthetic-call-fails", _set_all("synthetic_call", "0"), 5),
    Case("certificate-expires", _set_all("certificate_days", "13"), 60),
    Case("vad-packets-dropped", _set_all("ring-full", "0+20x90"), 6),
    Case("vad-stopped", _set_all("vad_stopped", "1"), 2),
    Case("asr-slots-exhausted", _set_all("voice_free_slots", "0"), 1),
    Case("speech-lost", _set_all("given_up", "0+4x90"), 6),
    Case("service-down-agent", _set_all('status_replicas_available{namespace="voice",deployment="agent"', "0"), 2),
    Case("conversations-refused", _set_all("agent_refused", "0+1x90"), 4),
    Case("turn-slow", _set_all('turn_seconds_bucket{le="2.5"', "0+30x90"), 12),
    Case("barge-in-slow", _set_all('barge_in_seconds_bucket{le="0.5"', "0+30x90"), 12),
    Case("replicas-missing", _set_all('kube_deployment_spec_replicas{namespace="voice",deployment="speech"', "3"), 45),
    Case("engine-stuck-voxtral", _set_all('condition="true",pod="voxtral-6d4f9cbb7-abcde', "1+0x2 0+0x90"), 5),
    Case("engine-stuck-voxtral-cells", _set_all('condition="true",pod="voxtral-cells', "1+0x2 0+0x90"), 5),
    Case("engine-stuck-voxtral", _set_all('tokens_total{voice_service="voxtral",', "5"), 3),
    Case(
        "engine-stuck-voxtral-cells", _set_all('tokens_total{voice_service="voxtral-cells",voice_role="decode"', "5"), 3
    ),
    Case("engine-restarts", _set_all("restarts_total", "0+4x90"), 2),
    Case("model-fetch-failed", _set_all("kube_job_status_failed", "1"), 1),
    Case("gpus-missing", {'kube_node_info{node="aks-a100-1-vmss9"}': "1"}, 10),
    Case("gpus-missing", _set_all('kube_node_status_allocatable{node="aks-cells-1-vmss0"', "3"), 10),
    Case("node-not-ready", _set_all("kube_node_status_condition", "0"), 10),
    Case("gpu-error", _set_all("XID_ERRORS_COUNT", "1"), 1),
    Case(
        "service-saturated-voxtral-requests",
        _set_all('running{voice_service="voxtral",', "1000"),  # 500 per replica of 512
        15,
    ),
    Case("service-saturated-voxtral-cells-decode-kv-cache", _set_all("kv_cache_usage_perc", "1.96"), 15),
    Case(
        "service-saturated-voxtral-cells-prefill-waiting",
        _set_all('waiting{voice_service="voxtral-cells",voice_pool="cells",voice_role="prefill"', "200"),
        15,
    ),
    Case("first-answer-slow-voxtral", _set_all('le="0.5"', "0+30x90"), 12),
    Case("speech-fails-speech", _set_all("requests_failed_total", "0+2x90"), 7),
    Case("kv-transfers-fail-voxtral-cells", _set_all("failed_transfers", "0+1x90"), 7),
)
