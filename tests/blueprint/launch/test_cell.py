"""The six containers of a prefill/decode cell: their connections and GPUs."""

import json
import re
from typing import Any

import pytest

from tests.blueprint.launch.samples import azure_service, deployment
from voice_blueprint import catalog
from voice_blueprint.azure.contract import DECODE_HTTP, ENGINE_HTTP, PD_ROUTER_HTTP, PREFILL_HTTP
from voice_blueprint.azure.rollout import ENGINE_STARTUP_TIMEOUT_S
from voice_blueprint.engines.launch.kv_transfer import EngineRole, KvTransfer
from voice_blueprint.engines.launch.lmcache import LmcacheServer
from voice_blueprint.engines.launch.pd_router import DISAGGREGATED_PATHS, HEALTH_PATH, CellProxy
from voice_blueprint.engines.launch.placement import create_engine_placement
from voice_blueprint.engines.launch.services import CellProcesses, create_cell_processes
from voice_blueprint.engines.launch.vllm import VllmServer
from voice_blueprint.file.model.azure import PrefillDecodeCell

CELL = "Standard_NC96ads_A100_v4"


@pytest.fixture(scope="module")
def cell() -> CellProcesses:
    service = azure_service(PrefillDecodeCell)
    assert isinstance(service, PrefillDecodeCell)
    return create_cell_processes(deployment("cells").azure, service)


def transfer(server: VllmServer) -> dict[str, Any]:
    argv = server.build_command()
    config = json.loads(argv[argv.index("--kv-transfer-config") + 1])
    assert isinstance(config, dict)
    return config


def connectors(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["kv_connector"]: each for each in config["kv_connector_extra_config"]["connectors"]}


def test_nixl_transfers_in_one_direction_and_lmcache_in_both(cell: CellProcesses) -> None:
    for server, role in ((cell.prefill, "kv_producer"), (cell.decode, "kv_consumer")):
        config = transfer(server)
        assert config["kv_role"] == connectors(config)["NixlConnector"]["kv_role"] == role
        assert connectors(config)["LMCacheMPConnector"]["kv_role"] == "kv_both"


@pytest.mark.parametrize("role", EngineRole)
@pytest.mark.parametrize("port", [None, 1])
def test_nixl_is_never_kv_both(role: EngineRole, port: int | None) -> None:
    if role is EngineRole.AGGREGATED and port is None:
        return
    text = json.dumps(KvTransfer(role, port).build_config())
    assert not re.search(r'"NixlConnector", "kv_role": "kv_both"', text)


def test_each_engine_has_its_own_lmcache_server(cell: CellProcesses) -> None:
    ports = {}
    for server, lmcache in ((cell.prefill, cell.lmcache_prefill), (cell.decode, cell.lmcache_decode)):
        extra = connectors(transfer(server))["LMCacheMPConnector"]["kv_connector_extra_config"]
        assert (extra["lmcache.mp.host"], extra["lmcache.mp.port"]) == ("tcp://localhost", lmcache.port)
        ports[lmcache.port] = lmcache.http_port
    assert len(ports) == len(set(ports.values())) == 2


def test_both_lmcache_servers_share_the_configured_pool(cell: CellProcesses) -> None:
    assert cell.lmcache_prefill.l1_gib + cell.lmcache_decode.l1_gib == 200
    adapters = [json.loads(server.build_command()[-1]) for server in (cell.lmcache_prefill, cell.lmcache_decode)]
    assert sum(adapter["max_capacity_gb"] for adapter in adapters) == 2000
    # Without eviction LMCache would only account for the size, not enforce it.
    assert all(adapter["eviction"] for adapter in adapters)
    assert len({adapter["base_path"] for adapter in adapters}) == 2


def test_each_engine_sees_all_gpus_and_lists_its_own_pair_first(cell: CellProcesses) -> None:
    orders = [server.build_environment()["CUDA_VISIBLE_DEVICES"] for server in (cell.prefill, cell.decode)]
    assert orders == ["0,1,2,3", "2,3,0,1"]
    assert [server.build_command()[:3] for server in (cell.prefill, cell.decode)] == [
        ("numactl", "--cpunodebind=0,1", "--"),
        ("numactl", "--cpunodebind=2,3", "--"),
    ]


