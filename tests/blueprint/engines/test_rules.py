"""Output that an engine would not accept is refused, with the nearest acceptable name."""

import json

import pytest

from tests.blueprint.engines.rules import check_argv, check_document, check_endpoint, check_environment, check_metric
from voice_blueprint.engines.published.release import Command, EngineTable, PublishedFile, Setting, load_published_table

VLLM = load_published_table("vllm")
OMNI = load_published_table("vllm-omni")
LMCACHE = load_published_table("lmcache")
IN_VLLM = f"vllm {VLLM.origin.version}"
IN_OMNI = f"vllm-omni {OMNI.origin.version}"
IN_LMCACHE = f"lmcache {LMCACHE.origin.version}"
ROUTER = load_published_table("pd-router")
NIXL = {"kv_connector": "NixlConnector", "kv_role": "kv_producer", "kv_load_failure_policy": "fail"}
LMCACHE_MP = {
    "kv_connector": "LMCacheMPConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {"lmcache.mp.host": "tcp://localhost", "lmcache.mp.port": 6555},
}


def multi(*connectors: object) -> dict[str, object]:
    return {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"connectors": list(connectors)},
    }


SERVE = [
    "mistralai/Voxtral-Small-24B-2507",
    "--tokenizer-mode=mistral",
    "--config_format",
    "mistral",
    "--load-format",
    "runai_streamer",
    "-tp",
    "2",
    "--max-model-len",
    "32k",
    "--max-num-batched-tokens",
    "2048",
    "--gpu-memory-utilization",
    "0.9",
    "--limit-mm-per-prompt",
    '{"audio": 1}',
    "--no-enable-prefix-caching",
    "--disable-chunked-prefill",
    "--api-key",
    "a",
    "b",
    "--kv-transfer-config",
    json.dumps(multi(NIXL, LMCACHE_MP)),
    "-cc",
    '{"cudagraph_mode": "full_decode_only", "cudagraph_capture_sizes": [1, 2, 4]}',
    "--kv-events-config.publisher",
    "zmq",
    "-O2",
    "--port",
    "$(PORT)",
    "--shutdown-timeout",
    "-1",
]


def test_a_valid_command_line_has_no_problem() -> None:
    assert list(check_argv(VLLM, "serve", SERVE)) == []


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--swap-space", "4"], f"{IN_VLLM} has no flag `--swap-space`"),
        (["--tensor-paralel-size", "2"], "has no flag `--tensor-paralel-size`; did you mean `--tensor-parallel-size`?"),
        (["--tensor-parallel", "2"], "has no flag `--tensor-parallel`"),
        (["--max-num-seqs", "many"], f'`--max-num-seqs`: "many" is no whole number ({IN_VLLM})'),
        (["--max-num-batched-tokens", "2.5K"], '"2.5K" is no whole number, or one that ends in'),
        (["--gpu-memory-utilization", "high"], '"high" is no number'),
        (["--kv-cache-dtype", "fp8_e4m4"], '"fp8_e4m4" is none of auto, .*; did you mean `fp8_e4m3`?'),
        (["--load-format", "runai-streamer"], "no plug-in adds it; did you mean `runai_streamer`?"),
        (["--max-num-seqs"], "`--max-num-seqs` needs a value"),
        (["--max-num-seqs", "--enforce-eager"], "`--max-num-seqs` needs a value"),
        (["--api-key"], "`--api-key` needs a value"),
        (["-tp", "1", "--tensor-parallel-size=2"], "`--tensor-parallel-size` is given again after `-tp`"),
        (["--enforce-eager", "--no-enforce-eager"], "`--no-enforce-eager` is given again"),
        (["--enforce-eager=true"], "`--enforce-eager` takes no value, and is given `true`"),
        (["--headless", "--no-headless"], "has no flag `--no-headless`"),
        (["model", "another"], "`another` belongs to no flag"),
        (["-O7"], '`--optimization-level`: "7" is none of'),
        (["--compilation-config", "{cudagraph_mode: FULL}"], "is no JSON"),
        (
            ["-cc", '{"cudagraph_mod": "FULL"}'],
            f"`cudagraph_mod` is no field of CompilationConfig in {IN_VLLM}; did",
        ),
        (["-cc", '{"cudagraph_mode": "HALF"}'], '-cc.cudagraph_mode: "HALF" is none of NONE, PIECEWISE'),
        (["-cc", '{"pass_config": {"fuse": true}}'], "`fuse` is no field of PassConfig"),
        (["-cc", '{"cudagraph_capture_sizes": 4}'], "-cc.cudagraph_capture_sizes: 4 is no list"),
        (["-cc.cudagraph_mod", "FULL"], "`cudagraph_mod` is no field of CompilationConfig"),
        (["-cc.mode", "3", "-cc", "{}"], "`--compilation-config` is given whole and by its keys"),
        (["-cc.mode"], "`-cc.mode` needs a value"),
        (["--port.number", "1"], "the value of `--port` has no keys"),
        (["--unknown.key", "1"], "has no flag `--unknown`"),
        (
            ["--ec-transfer-config", '{"ec_connector": "ECExample", "ec_role": "ec_both"}'],
            "ec connector `ECExample`",
        ),
    ],
)
def test_command_line_is_refused(argv: list[str], problem: str) -> None:
    (found,) = check_argv(VLLM, "serve", argv)
    start, *rest = problem.split(".*")
    assert start in found
    assert all(part in found for part in rest)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            {**NIXL, "kv_connector": "P2pNcclConnector"},
            f"{IN_VLLM} has no kv connector `P2pNcclConnector`",
        ),
        ({**NIXL, "kv_role": "kv_prefill"}, '"kv_prefill" is none of kv_both, kv_consumer, kv_producer'),
        ({"kv_connector": "NixlConnector"}, "`kv_connector` needs a `kv_role`"),
        ({**NIXL, "kv_port": "14579"}, '.kv_port: "14579" is no whole number'),
        ({**NIXL, "kv_port": True}, ".kv_port: true is no whole number"),
        ({**NIXL, "kv_port": None}, ".kv_port: is null, and needs a value"),
        ({**NIXL, "kv_rank": 0}, "`kv_rank` is no field of KVTransferConfig"),
        (multi(), "MultiConnector needs a list `kv_connector_extra_config.connectors`"),
        (multi("NixlConnector"), "connectors[0] is no object"),
        (multi(NIXL, {**LMCACHE_MP, "kv_connector": "LMCacheMpConnector"}), "did you mean `LMCacheMPConnector`?"),
        (
            {**LMCACHE_MP, "kv_connector_extra_config": {"lmcache.mp.prt": 1}},
            f"{IN_LMCACHE} has no setting `lmcache.mp.prt`; did you mean `lmcache.mp.port`?",
        ),
    ],
)
def test_transfer_configuration_is_refused(config: dict[str, object], problem: str) -> None:
    (found,) = check_argv(VLLM, "serve", ["--kv-transfer-config", json.dumps(config)])
    assert problem in found


