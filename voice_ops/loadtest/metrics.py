"""Metrics of a request, with units and definitions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from voice_ops.loadtest.drivers import Api
from voice_ops.loadtest.trace import RequestTrace

_FIRST_PIECE_LABELS = {Api.CHAT: "first token", Api.SPEECH: "first audio", Api.CONVERSATION: "first audio"}

_FINAL_LABELS = {
    Api.SESSION: "end of session after last frame",
    Api.CONVERSATION: "end of answer after end of question",
}


@dataclass(frozen=True)
class Metric:
    """A metric of a request."""

    name: str
    unit: str
    meaning: str
    extract_values: Callable[[RequestTrace], Sequence[float]]
    """Values of the metric for one request: none, one, or one per gap."""


def _to_milliseconds(seconds: float | None) -> list[float]:
    return [] if seconds is None else [1000 * seconds]


def _calculate_gaps_ms(trace: RequestTrace) -> list[float]:
    # Gaps between reads of audio are not meaningful; `starved` measures whether playback would stall.
    return [] if trace.output_audio_s else [1000 * gap for gap in trace.piece_gaps_s]


def _calculate_mean_token_times_ms(trace: RequestTrace) -> list[float]:
    if not trace.output_tokens or trace.output_tokens < 2 or not trace.arrivals_s:  # noqa: PLR2004  a single token has no gap
        return []
    return _to_milliseconds((trace.arrivals_s[-1] - trace.arrivals_s[0]) / (trace.output_tokens - 1))


def _calculate_final_delays_ms(trace: RequestTrace) -> list[float]:
    return [] if trace.input_ended_s is None else _to_milliseconds(trace.ended_s - trace.input_ended_s)


def _calculate_turn_delays_ms(trace: RequestTrace) -> list[float]:
    if trace.input_ended_s is None or not trace.output_audio_s:
        return []
    return _to_milliseconds(trace.arrivals_s[0] - trace.input_ended_s)


def _calculate_real_time_factors(trace: RequestTrace) -> list[float]:
    # A live stream takes as long as the speech, regardless of the engine's speed; its metric is `final`.
    return [trace.total_duration_s / trace.audio_s] if trace.audio_s and trace.input_ended_s is None else []


METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            "first",
            "ms",
            "from the intended start to the first piece",
            lambda t: _to_milliseconds(t.first_piece_delay_s),
        ),
        Metric("gap", "ms", "between two events with text; an event may contain several tokens", _calculate_gaps_ms),
        Metric(
            "token",
            "ms",
            "from the first piece to the last, for each further token of the usage",
            _calculate_mean_token_times_ms,
        ),
        Metric(
            "final",
            "ms",
            "from the last frame of a live feed to the final transcript or the session's end",
            _calculate_final_delays_ms,
        ),
        Metric(
            "turn",
            "ms",
            "from the last frame of a question to the first sound of its answer",
            _calculate_turn_delays_ms,
        ),
        Metric(
            "total",
            "ms",
            "from the intended start to the end of the answer",
            lambda t: _to_milliseconds(t.total_duration_s),
        ),
        Metric("rtf", "", "total time / duration of the audio", _calculate_real_time_factors),
        Metric("starved", "ms", "for which playback stalls", lambda t: _to_milliseconds(t.playback_stall_s)),
    )
}


def get_metric_label(name: str, api: Api) -> str:
    """Return the name of a metric in one API's terms."""
    return {
        "first": f"time to {_FIRST_PIECE_LABELS.get(api, 'first partial')}",
        "gap": "inter-token latency" if api is Api.CHAT else "gap between partials",
        "token": "time per output token",
        "final": _FINAL_LABELS.get(api, "final after end of speech"),
        "turn": "voice to voice",
        "total": "whole answer",
        "rtf": "real-time factor",
        "starved": "playback starved for",
    }[name]
