"""The committed tables contain the flags and endpoints that this project needs."""

from importlib import resources

import pytest

from voice_blueprint import catalog
from voice_blueprint.engines.published.release import EngineTable, Setting, load_published_table

NAMES = sorted(
    file.name.removesuffix(".json")
    for file in resources.files("voice_blueprint.engines.published").joinpath("tables").iterdir()
)


def flag(engine: str, command: str, name: str) -> Setting:
    found = load_published_table(engine).commands[command].find_flag(name)
    assert found, f"{engine} has no {name}"
    return found


@pytest.mark.parametrize("name", NAMES)
def test_table_version_matches_the_catalogue(name: str) -> None:
    engine, origin = catalog.engines()[name], load_published_table(name).origin
    assert origin.version == engine.version, (
        "voice_blueprint/catalog/engines.yaml has another: run `make refresh-engines`"
    )
    assert origin.distribution == (engine.package or engine.name)


def test_every_launched_engine_has_a_table() -> None:
    assert {"vllm", "vllm-for-omni", "vllm-omni", "lmcache", "pd-router"} <= set(NAMES)


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("--tensor-parallel-size", 1),
        ("--max-model-len", None),
        ("--max-num-batched-tokens", None),
        ("--max-num-seqs", None),
        ("--block-size", None),
        ("--gpu-memory-utilization", 0.92),
        ("--enable-chunked-prefill", None),
        ("--enable-prefix-caching", None),
        ("--kv-cache-dtype", "auto"),
        ("--quantization", None),
        ("--enforce-eager", False),
        ("--limit-mm-per-prompt", {}),
        ("--tokenizer-mode", "auto"),
        ("--config-format", "auto"),
        ("--load-format", "auto"),
        ("--kv-offloading-size", None),
        ("--kv-offloading-backend", "native"),
        ("--shutdown-timeout", 0),
        ("--max-num-active-seqs", None),
        ("--max-num-queued-reqs", None),
        ("--max-num-queued-tokens", None),
        ("--kv-transfer-config", None),
        ("--compilation-config", {}),
        ("-cc", {}),
        ("--ec-transfer-config", None),
        ("--port", 8000),
    ],
)
def test_vllm_flag_and_its_default(name: str, default: object) -> None:
    assert flag("vllm", "serve", name).default == default


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("--kv-cache-dtype", {"auto", "fp8", "fp8_e4m3", "fp8_e5m2", "int8_per_token_head", "nvfp4"}),
        ("--tokenizer-mode", {"mistral"}),
        ("--config-format", {"mistral"}),
        ("--load-format", {"mistral", "runai_streamer", "runai_streamer_sharded", "fastsafetensors", "tensorizer"}),
        ("--kv-offloading-backend", {"native", "lmcache"}),
        ("--quantization", {"fp8"}),
    ],
)
def test_vllm_flag_accepts_the_values(name: str, values: set[str]) -> None:
    assert values <= set(flag("vllm", "serve", name).choices)


@pytest.mark.parametrize("name", ["--swap-space", "--task", "--device"])
def test_vllm_flag_is_removed(name: str) -> None:
    assert load_published_table("vllm").commands["serve"].find_flag(name) is None


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("--omni", None),
        ("--deploy-config", None),
        ("--stage-overrides", None),
        ("--async-chunk", None),
        ("--stage-init-timeout", 300),
        ("--init-timeout", 600),
        ("--shm-threshold-bytes", 65536),
        ("--gpu-memory-utilization", 0.92),
    ],
)
def test_omni_flag_and_its_default(name: str, default: object) -> None:
    """The last one is from vLLM 0.30: vLLM-Omni's server accepts that release's flags too."""
    assert flag("vllm-omni", "serve", name).default == default


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("--l1-size-gb", None),
        ("--chunk-size", 256),
        ("--gds-l1-path", None),
        ("--l2-adapter", []),
        ("--port", 5555),
        ("--http-port", 8080),
        ("--http-host", "127.0.0.1"),
        ("--eviction-policy", None),
        ("--eviction-trigger-watermark", 0.8),
        ("--eviction-ratio", 0.2),
        ("--isolated-ipc", False),
    ],
)
def test_lmcache_server_flag_and_its_default(name: str, default: object) -> None:
    assert flag("lmcache", "server", name).default == default