def test_a_connector_from_a_custom_module_is_accepted() -> None:
    config = {**NIXL, "kv_connector": "Own", "kv_connector_module_path": "own.connector"}
    assert list(check_argv(VLLM, "serve", ["--kv-transfer-config", json.dumps(config)])) == []


def test_lmcache_server() -> None:
    adapters = ["--l2-adapter", '{"type": "fs", "path": "/a"}', "--l2-adapter", '{"type": "resp"}']
    good = [
        "--l1-size-gb",
        "200",
        "--no-l1-use-lazy",
        "--http-host",
        "$(POD_IP)",
        "--eviction-policy",
        "LRU",
        *adapters,
    ]
    assert list(check_argv(LMCACHE, "server", good)) == []
    (found,) = check_argv(LMCACHE, "server", ["--l2-adapter", '{"type": "redis"}'])
    assert f'{IN_LMCACHE} has no `type` "redis"' in found
    (found,) = check_argv(LMCACHE, "server", ["--l1_size_gb", "200"])
    assert "has no flag `--l1_size_gb`; did you mean `--l1-size-gb`?" in found


def test_router_and_unknown_sub_command() -> None:
    good = ["--policy", "round_robin", "--kv-connector", "nixl", "--port", "8003"]
    assert list(check_argv(ROUTER, "", good)) == []
    (found,) = check_argv(ROUTER, "", ["--policy", "roundrobin"])
    assert "did you mean `round_robin`?" in found
    (found,) = check_argv(VLLM, "server", [])
    assert found == f"{IN_VLLM} has no sub-command `server`; did you mean `serve`?"


STAGE = {
    "stage_id": 0,
    "max_num_seqs": 32,
    "gpu_memory_utilization": 0.8,
    "enable_prefix_caching": False,
    "output_connectors": {"to_stage_1": "shm"},
}
DEPLOY = {"async_chunk": True, "connectors": {"shm": {"name": "SharedMemoryConnector"}}, "stages": [STAGE]}


