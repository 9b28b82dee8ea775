"""What programs read is what the contract says, and a deployment file sets it or the list below says why none does."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pytest
from pydantic_settings import BaseSettings, SettingsConfigDict

from blueprint.contract import environment as variables
from blueprint.contract.environment import ENVIRONMENT, Variable
from blueprint.contract.images import Image
from blueprint.images import BuiltImage, specs
from tests.contract.environment_rules import Launch, launches
from tests.contract.programs import IN_C, fields, set_by_image, variables_of
from tests.contract.sources import templates_of
from tests.synthesized import edited_sandbox, shipped

BUILT = {image: spec for image, spec in specs().items() if isinstance(spec, BuiltImage)}

INTERNAL = {
    "VOICE_BACKEND": "the image's own: asr-neuron is made for Neuron alone",
    "VOICE_LAYOUT": "for measurements: `make bench-voice` compares both",
    "VOICE_VALKEY_HOST": "one of two ways; the contract gives each image its own",
    "VOICE_VALKEY_HOST_FILE": "as VOICE_VALKEY_HOST",
    "VOICE_VALKEY_PASSWORD": "one of two ways; the contract gives each image its own",
    "VOICE_VALKEY_PASSWORD_FILE": "as VOICE_VALKEY_PASSWORD",
    "VOICE_VALKEY_TLS": "off for the store of a developer's machine alone",
    "VOICE_VALKEY_CA_FILE": "for a store whose certificate is nobody's; ElastiCache's is Amazon's",
    "VOICE_BIND_ADDRESS": "the loopback on a developer's machine; a container has no other address",
    "VOICE_MEDIA_TLS": "off where no load balancer is in front, on a developer's machine",
    "VOICE_CONTROL_SOCKET": "where blueprint/contract/metrics.py says: two images share it",
    "VOICE_NEURON_MONITOR": "as VOICE_CONTROL_SOCKET",
    "VOICE_START_PHASES": "as VOICE_CONTROL_SOCKET",
    "VOICE_ENGINE_METRICS_URL": "as VOICE_CONTROL_SOCKET",
    "VOICE_READ_EVERY_S": "every second: metrics are stored at that resolution",
    "VOICE_PUBLISH_EVERY_S": "half of the 10 s at which alarms look",
    "VOICE_STATE_FILE": "beside the control socket",
    "VOICE_VAD_MODULE": "the image's own",
    "VOICE_SESSION_PACKETS_PER_S": "twice what audio needs, whatever is deployed",
    "VOICE_ADMISSIONS_PER_S": "protects the store from floods, whatever is deployed",
    "VOICE_SILENT_AFTER_S": "bounds what a caller who is gone takes; who comes back is let in again",
    "VOICE_RESEND_WINDOW_S": "follows from HOST_DEAD_AFTER_S",
    "VOICE_RESEND_MIB": "as VOICE_RESEND_WINDOW_S",
    "VOICE_RTP_HOST": "on Azure alone, where UDP has an address of its own",
    "VOICE_PROMETHEUS_PORT": "of gateway and agent on Azure alone; on AWS their logs have the metrics",
    "VOICE_PROMETHEUS_ADDRESS": "a pod is asked from outside; a host's Prometheus is on the loopback",
    "VOICE_STATE_TOKEN_FILE": "of the sidecar on Azure: what it writes is VOICE_VALKEY_PASSWORD_FILE to the others",
    "VOICE_HEALTH_ADDRESS": "a pod is asked from outside; a host's telemetry asks on the loopback",
    "VOICE_VLLM_URL": "on Azure alone, where a router is before vLLM; on a host it is on the loopback",
    "VOICE_VLLM_MODEL": "as VOICE_VLLM_URL",
    "VOICE_FINAL_WITHIN_S": "a bound for a gateway that does not answer; the last transcript ends a turn at once",
    "VOICE_INCOMPLETE_WITHIN_S": "as people pause, whatever is deployed",
    "VOICE_UNHEARD_WITHIN_S": "as VOICE_FINAL_WITHIN_S",
}
"""Variables with a default that no deployment changes, and why."""


def undeclared(image: BuiltImage, given: Iterable[Variable], read: Mapping[str, bool]) -> list[str]:
    """Return what an image reads and the contract does not say, and the other way round."""
    declared = {variable.name for variable in given}
    unknown = read.keys() - declared - INTERNAL.keys()
    needed = {name for name in read.keys() & INTERNAL.keys() - declared if read[name]}
    return [
        *(f"{image.name} reads {name}: add it to ENVIRONMENT, and a setting of the file" for name in sorted(unknown)),
        *(f"{image.name} is given {name} and does not read it" for name in sorted(declared - read.keys())),
        *(f"{image.name} needs {name}, which no launcher sets" for name in sorted(needed)),
    ]


@pytest.mark.parametrize("image", BUILT)
def test_an_image_reads_what_the_contract_says(image: Image) -> None:
    read = variables_of(BUILT[image])
    assert undeclared(BUILT[image], ENVIRONMENT[image], read) == []
    assert set_by_image(BUILT[image]) <= read.keys() & INTERNAL.keys()


def test_the_list_of_internals_has_no_other() -> None:
    read: set[str] = set()
    for image, spec in BUILT.items():
        read |= variables_of(spec).keys() - {variable.name for variable in ENVIRONMENT[image]}
    assert read == INTERNAL.keys()


def test_a_variable_that_only_one_side_knows_is_named() -> None:
    class Planted(BaseSettings):
        model_config = SettingsConfigDict(env_prefix="VOICE_")

        forgotten: str
        layout: str

    telemetry = BUILT[Image.TELEMETRY]
    given = (Variable("VOICE_LAYOUT", ""), Variable("VOICE_SPARE", ""))
    assert undeclared(telemetry, given, fields(Planted)) == [
        "telemetry reads VOICE_FORGOTTEN: add it to ENVIRONMENT, and a setting of the file",
        "telemetry is given VOICE_SPARE and does not read it",
    ]
    assert undeclared(telemetry, given[1:], {"VOICE_SPARE": True, "VOICE_LAYOUT": True}) == [
        "telemetry needs VOICE_LAYOUT, which no launcher sets"
    ]
    assert IN_C.findall('Variable{"VOICE_PLANTED", nullptr}; VOICE_STEER_QUEUES') == ["VOICE_PLANTED"]


def test_programs_are_looked_at() -> None:
    assert {image for image, spec in BUILT.items() if variables_of(spec)} == {
        Image.AGENT, Image.GATEWAY, Image.VAD_DATAPLANE, Image.WHISPER_ENGINE, Image.ASR_NEURON, Image.TELEMETRY
    }  # fmt: skip


# --- What sets a variable ---------------------------------------------------------------------------------


class Setting(NamedTuple):
    """A field of the deployment file, a value that nothing else has, and how a container is told it."""

    field: str
    value: object
    told: str
    images: tuple[Image, ...] = tuple(Image)


MEASURED = {"date": "2026-11-22", "conditions": "measured by hand"}
WHISPER = (Image.WHISPER_ENGINE, Image.ASR_NEURON)
EDGE, AGENTS = "aws.edge", "aws.agents"
SETTINGS: tuple[tuple[Variable, Setting], ...] = (
    (variables.DEPLOYMENT, Setting("name", "elsewhere", "elsewhere")),
    (variables.REGION, Setting("aws.region", "us-west-2", "us-west-2")),
    (variables.FLEET, Setting("aws.asr.0.name", "chips", "chips", (Image.TELEMETRY,))),
    (variables.DATA_PATH, Setting("aws.vad.data_path.mode", "vfio", "vfio")),
    (variables.RX_QUEUES, Setting("aws.vad.data_path.rx_queues", 3, "3")),
    (variables.RX_RING_SIZE, Setting("aws.vad.data_path.rx_ring_size", 1024, "1024")),
    (variables.HUGE_PAGE_SIZE_MIB, Setting("aws.vad.huge_pages", {"size_mib": 1024, "count": 24}, "1024")),
    (variables.DRAIN_TIMEOUT_S, Setting("aws.vad.drain_timeout_s", 611, "611", (Image.VAD_DATAPLANE,))),
    (variables.DRAIN_TIMEOUT_S, Setting("aws.asr.0.drain_timeout_s", 612, "612", (Image.ASR_NEURON,))),
    (variables.DRAIN_TIMEOUT_S, Setting("aws.asr.2.drain_timeout_s", 613, "613", (Image.WHISPER_ENGINE,))),
    (variables.MODEL, Setting("aws.asr.0.model", "openai/whisper-tiny", "openai/whisper-tiny", (Image.ASR_NEURON,))),
    (variables.MODEL, Setting("aws.asr.2.model", "some/tiny", "some/tiny", (Image.WHISPER_ENGINE,))),
    (variables.MODEL_REVISION, Setting("aws.asr.0.revision", "b" * 40, "b" * 40, (Image.ASR_NEURON,))),
    (variables.MODEL_REVISION, Setting("aws.asr.2.revision", "b" * 40, "b" * 40, (Image.WHISPER_ENGINE,))),
    (variables.CHUNK_KIND, Setting("aws.asr.2.model", "some/tiny", "pcm16")),
    (variables.SESSIONS, Setting("aws.asr.0.measured", MEASURED | {"calls": 77}, "77", (Image.ASR_NEURON,))),
    (variables.SESSIONS, Setting("aws.asr.2.measured", MEASURED | {"calls": 78}, "78", (Image.WHISPER_ENGINE,))),
    (variables.MAX_SESSIONS, Setting("aws.vad.measured", MEASURED | {"calls": 1234}, "1234")),
    (variables.ENCODERS, Setting("aws.asr.0.instance_type", "inf2.24xlarge", "6", (Image.ASR_NEURON,))),
    (variables.DECODERS, Setting("aws.asr.0.instance_type", "inf2.24xlarge", "6", (Image.ASR_NEURON,))),
    (variables.ENCODERS, Setting("aws.asr.2.instance_type", "p5.48xlarge", "8", (Image.WHISPER_ENGINE,))),
    (variables.DECODERS, Setting("aws.asr.2.instance_type", "p5.48xlarge", "8", (Image.WHISPER_ENGINE,))),
    (variables.ENGINE, Setting("aws.asr.1.engine", "vllm", "vllm", (Image.WHISPER_ENGINE,))),
    (
        variables.JWT_ISSUER,
        Setting(
            f"{EDGE}.authorizer",
            {"kind": "jwt", "issuer": "https://issuer.test", "audience": "listeners"},
            "https://issuer.test",
        ),
    ),
    (variables.AUTHORIZER, Setting(f"{EDGE}.authorizer.kind", "jwt", "jwt")),
    (variables.JWT_AUDIENCE, Setting(f"{EDGE}.authorizer.audience", "listeners", "listeners")),
    (variables.MEDIA_HOST, Setting(f"{EDGE}.domain.name", "other.example.com", "media.other.example.com")),
    (variables.TOKEN_TTL_S, Setting(f"{EDGE}.token_ttl_s", 701, "701", (Image.GATEWAY,))),
    (variables.IDLE_TIMEOUT_S, Setting(f"{EDGE}.idle_timeout_s", 71, "71", (Image.GATEWAY,))),
    (variables.TOKEN_TTL_S, Setting(f"{AGENTS}.token_ttl_s", 702, "702", (Image.AGENT,))),
    (variables.IDLE_TIMEOUT_S, Setting(f"{AGENTS}.idle_timeout_s", 72, "72", (Image.AGENT,))),
    (variables.CONVERSATIONS, Setting(f"{AGENTS}.conversations", 7, "7")),
    (variables.CHAT_URL, Setting(f"{AGENTS}.chat.url", "https://one.test/v1", "https://one.test/v1")),
    (variables.CHAT_MODEL, Setting(f"{AGENTS}.chat.model", "some-chat", "some-chat")),
    (variables.SPEECH_URL, Setting(f"{AGENTS}.speech.url", "https://two.test/v1", "https://two.test/v1")),
    (variables.SPEECH_MODEL, Setting(f"{AGENTS}.speech.model", "some-speech", "some-speech")),
    (variables.SPEECH_VOICE, Setting(f"{AGENTS}.voice", "some-voice", "some-voice")),
    (variables.SPEECH_RATE, Setting(f"{AGENTS}.speech_rate", 22050, "22050")),
    (variables.PROMPT, Setting(f"{AGENTS}.prompt", "Be brief.", "Be brief.")),
    (variables.TOOLS_URL, Setting(f"{AGENTS}.tools_url", "https://tools.test", "https://tools.test")),
    (variables.LANGUAGE, Setting(f"{AGENTS}.language", "de", "de")),
    (variables.ANSWER_TOKENS, Setting(f"{AGENTS}.answer_tokens", 77, "77")),
    (variables.LISTENING, Setting(f"{AGENTS}.listening", "audio", "audio")),
    (variables.TRACE_COLLECTOR, Setting(f"{EDGE}.trace_collector", "https://otlp.test/v1", "https://otlp.test/v1")),
    (variables.TRACED_SHARE, Setting(f"{EDGE}.traced_share", 0.25, "0.25")),
    (variables.RECONNECT_GRACE_S, Setting(f"{EDGE}.reconnect_grace_s", 31, "31")),
    (variables.END_OF_TURN_MS, Setting(f"{EDGE}.end_of_turn_ms", 650, "650")),
    (variables.SESSION_MAX_S, Setting(f"{EDGE}.session_max_s", 1801, "1801")),
    (variables.CALLER_SESSIONS, Setting(f"{EDGE}.caller_sessions", 1001, "1001")),
    (variables.CALLER_CREATIONS_PER_S, Setting(f"{EDGE}.caller_creations_per_s", 51, "51")),
    (variables.MAX_CONNECTIONS, Setting(f"{EDGE}.gateway.sockets_per_task", 42, "42")),
    (
        variables.OTHER_REGIONS,
        Setting(
            "aws.other_regions",
            [{"region": "eu-west-1", "availability_zones": ["eu-west-1a"]}],
            "https://api.eu-west-1.other.example.com",
        ),
    ),
    (
        variables.API_URL,
        Setting(
            "aws.other_regions",
            [{"region": "eu-west-1", "availability_zones": ["eu-west-1a"]}],
            "https://api.other.example.com",
        ),
    ),
    (
        variables.ALLOWED_ORIGINS,
        Setting(f"{EDGE}.allowed_origins", ["https://a.test", "https://b.test"], "https://a.test,https://b.test"),
    ),
)
DEPLOYED = {
    variables.HOST: "the host's own",
    variables.HOST_ADDRESS: "the host's own",
    variables.INTERFACE: "the host's own",
    variables.ZONE: "the host's own",
    variables.VALKEY_HOST: "the deployed store's",
    variables.VALKEY_HOST_FILE: "the deployed store's",
    variables.VALKEY_PORT: "of the contract, as are the security groups",
    variables.VALKEY_USER: "the tier's",
    variables.VALKEY_PASSWORD: "generated",
    variables.VALKEY_PASSWORD_FILE: "generated",
    variables.TOKEN_KEY: "generated",
    variables.RTP_PORT: "of the contract",
    variables.CHUNK_PORT: "of the contract",
    variables.HEALTH_PORT: "of the contract",
    variables.HTTP_PORT: "of the contract",
    variables.MEDIA_PORT: "of the contract",
    variables.PROMETHEUS_PORT: "of the contract",
    variables.HOST_KIND: "what the hosts of an instance type have, and so the image",
    variables.TELEMETRY_SOURCES: "what runs beside it",
    variables.CACHE_DIR: "where the launcher mounts the host's disks",
}
"""Variables that follow from what is deployed, and need no field of their own."""
OF_ONE_IMAGE = {
    (variables.DRAIN_TIMEOUT_S, Image.GATEWAY): "Fargate grants no more",
    (variables.FLEET, Image.GATEWAY): "there is one service",
    (variables.FLEET, Image.AGENT): "there is one service",
    (variables.DRAIN_TIMEOUT_S, Image.AGENT): "Fargate grants no more",
    (variables.GATEWAY_URL, Image.AGENT): "the deployed gateway's",
    (variables.CHAT_KEY, Image.AGENT): "the operator's secret, by its name",
    (variables.SPEECH_KEY, Image.AGENT): "the operator's secret, by its name",
    (variables.ENGINE, Image.ASR_NEURON): "vLLM is for GPUs",
}


def unreachable(environment: Mapping[Image, Iterable[Variable]]) -> list[str]:
    """Return the variables of an image that neither a field of the file nor what is deployed sets."""
    set_by_file = {(variable, image) for variable, setting in SETTINGS for image in setting.images}
    return [
        f"{image}: no field of the deployment file sets {variable.name}"
        for image, given in environment.items()
        for variable in given
        if variable not in DEPLOYED and (variable, image) not in set_by_file | OF_ONE_IMAGE.keys()
    ]


def test_every_variable_has_something_that_sets_it() -> None:
    assert unreachable(ENVIRONMENT) == []


def test_a_variable_that_no_file_can_set_is_named() -> None:
    planted = {**ENVIRONMENT, Image.GATEWAY: (*ENVIRONMENT[Image.GATEWAY], Variable("VOICE_PLANTED", ""))}
    assert unreachable(planted) == ["gateway: no field of the deployment file sets VOICE_PLANTED"]


@pytest.fixture(scope="module")
def before() -> list[Launch]:
    return list(launches(templates_of(shipped("sandbox"))))


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> list[Launch]:
    """Launches of one file in which every setting has another value; the second fleet runs vLLM on GPUs."""
    load = {"sessions": 32, "session_tokens": 448, "context_tokens": 448}
    edits = {
        "aws.availability_zones": ["us-west-2a", "us-west-2b"],
        "aws.asr.1.instance_type": "p5.4xlarge",
        "aws.asr.1.vllm": {"model": "whisper-large-v3", "load": load},
        **{setting.field: setting.value for _, setting in SETTINGS},
    }
    return list(launches(templates_of(edited_sandbox(edits, tmp_path_factory.mktemp("all-settings")))))


def told(found: list[Launch], image: Image, variable: Variable) -> set[str | None]:
    return {{**each.shared, **each.own}.get(variable.name) for each in found if each.image == image.value}


@pytest.mark.parametrize(
    ("variable", "setting"), SETTINGS, ids=[f"{variable.name}-{setting.field}" for variable, setting in SETTINGS]
)
def test_a_field_of_the_file_reaches_the_programs(
    variable: Variable, setting: Setting, before: list[Launch], after: list[Launch]
) -> None:
    readers = [image for image in setting.images if variable in ENVIRONMENT[image]]
    assert readers
    for image in readers:
        assert setting.told in told(after, image, variable)
        assert setting.told not in told(before, image, variable)
