"""Layouts of a node: resources of 500 sessions on A100-80, and GPUs that they do not fit."""

import pytest

from tests.blueprint.sizing.cases import (
    A100,
    A4500,
    CHAT_SESSIONS,
    H200,
    NC24,
    NC48,
    NC80,
    NC96,
    ND_H200,
    QWEN,
    QWEN_7B,
    SHORT_SESSIONS,
    VOXTRAL,
    WHISPER,
)
from voice_blueprint.catalog.azure import VmSize
from voice_blueprint.catalog.inference import Gpu, ModelCard
from voice_blueprint.engines.sizing.layouts import (
    CELL_LAYOUT_NAME,
    EngineRequirements,
    Layout,
    RejectedLayout,
    count_engines_per_node,
    create_aggregated_layout,
    create_cell_layout,
    evaluate_layouts,
    group_gpus_by_nvlink,
    select_cell_gpu_groups,
)
from voice_blueprint.engines.sizing.result import DoesNotFitError
from voice_blueprint.file.model.serving import Load

REGION = "southcentralus"
TWO_A4500 = NC48.model_copy(update={"name": "two A4500", "gpu": "A4500", "usd_per_hour": {}})


def fitting_layouts(model: ModelCard, gpu: Gpu, vm: VmSize, load: Load) -> dict[str, Layout]:
    ways = evaluate_layouts(model, gpu, vm, EngineRequirements(load), region=REGION)
    return {way.name: way for way in ways if isinstance(way, Layout)}


def test_voxtral_on_four_a100_cell_and_aggregated_side_by_side() -> None:
    cell, pairs, singles = evaluate_layouts(VOXTRAL, A100, NC96, EngineRequirements(SHORT_SESSIONS), region=REGION)
    assert isinstance(cell, Layout)
    assert isinstance(pairs, Layout)
    assert isinstance(singles, Layout)
    assert (cell.name, pairs.name, singles.name) == (CELL_LAYOUT_NAME, "aggregated TP2 x 2", "aggregated TP1 x 4")
    assert (cell.sessions_per_node, pairs.sessions_per_node, singles.sessions_per_node) == (403, 806, 408)
    assert (cell.nodes, pairs.nodes, singles.nodes) == (2, 1, 2)
    assert (cell.replicas, pairs.replicas, singles.replicas) == (2, 2, 5)
    assert cell.usd_per_hour == pytest.approx(2 * 17.63)
    assert cell.prefill is not None
    assert (cell.prefill.tensor_parallel, cell.engine.tensor_parallel) == (2, 2)


def test_500_sessions_of_voxtral_need_both_pairs_of_a_node_and_2418_tokens_each() -> None:
    enough = [
        name
        for name, way in fitting_layouts(VOXTRAL, A100, NC96, SHORT_SESSIONS).items()
        if way.sessions_per_node >= 500
    ]
    assert enough == ["aggregated TP2 x 2"]
    at_most = Load(sessions=500, session_tokens=2418, context_tokens=32768)
    longer = Load(sessions=500, session_tokens=2419, context_tokens=32768)
    counts = [
        fitting_layouts(VOXTRAL, A100, NC96, load)["aggregated TP2 x 2"].sessions_per_node for load in (at_most, longer)
    ]
    assert counts[0] >= 500 > counts[1]


@pytest.mark.parametrize("vm", [NC24, NC48], ids=lambda vm: vm.name)
def test_500_sessions_of_voxtral_do_not_fit_a_smaller_node(vm: VmSize) -> None:
    assert all(way.sessions_per_node < 500 for way in fitting_layouts(VOXTRAL, A100, vm, SHORT_SESSIONS).values())


def test_500_sessions_of_qwen_fit_two_a100() -> None:
    assert fitting_layouts(QWEN, A100, NC48, CHAT_SESSIONS)["aggregated TP1 x 2"].sessions_per_node == 518


@pytest.mark.parametrize("model", [VOXTRAL, QWEN, QWEN_7B], ids=lambda model: model.name)
def test_500_sessions_do_not_fit_two_a4500(model: ModelCard) -> None:
    ways = evaluate_layouts(model, A4500, TWO_A4500, EngineRequirements(CHAT_SESSIONS), region=REGION)
    assert all(way.sessions_per_node < 500 for way in ways if isinstance(way, Layout))
    assert any(isinstance(way, RejectedLayout) for way in ways)


def test_voxtral_does_not_fit_one_a4500_at_all() -> None:
    assert not fitting_layouts(VOXTRAL, A4500, TWO_A4500, SHORT_SESSIONS)


def test_gpus_without_nvlink_are_separate_groups() -> None:
    assert group_gpus_by_nvlink(NC96) == ((0, 1), (2, 3))
    assert group_gpus_by_nvlink(NC24) == ((0,),)
    assert group_gpus_by_nvlink(NC96.model_copy(update={"nvlink_domains": ((1, 2),)})) == ((0,), (1, 2), (3,))


@pytest.mark.parametrize(("vm", "width", "engines"), [(NC96, 1, 4), (NC96, 2, 2), (ND_H200, 4, 2), (ND_H200, 3, 2)])
def test_engines_stay_inside_nvlink(vm: VmSize, width: int, engines: int) -> None:
    assert count_engines_per_node(vm, width) == engines


def test_tp4_across_pairs_is_refused() -> None:
    with pytest.raises(DoesNotFitError, match=r"TP 4 needs 4 GPUs that NVLink joins; .* joins at most 2 of its 4"):
        create_aggregated_layout(
            VOXTRAL, A100, NC96, EngineRequirements(SHORT_SESSIONS), tensor_parallel=4, region=REGION
        )


@pytest.mark.parametrize("vm", [NC24, NC48, NC80, ND_H200], ids=lambda vm: vm.name)
def test_a_cell_uses_two_pairs_of_one_node(vm: VmSize) -> None:
    with pytest.raises(DoesNotFitError, match="requires two NVLink pairs of one node"):
        select_cell_gpu_groups(vm)


def test_a_model_with_cross_attention_has_no_cell() -> None:
    load = Load(sessions=1, session_tokens=448, context_tokens=448)
    with pytest.raises(DoesNotFitError, match="neither prefix caching nor a KV connector"):
        create_cell_layout(WHISPER, A100, NC96, EngineRequirements(load), region=REGION)


def test_a_layout_on_an_unpriced_size_has_no_price() -> None:
    requirements = EngineRequirements(CHAT_SESSIONS)
    assert (
        create_aggregated_layout(QWEN, H200, ND_H200, requirements, tensor_parallel=1, region=REGION).usd_per_hour
        is None
    )