def test_a_valid_omni_deployment_has_no_problem() -> None:
    assert list(check_document(OMNI, "DeployConfig", DEPLOY)) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"async_chunks": True},
            f"`async_chunks` is no field of DeployConfig in {IN_OMNI}; did you mean",
        ),
        ({"stages": [{**STAGE, "max_seqs": 3}]}, "`max_seqs` is no field of StageDeployConfig"),
        ({"stages": [{**STAGE, "max_num_seqs": "32"}]}, 'max_num_seqs: "32" is no whole number'),
        ({"stages": [{**STAGE, "input_connectors": {"from": "smh"}}]}, "there is no connector `smh`; did you mean"),
        ({"connectors": {"shm": {"name": "SharedMemory"}}}, "no connector `SharedMemory`; did you mean `SharedMem"),
    ],
)
def test_an_invalid_omni_deployment_is_refused(change: dict[str, object], problem: str) -> None:
    (found,) = check_document(OMNI, "DeployConfig", DEPLOY | change)
    assert problem in found


def test_a_document_of_an_unknown_class_is_refused() -> None:
    with pytest.raises(KeyError, match="no configuration class DeployConf"):
        check_document(OMNI, "DeployConf", {})


def test_environment() -> None:
    assert list(check_environment(VLLM, ["VLLM_NIXL_SIDE_CHANNEL_HOST", "HF_HOME", "LMCACHE_ANYTHING"])) == []
    (found,) = check_environment(VLLM, ["VLLM_NIXL_SIDE_CHANEL_HOST"])
    assert found.startswith(f"{IN_VLLM} reads no variable VLLM_NIXL_SIDE_CHANEL_HOST; did you mean")
    (found,) = check_environment(LMCACHE, ["LMCACHE_MAX_LOCAL_CPU_GB"])
    assert f"{IN_LMCACHE} reads no variable" in found


@pytest.mark.parametrize(
    "name",
    [
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:num_preemptions_total",
        "vllm:admission_rejections_total",
        "vllm:external_prefix_cache_hits_total",
        "vllm:time_to_first_token_seconds_bucket",
        "vllm:inter_token_latency_seconds_sum",
        "vllm:request_time_per_output_token_seconds_count",
        "vllm:nixl_xfer_time_seconds_sum",
        "vllm:nixl_bytes_transferred_sum",
        "vllm:nixl_num_failed_transfers_total",
        "vllm:websocket_connections_active",
        "vllm:spec_decode_num_drafts_total",
    ],
)
def test_published_metric_is_accepted(name: str) -> None:
    assert list(check_metric(VLLM, name)) == []


def test_lmcache_metrics_include_their_units() -> None:
    for name in ("lmcache_mp_lookup_requested_tokens_total", "lmcache_mp_lookup_hit_tokens_total"):
        assert list(check_metric(LMCACHE, name)) == []


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            "vllm:gpu_cache_usage_perc",
            f"{IN_VLLM} exposes no metric vllm:gpu_cache_usage_perc; did you mean",
        ),
        ("vllm:num_preemptions", "did you mean `vllm:num_preemptions_total`?"),
        ("vllm:time_to_first_token_seconds", "exposes the histogram vllm:time_to_first_token_seconds only as "),
    ],
)
def test_unpublished_metric_is_refused(name: str, problem: str) -> None:
    (found,) = check_metric(VLLM, name)
    assert problem in found


def test_endpoints() -> None:
    for method, path in (("POST", "/v1/audio/transcriptions"), ("WEBSOCKET", "/v1/realtime"), ("GET", "/health")):
        assert list(check_endpoint(VLLM, method, path)) == []
    assert list(check_endpoint(OMNI, "POST", "/v1/audio/speech")) == []
    assert list(check_endpoint(OMNI, "DELETE", "/v1/audio/voices/anna")) == []
    (found,) = check_endpoint(VLLM, "POST", "/v1/audio/transcription")
    assert "has no endpoint /v1/audio/transcription; did you mean `/v1/audio/transcriptions`?" in found
    (found,) = check_endpoint(VLLM, "GET", "/v1/realtime")
    assert found == f"{IN_VLLM} has /v1/realtime for WEBSOCKET, not GET"


def test_flags_of_the_derived_release_take_precedence() -> None:
    origin = PublishedFile(distribution="x", version="1", file="x.whl", sha256="0" * 64)
    serve = Command(flexible=True, flags=(Setting(name="--a"), Setting(name="--b")))
    base = EngineTable(origin=origin, commands={"serve": serve})
    own = EngineTable(origin=origin, commands={"serve": Command(flags=(Setting(name="--a", type="int"),))})
    merged = own.merge_with_base(base).commands["serve"]
    assert merged.flexible
    assert [(flag.name, flag.type) for flag in merged.flags] == [("--a", "int"), ("--b", "str")]