def test_router_policies_are_published() -> None:
    assert "round_robin" in flag("pd-router", "", "--policy").choices
    assert flag("pd-router", "", "--kv-connector").choices == ("mooncake", "moriio", "nixl")
    assert flag("pd-router", "", "--vllm-pd-disaggregation").type == "switch"


def settings(table: EngineTable, config: str) -> dict[str, Setting]:
    return {setting.name: setting for setting in table.configs[config]}


def test_configuration_classes() -> None:
    vllm = load_published_table("vllm")
    transfer = settings(vllm, "KVTransferConfig")
    assert transfer["kv_port"].default == 14579
    assert transfer["kv_role"].choices == ("kv_both", "kv_consumer", "kv_producer")
    assert transfer["kv_load_failure_policy"].choices == ("fail", "recompute")
    modes = {"NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"}
    assert modes <= set(settings(vllm, "CompilationConfig")["cudagraph_mode"].choices)
    assert {"max_num_active_seqs", "max_num_queued_reqs"} <= set(settings(vllm, "SchedulerConfig"))
    assert settings(vllm, "ECTransferConfig")["ec_role"].choices == ("ec_both", "ec_consumer", "ec_producer")
    assert {"stages", "connectors", "async_chunk"} <= set(settings(load_published_table("vllm-omni"), "DeployConfig"))
    assert settings(load_published_table("lmcache"), "MPServerConfig")["port"].default == 5555


def test_connectors() -> None:
    kv = load_published_table("vllm").connectors["kv"]
    assert {"NixlConnector", "LMCacheMPConnector", "MultiConnector", "OffloadingConnector"} <= set(kv)
    assert "P2pNcclConnector" not in kv
    assert {"ECExampleConnector", "ECCPUConnector", "ECMooncakeConnector"} == set(
        load_published_table("vllm").connectors["ec"]
    )
    assert {"fs", "resp", "valkey", "s3", "nixl_store", "raw_block"} <= set(
        load_published_table("lmcache").connectors["l2"]
    )
    assert "SharedMemoryConnector" in load_published_table("vllm-omni").connectors["stage"]


@pytest.mark.parametrize(
    ("engine", "kind", "majors"),
    [
        ("vllm", "nvfp4", {8, 9, 10, 12}),
        ("vllm-omni", "nvfp4", {10}),
        ("vllm", "nvfp4_4over6", {10}),
        ("vllm", "fp8_ds_mla", set()),
    ],
)
def test_kernels_support_a_kv_type_on_the_published_gpus(engine: str, kind: str, majors: set[int]) -> None:
    kernels = load_published_table(engine).kernels
    assert {major for each in kernels for major in each.kv_types.get(kind, ())} == majors
    assert {size for each in kernels for size in each.blocks} == {16}


def test_environment_variables() -> None:
    variables = load_published_table("vllm").environment
    assert variables["VLLM_NIXL_SIDE_CHANNEL_PORT"] == 5600
    assert variables["VLLM_MAX_AUDIO_DECODE_DURATION_S"] == 600
    assert variables["VLLM_MAX_AUDIO_CLIP_FILESIZE_MB"] == 25
    assert {"VLLM_CACHE_ROOT", "VLLM_WORKER_MULTIPROC_METHOD", "VLLM_ENABLE_STARTUP_PLAN"} <= set(variables)
    assert load_published_table("lmcache").environment["LMCACHE_MAX_LOCAL_CPU_SIZE"] == 5.0


def test_omni_includes_the_metrics_and_endpoints_of_vllm() -> None:
    omni = load_published_table("vllm-omni")
    names = {metric.name for metric in omni.metrics}
    assert {"vllm_omni:audio_ttfp_s", "vllm_omni:audio_rtf", "vllm:num_requests_running"} <= names
    assert {"/v1/audio/speech", "/v1/audio/speech/stream", "/metrics"} <= {each.path for each in omni.endpoints}


def test_unknown_engine_has_no_table() -> None:
    with pytest.raises(FileNotFoundError):
        load_published_table("unknown")
