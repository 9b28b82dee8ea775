"""Streaming calls generate tokens continuously, and are limited by memory, compute or bandwidth."""

import pytest

from tests.blueprint.sizing.cases import A10, H100, QWEN, REALTIME
from voice_blueprint import catalog
from voice_blueprint.engines.sizing.engine import size_engine
from voice_blueprint.engines.sizing.live import calculate_call_tokens, calculate_max_calls_by_limit
from voice_blueprint.engines.sizing.memory import calculate_session_bytes
from voice_blueprint.engines.sizing.result import DoesNotFitError, LimitingFactor
from voice_blueprint.file.model.serving import Load, Profile

TEN_MINUTE_CALLS = Load(sessions=1, session_tokens=7500, context_tokens=7500, longest_call_s=600)
SHORT_CALLS = Load(sessions=1, session_tokens=448, context_tokens=448)


def test_an_h100_supports_65_calls_of_ten_minutes_rather_than_265() -> None:
    """Computed from the model: 7500 tokens of 106,496 bytes plus its encoder's state, in 60.5 GiB."""
    assert calculate_call_tokens(REALTIME, 600) == 7500
    assert calculate_session_bytes(REALTIME, 7500) == 7500 * 106_496 + 196_608_000
    live = size_engine(REALTIME, H100, load=TEN_MINUTE_CALLS, profile=Profile.TUNED)
    assert (live.sessions, live.limit) == (65, LimitingFactor.KV_MEMORY)
    assert size_engine(REALTIME, H100, load=SHORT_CALLS).sessions > 3 * live.sessions


def test_compute_and_bandwidth_also_limit_calls() -> None:
    """For an A10: 0.3 x 125 TFLOP/s over 2 x 4.43 G x 12.5 x 4, and 0.6 x 600 GB/s / 12.5 - weights."""
    per_session = calculate_session_bytes(REALTIME, 448)
    bounds = calculate_max_calls_by_limit(
        REALTIME, A10, tensor_parallel=1, weights_gib=REALTIME.weights_gib, session_bytes=per_session
    )
    parameters = 8.26 * 2**30 / 2
    assert bounds[LimitingFactor.COMPUTE] == int(0.3 * 125e12 / (2 * parameters * 12.5 * 4))
    assert bounds[LimitingFactor.BANDWIDTH] == int((0.6 * 600e9 / 12.5 - 8.26 * 2**30) / per_session)
    assert not calculate_max_calls_by_limit(QWEN, A10, tensor_parallel=1, weights_gib=8, session_bytes=per_session)
    for gpu in catalog.gpus().values():
        sized = size_engine(REALTIME, gpu, load=SHORT_CALLS)
        ours = calculate_max_calls_by_limit(
            REALTIME, gpu, tensor_parallel=1, weights_gib=REALTIME.weights_gib, session_bytes=per_session
        )
        assert sized.sessions <= min(ours.values())
        assert all(str(bound) in sized.arithmetic for bound in ours)


def test_a_session_shorter_than_its_call_is_refused() -> None:
    load = SHORT_CALLS.model_copy(update={"longest_call_s": 600})
    with pytest.raises(DoesNotFitError, match=r"a call of 600 s requires 7500 tokens.*hold 6% of it"):
        size_engine(REALTIME, H100, load=load)
