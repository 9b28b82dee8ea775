"""Memory of nodes and sizing of text to speech match published figures."""

import pytest

from tests.blueprint.sizing.cases import A10, A100, H100, H200, NC48, NC96, QWEN, TTS
from voice_blueprint.catalog.inference import Gpu
from voice_blueprint.engines.sizing.host import (
    calculate_host_memory_budget,
    calculate_kernel_reserved_gib,
    calculate_kube_reserved_gib,
)
from voice_blueprint.engines.sizing.result import DoesNotFitError, LimitingFactor
from voice_blueprint.engines.sizing.tts import PUBLISHED_OPERATING_POINTS, size_tts


def test_the_kubelet_reserves_memory_for_the_pods_of_a_large_node_and_a_quarter_of_a_small_one() -> None:
    assert calculate_kube_reserved_gib(880) == pytest.approx(1.05e9 / 2**30)
    assert calculate_kube_reserved_gib(880, max_pods=250) == pytest.approx(5.05e9 / 2**30)
    assert calculate_kube_reserved_gib(3.5) == 0.875


@pytest.mark.parametrize(("nominal", "reported"), [(880, 866.1), (28, 27.4), (16, 15.64), (7, 6.78)])
def test_pods_cannot_request_the_memory_that_the_kernel_keeps(nominal: float, reported: float) -> None:
    assert reported - 0.4 <= nominal - calculate_kernel_reserved_gib(nominal) <= reported


def test_kv_pools_for_the_nominal_memory_of_a_node_are_rejected() -> None:
    # Linux reports 866.1 of 880 GiB; two engines with 387 GiB each request 870.
    with pytest.raises(DoesNotFitError, match="of 880 GiB") as error:
        calculate_host_memory_budget(NC96, pods=2, gpus_per_pod=2, kv_pool_gib=387, helpers_gib=8)
    assert error.value.remedy == "at most 382 GiB of LMCache for each pod"
    assert calculate_host_memory_budget(NC96, pods=2, gpus_per_pod=2, kv_pool_gib=382, helpers_gib=8).free_gib >= 0


def test_a_cell_with_its_pools_fits_a_node_of_four_gpus() -> None:
    budget = calculate_host_memory_budget(NC96, pods=1, gpus_per_pod=4, kv_pool_gib=200)
    assert budget.kv_pools_gib == 200
    assert budget.free_gib > 500


def test_two_pools_of_200_gb_do_not_fit_440_gib() -> None:
    with pytest.raises(DoesNotFitError, match=r"400 LMCache = .* of 440 GiB") as refusal:
        calculate_host_memory_budget(NC48, pods=2, gpus_per_pod=1, kv_pool_gib=200)
    assert refusal.value.remedy == "at most 193 GiB of LMCache for each pod"
    assert calculate_host_memory_budget(NC48, pods=2, gpus_per_pod=1, kv_pool_gib=193).free_gib >= 0


def test_two_pools_of_200_gb_fit_880_gib() -> None:
    assert calculate_host_memory_budget(NC96, pods=2, gpus_per_pod=2, kv_pool_gib=200).free_gib > 0


def test_speech_is_sized_from_one_published_row() -> None:
    sized = size_tts(TTS, H200)
    assert (sized.sessions, sized.max_num_seqs, sized.limit) == (32, 32, LimitingFactor.THROUGHPUT)
    assert (sized.language_model_share, sized.codec_share) == (0.8, 0.1)
    point = sized.operating_point
    assert (point.first_audio_ms, point.real_time_factor, point.chars_per_s) == (552, 0.302, 1430.78)
    assert "552 ms" in sized.arithmetic


def test_published_rows_are_not_combined_into_a_better_one() -> None:
    assert not any(point.first_audio_ms == 70 and point.chars_per_s > 1000 for point in PUBLISHED_OPERATING_POINTS)
    assert all(point.real_time_factor < 1 for point in PUBLISHED_OPERATING_POINTS)


@pytest.mark.parametrize("gpu", [A100, H100, A10], ids=lambda gpu: gpu.name)
def test_speech_on_gpus_without_a_published_row_is_refused(gpu: Gpu) -> None:
    with pytest.raises(DoesNotFitError, match=f"no figure is published for voxtral-4b-tts on {gpu.name}"):
        size_tts(TTS, gpu)


def test_a_chat_model_is_refused_as_a_speech_model() -> None:
    with pytest.raises(DoesNotFitError, match="makes no speech"):
        size_tts(QWEN, H200)


def test_eager_speech_warns_that_its_session_limit_is_unmeasured() -> None:
    assert "not proved" in size_tts(TTS, H200, cuda_graphs=False).reasons["cuda_graphs"]
