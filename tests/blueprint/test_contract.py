"""The contract: names are unique, every flow has a listener, and permissions are minimal."""

import ast
import inspect
import re
from collections import Counter
from collections.abc import Hashable, Iterable

import pytest

from voice_blueprint.contract import environment, metrics, network
from voice_blueprint.contract.chunk import CHUNK_DATAGRAM_BYTES, CHUNK_HEADER, CHUNK_PAYLOAD_BYTES
from voice_blueprint.contract.environment import (
    DEPLOYMENT,
    FLEET,
    TOKEN_KEY,
    VALKEY_HOST,
    VALKEY_HOST_FILE,
    VALKEY_PASSWORD,
    VALKEY_PASSWORD_FILE,
    VALKEY_PORT,
    VALKEY_USER,
    Variable,
)
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.metrics import (
    ALLOWANCE_DIMENSION,
    DEPLOYMENT_DIMENSION,
    EVENT_DIMENSION,
    FLEET_DIMENSION,
    LOSS_DIMENSION,
    METRICS,
    NAMESPACE,
    PHASE_DIMENSION,
    REASON_DIMENSION,
    Metric,
)
from voice_blueprint.contract.network import ENA_EXPRESS_MTU, FLOWS, PUBLIC_TLS, RTP, VALKEY, XDP_MTU, Port, Tier
from voice_blueprint.contract.state import STATE_USERS, StateStoreUser
from voice_blueprint.environment import VARIABLES_BY_IMAGE

PORTS = {name: value for name, value in vars(network).items() if isinstance(value, Port)}
VARIABLES = {name: value for name, value in vars(environment).items() if isinstance(value, Variable)}
LOOPBACK = {"ENGINE_HEALTH", "PROMETHEUS", "VLLM"}
EACH_METRIC = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
EACH_IMAGE = pytest.mark.parametrize("image", VARIABLES_BY_IMAGE)
EACH_USER = pytest.mark.parametrize("user", STATE_USERS, ids=lambda user: user.tier)


def duplicates(items: Iterable[Hashable]) -> list[Hashable]:
    return [item for item, count in Counter(items).items() if count > 1]


# --- AudioChunk -------------------------------------------------------------------------------------------


def test_chunk_header_is_16_bytes_without_padding() -> None:
    assert CHUNK_HEADER.size == 4 + 4 + 4 + 1 + 1 + 2 == 16
    packed = CHUNK_HEADER.pack(0x01020304, 0x05060708, 0x090A0B0C, 0x0D, 0x0E, 0x0F10)
    assert packed == bytes.fromhex("04030201 08070605 0c0b0a09 0d 0e 100f")


def test_chunk_payload_is_100_ms_in_either_kind() -> None:
    log_mel_bytes = 80 * 10 * 4
    pcm16_bytes = 16_000 // 10 * 2
    assert CHUNK_PAYLOAD_BYTES == log_mel_bytes == pcm16_bytes == 3200


def test_chunk_datagram_is_3244_bytes_and_fits_every_data_path() -> None:
    assert CHUNK_DATAGRAM_BYTES == 16 + 3200 + 20 + 8 == 3244
    assert CHUNK_DATAGRAM_BYTES <= XDP_MTU <= ENA_EXPRESS_MTU


# --- Ports ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PORTS)
def test_port_is_valid_and_described(name: str) -> None:
    port = PORTS[name]
    assert 1 <= port.number <= 65535
    # Our programs run without privileges; 443 belongs to a load balancer or AWS.
    assert port.number >= 1024 or port.number == 443
    assert port.protocol in {"tcp", "udp"}
    assert port.purpose


def test_no_two_listeners_share_a_port() -> None:
    ours = [port for name, port in PORTS.items() if name not in {"PUBLIC_TLS", "AWS_API"}]
    assert duplicates(port.number for port in ours) == []


@pytest.mark.parametrize("tier", Tier)
def test_no_two_services_of_a_tier_share_a_port(tier: Tier) -> None:
    ports = {flow.port for flow in FLOWS if flow.destination is tier}
    assert duplicates((port.number, port.protocol) for port in ports) == []


def test_every_port_is_either_reachable_or_bound_to_the_loopback() -> None:
    reachable = {flow.port for flow in FLOWS}
    assert {name for name, port in PORTS.items() if port not in reachable} == LOOPBACK
    assert all("loopback only" in PORTS[name].purpose for name in LOOPBACK)


# --- Flows ------------------------------------------------------------------------------------------------