def test_an_lmcache_server_numbers_gpus_like_its_engine(cell: CellProcesses) -> None:
    for server, lmcache in ((cell.prefill, cell.lmcache_prefill), (cell.decode, cell.lmcache_decode)):
        assert lmcache.placement == server.placement
        assert lmcache.build_environment()["NVIDIA_VISIBLE_DEVICES"] == "all"


def test_side_channels_differ_and_use_the_loopback(cell: CellProcesses) -> None:
    channels = {
        (environment["VLLM_NIXL_SIDE_CHANNEL_HOST"], environment["VLLM_NIXL_SIDE_CHANNEL_PORT"])
        for environment in (cell.prefill.build_environment(), cell.decode.build_environment())
    }
    assert channels == {("127.0.0.1", "5600"), ("127.0.0.1", "5700")}
    assert "rc" not in cell.prefill.build_environment()["UCX_TLS"].split(",")


def test_engines_stop_before_their_pod_is_killed(cell: CellProcesses) -> None:
    drain = azure_service(PrefillDecodeCell).drain_timeout_s
    assert 0 < cell.prefill.shutdown_timeout_s < drain
    assert 0 < cell.decode.shutdown_timeout_s < drain


def test_router_timeout_covers_the_start_of_engines(cell: CellProcesses) -> None:
    """With a shorter timeout the router would exit, and the kubelet would restart it with growing delays."""
    argv = cell.pd_router.build_command()
    assert int(argv[argv.index("--worker-startup-timeout-secs") + 1]) >= ENGINE_STARTUP_TIMEOUT_S


def locations(front: CellProxy) -> dict[str, str]:
    (text,) = front.render_files().values()
    return dict(re.findall(r"location (?:= )?(\S+) \{ proxy_pass http://(\w+); \}", text))


def test_front_routes_text_to_the_router_and_everything_else_to_decode(cell: CellProcesses) -> None:
    to_router = dict.fromkeys((*DISAGGREGATED_PATHS, HEALTH_PATH), "pd_router")
    assert locations(cell.front) == {**to_router, "/": "decode"}
    (text,) = cell.front.render_files().values()
    assert f"listen {ENGINE_HTTP.number};" in text
    assert f"upstream pd_router {{ server 127.0.0.1:{PD_ROUTER_HTTP.number};" in text
    assert f"upstream decode {{ server 127.0.0.1:{DECODE_HTTP.number};" in text


def test_front_accepts_bodies_as_large_as_the_engines_and_upgrades_websockets(cell: CellProcesses) -> None:
    (text,) = cell.front.render_files().values()
    taken = re.search(r"client_max_body_size (\d+)m;", text)
    audio = cell.decode.request_audio_limits
    assert taken
    assert audio
    assert int(taken[1]) * 2**20 >= audio.max_body_bytes
    assert "proxy_set_header Upgrade $http_upgrade;" in text
    assert "access_log off;" in text


def test_router_lists_both_engines_and_is_reachable_only_inside_the_pod(cell: CellProcesses) -> None:
    argv = cell.pd_router.build_command()
    assert argv[argv.index("--prefill") + 1] == f"http://127.0.0.1:{PREFILL_HTTP.number}"
    assert argv[argv.index("--decode") + 1] == f"http://127.0.0.1:{DECODE_HTTP.number}"
    assert argv[argv.index("--host") + 1] == argv[argv.index("--prometheus-host") + 1] == "127.0.0.1"


def test_an_engine_that_uses_the_whole_node_is_not_numa_bound() -> None:
    placement = create_engine_placement(catalog.vm_sizes()[CELL], (0, 1, 2, 3))
    assert placement.build_command_prefix() == ()


def test_an_lmcache_server_without_storage_is_refused() -> None:
    with pytest.raises(ValueError, match="keeps nothing"):
        LmcacheServer(0, 1, 2)
