"""Inconsistent launchers of a pod are refused before the deployment."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from tests.blueprint.launch.samples import azure_service, deployment
from voice_blueprint.engines.launch.base import Launcher
from voice_blueprint.engines.launch.pod_consistency import KV_COMPATIBILITY_FLAGS, validate_pod_consistency
from voice_blueprint.engines.launch.services import CellProcesses, create_aggregated_processes, create_cell_processes
from voice_blueprint.file.model.azure import AggregatedService, PrefillDecodeCell

Pod = dict[str, Launcher]


@dataclass(frozen=True)
class ChangedLauncher(Launcher):
    """A launcher with a changed command line, changed variables or changed files."""

    launcher: Launcher
    change: Callable[[str], str] = str
    variables: Mapping[str, str | None] | None = None

    def build_command(self) -> tuple[str, ...]:
        return tuple(self.change("\n".join(self.launcher.build_command())).split("\n"))

    def build_environment(self) -> dict[str, str]:
        changed = {**self.launcher.build_environment(), **(self.variables or {})}
        return {name: value for name, value in changed.items() if value is not None}

    def render_files(self) -> dict[str, str]:
        return {path: self.change(text) for path, text in self.launcher.render_files().items()}


def cell() -> Pod:
    service = azure_service(PrefillDecodeCell)
    assert isinstance(service, PrefillDecodeCell)
    return vars(create_cell_processes(deployment("cells").azure, service))


def replace_in_command(pod: Pod, name: str, old: str, new: str) -> Pod:
    def change(text: str) -> str:
        return re.sub(old, new, text)

    planted = ChangedLauncher(pod[name], change)
    assert (planted.build_command(), planted.render_files()) != (pod[name].build_command(), pod[name].render_files()), (
        "nothing was planted"
    )
    return pod | {name: planted}


def add_arguments(pod: Pod, name: str, *arguments: str) -> Pod:
    return pod | {name: ChangedLauncher(pod[name], lambda text: "\n".join([text, *arguments]))}


def set_variables(pod: Pod, name: str, **values: str | None) -> Pod:
    return pod | {name: ChangedLauncher(pod[name], variables=values)}


def test_launches_in_shipped_cells_are_consistent() -> None:
    validate_pod_consistency(cell())


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (
            lambda pod: replace_in_command(pod, "decode", "kv_consumer", "kv_producer"),
            "NIXL needs one kv_producer and one kv_consumer: prefill is kv_producer, decode is kv_producer",
        ),
        (
            lambda pod: replace_in_command(pod, "prefill", "kv_producer", "kv_both"),
            "NIXL needs one kv_producer and one kv_consumer: prefill is kv_both, decode is kv_consumer",
        ),
        (
            lambda pod: add_arguments(pod, "decode", "--block-size", "32"),
            "differ in --block-size: prefill has the default, decode has 32",
        ),
        (
            lambda pod: replace_in_command(pod, "decode", "voxtral-small-24b", "voxtral"),
            "differ in --served-model-name: prefill has voxtral-small-24b, decode has voxtral",
        ),
        (
            lambda pod: replace_in_command(pod, "decode", "Voxtral-Small-24B-2507", "Voxtral-Mini-3B-2507"),
            "differ in their model: prefill has mistralai/Voxtral-Small-24B-2507, decode has mistralai/Voxtral-Mini-3B",
        ),
        (
            lambda pod: add_arguments(pod, "prefill", "--kv-cache-dtype", "fp8"),
            "differ in --kv-cache-dtype: prefill has fp8",
        ),
        (
            lambda pod: set_variables(pod, "lmcache_decode", PYTHONHASHSEED="1"),
            "PYTHONHASHSEED of prefill 0, decode 0, lmcache_prefill 0, lmcache_decode 1; set the same value",
        ),
        (lambda pod: set_variables(pod, "prefill", PYTHONHASHSEED=None), "PYTHONHASHSEED of prefill random, decode 0"),
        (
            lambda pod: replace_in_command(pod, "decode", r"\b6556\b", "6555"),
            "prefill and decode share the LMCache server on port 6555: give each its own",
        ),
        (
            lambda pod: replace_in_command(pod, "decode", r"\b6556\b", "6557"),
            "decode connects to an LMCache server on port 6557, and the pod has none there",
        ),
        (
            lambda pod: {name: each for name, each in pod.items() if name != "lmcache_decode"},
            "decode connects to an LMCache server on port 6556, and the pod has none there",
        ),
        (
            lambda pod: replace_in_command(pod, "lmcache_prefill", r"\b256\b", "200"),
            "chunks of 200 tokens of lmcache_prefill are no multiple of prefill's blocks of 16",
        ),
        (
            lambda pod: add_arguments(
                add_arguments(pod, "prefill", "--block-size", "96"), "decode", "--block-size", "96"
            ),
            "chunks of 256 tokens of lmcache_prefill are no multiple of prefill's blocks of 96",
        ),
        (
            lambda pod: replace_in_command(pod, "lmcache_decode", r"\b8085\b", "8084"),
            "lmcache_prefill and lmcache_decode both listen on port 8084: give each its own",
        ),
        (
            lambda pod: set_variables(pod, "decode", VLLM_NIXL_SIDE_CHANNEL_PORT="5600"),
            "prefill and decode both listen on port 5600",
        ),
        (
            lambda pod: replace_in_command(pod, "front", "listen 8000", "listen 8003"),
            "pd_router and front both listen on port 8003",
        ),
        (
            lambda pod: {name: each for name, each in pod.items() if name != "pd_router"},
            "front connects to port 8003, on which no process of the pod listens",
        ),
        (
            lambda pod: replace_in_command(pod, "pd_router", "(--decode\n.*)8002", r"\g<1>8009"),
            "pd_router: --decode is port 8009, whose engine is none, not kv_consumer",
        ),
        (
            lambda pod: replace_in_command(
                replace_in_command(pod, "pd_router", "8001", "8009"), "pd_router", "8002", "8001"
            ),
            "pd_router: --decode is port 8001, whose engine is kv_producer, not kv_consumer",
        ),
    ],
)
def test_an_inconsistent_cell_is_refused_with_the_differing_setting(plant: Callable[[Pod], Pod], message: str) -> None:
    pod = plant(cell())
    with pytest.raises(ValueError, match=re.escape(message)):
        validate_pod_consistency(pod)


@pytest.mark.parametrize("flag", KV_COMPATIBILITY_FLAGS)
def test_engines_agree_on_each_flag(flag: str) -> None:
    pod = cell()
    prefill = list(pod["prefill"].build_command())
    if flag in prefill:
        prefill[prefill.index(flag) + 1] = "64"
    else:
        prefill += [flag, "64"]
    with pytest.raises(ValueError, match=f"differ in {flag}: prefill has 64"):
        validate_pod_consistency(pod | {"prefill": ChangedLauncher(pod["prefill"], lambda _: "\n".join(prefill))})


def test_all_reasons_are_in_one_message() -> None:
    pod = set_variables(
        replace_in_command(cell(), "decode", "kv_consumer", "kv_producer"), "decode", PYTHONHASHSEED="7"
    )
    with pytest.raises(ValueError, match=r"PYTHONHASHSEED .*; NIXL needs one kv_producer"):
        validate_pod_consistency(pod)


def test_launches_are_validated_on_construction() -> None:
    pod = cell()
    with pytest.raises(ValueError, match="share the LMCache server"):
        CellProcesses(**replace_in_command(pod, "decode", r"\b6556\b", "6555"))  # type: ignore[arg-type]
    azure = deployment("production-azure").azure
    service = next(each for each in azure.services if isinstance(each, AggregatedService) and each.lmcache)
    with pytest.raises(ValueError, match="the pod has none there"):
        replace(create_aggregated_processes(azure, service), lmcache=None)