def test_flows_are_unique_and_acyclic() -> None:
    assert duplicates((flow.source, flow.destination, flow.port) for flow in FLOWS) == []
    pairs = {(flow.source, flow.destination) for flow in FLOWS if flow.source is not flow.destination}
    assert not {(there, here) for here, there in pairs} & pairs


def test_the_internet_reaches_only_the_public_load_balancers() -> None:
    doors = {Tier.PUBLIC_LOAD_BALANCER, Tier.AGENT_LOAD_BALANCER}
    assert {flow.destination for flow in FLOWS if flow.source is Tier.INTERNET} == doors
    assert {flow.port for flow in FLOWS if flow.source is Tier.INTERNET} == {PUBLIC_TLS, RTP}


def test_only_the_state_port_of_the_state_store_is_open_and_only_to_hosts_gateway_and_agents() -> None:
    flows = [flow for flow in FLOWS if flow.destination is Tier.STATE]
    assert {flow.port for flow in flows} == {VALKEY}
    assert {flow.source for flow in flows} == {Tier.AGENT, Tier.GATEWAY, Tier.VAD, Tier.ASR}


def test_stores_and_aws_services_open_no_connection() -> None:
    assert not {flow.source for flow in FLOWS} & {Tier.STATE, Tier.AWS}


def test_users_of_the_state_store_match_its_rules() -> None:
    assert {user.tier for user in STATE_USERS} == {flow.source for flow in FLOWS if flow.destination is Tier.STATE}


# --- Metrics ----------------------------------------------------------------------------------------------


def test_metric_names_are_unique() -> None:
    calls = [
        node.args[0].value
        for node in ast.walk(ast.parse(inspect.getsource(metrics)))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Metric"
        and isinstance(node.args[0], ast.Constant)
    ]
    assert duplicates(calls) == []
    assert calls == list(METRICS)


@EACH_METRIC
def test_metric_has_a_publisher_on_each_of_its_tiers(metric: Metric) -> None:
    assert isinstance(metric.publisher, Image)
    # Gateway and agents publish their own metrics; every host has a telemetry container.
    by_tier = {
        Tier.GATEWAY: Image.GATEWAY,
        Tier.AGENT: Image.AGENT,
        Tier.VAD: Image.TELEMETRY,
        Tier.ASR: Image.TELEMETRY,
    }
    assert metric.tiers
    assert {by_tier[tier] for tier in metric.tiers} == {metric.publisher}


@EACH_METRIC
def test_publisher_has_the_value_of_every_dimension(metric: Metric) -> None:
    assert isinstance(metric.publisher, Image)
    known = {variable.name for variable in VARIABLES_BY_IMAGE[metric.publisher]}
    assert {DEPLOYMENT.name, FLEET.name} <= known
    assert metric.dimensions[:2] == (DEPLOYMENT_DIMENSION, FLEET_DIMENSION)
    of_one = {REASON_DIMENSION, PHASE_DIMENSION, EVENT_DIMENSION, ALLOWANCE_DIMENSION, LOSS_DIMENSION}
    assert set(metric.dimensions[2:]) <= of_one
    assert duplicates(metric.dimensions) == []


@EACH_METRIC
def test_metric_has_a_valid_name_and_a_description(metric: Metric) -> None:
    assert re.fullmatch(r"([A-Z][a-z0-9]+)+", metric.name)
    assert metric.meaning.endswith(".")
    assert metric.trend_under_load in {None, "rises", "falls"}


def test_every_tier_has_a_scaling_metric() -> None:
    loads = [m for m in METRICS.values() if m.trend_under_load and m.is_fleet_wide]
    assert {tier for metric in loads for tier in metric.tiers} >= {Tier.VAD, Tier.ASR, Tier.GATEWAY, Tier.AGENT}


def test_namespace_is_not_an_aws_namespace() -> None:
    assert re.fullmatch(r"[A-Za-z][\w.-]*", NAMESPACE)
    assert not NAMESPACE.startswith("AWS")


# --- Environment ------------------------------------------------------------------------------------------


@EACH_IMAGE
def test_environment_of_an_image_has_unique_prefixed_names(image: Image) -> None:
    names = [variable.name for variable in VARIABLES_BY_IMAGE[image]]
    assert duplicates(names) == []
    assert all(re.fullmatch(r"VOICE(_[A-Z0-9]+)+", name) for name in names)


def test_every_variable_has_one_constant_a_description_and_a_reader() -> None:
    assert duplicates(variable.name for variable in VARIABLES.values()) == []
    for constant, variable in VARIABLES.items():
        assert variable.name == f"VOICE_{constant}"
        assert variable.meaning
        assert any(variable in variables for variables in VARIABLES_BY_IMAGE.values()), variable


@EACH_IMAGE
def test_an_image_that_uses_the_state_store_gets_its_variables_with_one_host_and_password(image: Image) -> None:
    variables = set(VARIABLES_BY_IMAGE[image])
    login = {VALKEY_PORT, VALKEY_USER}
    assert not variables & login or login <= variables
    for ways in ({VALKEY_HOST, VALKEY_HOST_FILE}, {VALKEY_PASSWORD, VALKEY_PASSWORD_FILE}):
        assert len(variables & ways) == (1 if variables & login else 0)


def test_secrets_are_passed_as_values_only_if_the_launcher_injects_them() -> None:
    # ECS or Kubernetes sets them for gateway and agent; EC2 user data is readable by everyone who may describe the
    # instance.
    secrets = {VALKEY_PASSWORD, TOKEN_KEY}
    assert {image for image, variables in VARIABLES_BY_IMAGE.items() if secrets & set(variables)} == {
        Image.AGENT, Image.GATEWAY
    }  # fmt: skip


@EACH_IMAGE
def test_image_name_can_be_a_repository_and_a_folder(image: Image) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", image)


# --- Access to the state store ----------------------------------------------------------------------------

REQUIRED_KEYS = {
    Tier.GATEWAY: {
        "session:*": "RW", "srtp:*": "RW", "shipped:*": "R", "transcribed:*": "RW", "file:*": "RW", "transcript:*": "R",
        "host:*": "R", "usage:*": "R",
    },
    Tier.AGENT: {"conversation:*": "RW", "usage:*": "RW", "host:agent*": "RW"},
    Tier.VAD: {
        "session:[0-9]*": "R", "srtp:[0-9]*": "R", "shipped:[0-9]*": "RW", "host:vad*": "RW", "host:asr": "RW",
        "host:asr:*": "R",
    },
    Tier.ASR: {
        "session:[0-9]*": "R", "shipped:[0-9]*": "R", "transcribed:[0-9]*": "RW", "lease:[0-9]*": "RW", "held:*": "RW",
        "file:*": "RW", "transcript:*": "RW", "audio:*": "RW", "host:asr*": "RW",
    },
}  # fmt: skip
ALLOWED_CATEGORIES = {"connection", "read", "write", "stream", "hash", "keyspace", "transaction"}


def acl_rules(user: StateStoreUser) -> list[str]:
    return user.acl.split()


def key_permissions(user: StateStoreUser) -> dict[str, str]:
    found: dict[str, str] = {}
    for rule in acl_rules(user):
        if match := re.fullmatch(r"(?:%(?P<mode>R|W|RW))?~(?P<keys>\S+)", rule):
            assert match["keys"] not in found
            found[match["keys"]] = match["mode"] or "RW"
    return found


@EACH_USER
def test_every_rule_of_an_acl_is_understood(user: StateStoreUser) -> None:
    grammar = r"on|resetkeys|resetchannels|(%(R|W|RW))?~[a-z]+:([a-z]*:?\*|[a-z]+|\[0-9\]\*)|[+-]@[a-z]+|-[a-z]+"
    assert [rule for rule in acl_rules(user) if not re.fullmatch(grammar, rule)] == []
    assert duplicates(acl_rules(user)) == []


@EACH_USER
def test_user_can_only_access_the_keys_that_it_needs(user: StateStoreUser) -> None:
    assert key_permissions(user) == REQUIRED_KEYS[user.tier]
    # Rules apply from left to right: the first one resets earlier ones.
    rules = acl_rules(user)
    assert all(rules.index("resetkeys") < position for position, rule in enumerate(rules) if "~" in rule)
    assert not {"allkeys", "~*", "allchannels", "&*"} & set(rules)


@EACH_USER
def test_user_has_no_dangerous_commands(user: StateStoreUser) -> None:
    commands = [rule for rule in acl_rules(user) if rule[0] in "+-"]
    assert commands[0] == "-@all"
    # The last rules, since a later category could allow them again; commands that list keys are not in @dangerous.
    assert commands[-3:] == ["-@dangerous", "-scan", "-randomkey"]
    assert {rule.removeprefix("+@") for rule in commands if rule.startswith("+")} <= ALLOWED_CATEGORIES


@EACH_USER
def test_user_is_enabled_and_requires_its_password(user: StateStoreUser) -> None:
    assert acl_rules(user)[0] == "on"
    assert "nopass" not in acl_rules(user)
    assert "resetchannels" in acl_rules(user)


def test_each_tier_has_one_user() -> None:
    assert duplicates(user.tier for user in STATE_USERS) == []
