"""Programs read the variables of the contract, and each can be set by a deployment file, with listed exceptions."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pytest
from pydantic_settings import BaseSettings, SettingsConfigDict

from tests.contract.environment_rules import Launch, launches
from tests.contract.programs import C_STRING, fields, set_by_image, variables_for
from tests.contract.sources import templates_by_tier
from tests.synthesized import edited_sandbox, shipped
from voice_blueprint.contract import environment as variables
from voice_blueprint.contract.environment import Variable
from voice_blueprint.contract.images import Image
from voice_blueprint.environment import CALLER_VARIABLE_BY_SETTING, VARIABLES_BY_IMAGE
from voice_blueprint.images import BuiltImage, load_image_specs

BUILT_IMAGES = {image: spec for image, spec in load_image_specs().items() if isinstance(spec, BuiltImage)}

INTERNAL_VARIABLES = {
    "VOICE_ARCHIVE_ENDPOINT": "of emulators alone: the cloud's own server follows from the address of the archive",
    "VOICE_BACKEND": "the image's own: asr-neuron is made for Neuron alone",
    "VOICE_LAYOUT": "for measurements: `make bench-voice` compares both",
    "VOICE_VALKEY_HOST": "one of two ways; the contract gives each image its own",
    "VOICE_VALKEY_HOST_FILE": "as VOICE_VALKEY_HOST",
    "VOICE_VALKEY_PASSWORD": "one of two ways; the contract gives each image its own",
    "VOICE_VALKEY_PASSWORD_FILE": "as VOICE_VALKEY_PASSWORD",
    "VOICE_VALKEY_TLS": "off for the store of a developer's machine alone",
    "VOICE_VALKEY_CA_FILE": "for a store whose certificate is nobody's; ElastiCache's is Amazon's",
    "VOICE_BIND_ADDRESS": "the loopback on a developer's machine; a container has no other address",
    "VOICE_FORWARDED": "on Azure alone, where the application gateway adds to X-Forwarded-For",
    "VOICE_MEDIA_TLS": "off where no load balancer is in front, on a developer's machine",
    "VOICE_CONTROL_SOCKET": "where voice_blueprint/contract/metrics.py says: two images share it",
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
    "VOICE_RESEND_WINDOW_S": "follows from HOST_HEARTBEAT_TIMEOUT_S",
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
"""Variables with a default that no deployment changes, with the reason."""


def contract_differences(image: BuiltImage, variables: Iterable[Variable], read: Mapping[str, bool]) -> list[str]:
    """Return differences between the variables of an image and of the contract."""
    declared = {variable.name for variable in variables}
    unknown = read.keys() - declared - INTERNAL_VARIABLES.keys()
    needed = {name for name in read.keys() & INTERNAL_VARIABLES.keys() - declared if read[name]}
    return [
        *(f"{image.name} reads {name}: add it to ENVIRONMENT, and a setting of the file" for name in sorted(unknown)),
        *(f"{image.name} is given {name} and does not read it" for name in sorted(declared - read.keys())),
        *(f"{image.name} needs {name}, which no launcher sets" for name in sorted(needed)),
    ]


@pytest.mark.parametrize("image", BUILT_IMAGES)
def test_an_image_reads_the_variables_of_the_contract(image: Image) -> None:
    read = variables_for(BUILT_IMAGES[image])
    assert contract_differences(BUILT_IMAGES[image], VARIABLES_BY_IMAGE[image], read) == []
    assert set_by_image(BUILT_IMAGES[image]) <= read.keys() & INTERNAL_VARIABLES.keys()


def test_the_list_of_internal_variables_is_complete() -> None:
    read: set[str] = set()
    for image, spec in BUILT_IMAGES.items():
        read |= variables_for(spec).keys() - {variable.name for variable in VARIABLES_BY_IMAGE[image]}
    assert read == INTERNAL_VARIABLES.keys()


def test_a_variable_in_only_one_of_contract_and_program_is_reported() -> None:
    class ExtraVariable(BaseSettings):
        model_config = SettingsConfigDict(env_prefix="VOICE_")

        forgotten: str
        layout: str

    telemetry = BUILT_IMAGES[Image.TELEMETRY]
    given = (Variable("VOICE_LAYOUT", ""), Variable("VOICE_SPARE", ""))
    assert contract_differences(telemetry, given, fields(ExtraVariable)) == [
        "telemetry reads VOICE_FORGOTTEN: add it to ENVIRONMENT, and a setting of the file",
        "telemetry is given VOICE_SPARE and does not read it",
    ]
    assert contract_differences(telemetry, given[1:], {"VOICE_SPARE": True, "VOICE_LAYOUT": True}) == [
        "telemetry needs VOICE_LAYOUT, which no launcher sets"
    ]
    assert C_STRING.findall('Variable{"VOICE_PLANTED", nullptr}; VOICE_STEER_QUEUES') == ["VOICE_PLANTED"]


def test_variables_are_detected_in_every_program() -> None:
    assert {image for image, spec in BUILT_IMAGES.items() if variables_for(spec)} == {
        Image.AGENT, Image.GATEWAY, Image.VAD_DATAPLANE, Image.WHISPER_ENGINE, Image.ASR_NEURON, Image.TELEMETRY
    }  # fmt: skip


# --- What sets a variable ---------------------------------------------------------------------------------


class Setting(NamedTuple):
    """A field of the deployment file, a unique value, and its form in a container's environment."""

    field: str
    value: object
    expected: str
    images: tuple[Image, ...] = tuple(Image)


HAND_MEASUREMENT = {"date": "2026-11-22", "conditions": "measured by hand"}
WHISPER = (Image.WHISPER_ENGINE, Image.ASR_NEURON)
EDGE, AGENTS = "aws.edge", "aws.agents"
SETTINGS: tuple[tuple[Variable, Setting], ...] = (
    (variables.DEPLOYMENT, Setting("name", "elsewhere", "elsewhere-1")),
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
    (variables.SESSIONS, Setting("aws.asr.0.measured", HAND_MEASUREMENT | {"calls": 77}, "77", (Image.ASR_NEURON,))),
    (
        variables.SESSIONS,
        Setting("aws.asr.2.measured", HAND_MEASUREMENT | {"calls": 78}, "78", (Image.WHISPER_ENGINE,)),
    ),
    (variables.MAX_SESSIONS, Setting("aws.vad.measured", HAND_MEASUREMENT | {"calls": 1234}, "1234")),
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
    (variables.MEDIA_HOST, Setting(f"{EDGE}.domain.name", "other.example.com", "media.c1.other.example.com")),
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
    (
        variables.TWILIO_ACCOUNT,
        Setting(f"{AGENTS}.twilio", {"account": f"AC{'0' * 32}", "token_secret": "t"}, f"AC{'0' * 32}"),
    ),
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
    (variables.CALLER_MINUTES_PER_DAY, Setting(f"{EDGE}.caller_minutes_per_day", 617, "617")),
    (variables.MAX_CONNECTIONS, Setting(f"{EDGE}.gateway.sockets_per_task", 42, "42")),
    (
        variables.OTHER_REGIONS,
        Setting(
            "aws.other_regions",
            [{"region": "eu-west-1", "availability_zones": ["eu-west-1a"]}],
            "https://api.eu-west-1.c1.other.example.com",
        ),
    ),
    (variables.API_HOST, Setting(f"{EDGE}.domain.name", "other.example.com", "api.c1.other.example.com")),
    (
        variables.API_URL,
        Setting(
            "aws.other_regions",
            [{"region": "eu-west-1", "availability_zones": ["eu-west-1a"]}],
            "https://api.c1.other.example.com",
        ),
    ),
    (
        variables.CELLS,
        Setting(
            "cells",
            {"calls": 10, "number": 1},
            ",".join(
                f"https://api.{cell}.other.example.com=https://media.{cell}.other.example.com/healthz"
                for cell in ("c1", "c2", "eu-west-1.c1", "eu-west-1.c2")
            ),
        ),
    ),
    (
        variables.ALLOWED_ORIGINS,
        Setting(f"{EDGE}.allowed_origins", ["https://a.test", "https://b.test"], "https://a.test,https://b.test"),
    ),
)
DEPLOYMENT_VARIABLES = {
    variables.HOST: "the host's own",
    variables.HOST_ADDRESS: "the host's own",
    variables.INTERFACE: "the host's own",
    variables.ZONE: "the host's own",
    variables.ARCHIVE_URL: "the deployed bucket's, or the container's",
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
"""Variables derived from the deployment, which need no field."""
SINGLE_IMAGE_VARIABLES = {
    (variables.DRAIN_TIMEOUT_S, Image.GATEWAY): "Fargate grants no more",
    (variables.FLEET, Image.GATEWAY): "there is one service",
    (variables.FLEET, Image.AGENT): "there is one service",
    (variables.DRAIN_TIMEOUT_S, Image.AGENT): "Fargate grants no more",
    (variables.GATEWAY_URL, Image.AGENT): "the deployed gateway's",
    (variables.CHAT_KEY, Image.AGENT): "the operator's secret, by its name",
    (variables.SPEECH_KEY, Image.AGENT): "the operator's secret, by its name",
    (variables.TOOLS_KEY, Image.AGENT): "the operator's secret, by its name",
    (variables.TWILIO_TOKEN, Image.AGENT): "the operator's secret, by its name",
    (variables.ENGINE, Image.ASR_NEURON): "vLLM is for GPUs",
}


def unreachable(environment: Mapping[Image, Iterable[Variable]]) -> list[str]:
    """Return the variables of an image that neither a field nor the deployment sets."""
    set_by_file = {(variable, image) for variable, setting in SETTINGS for image in setting.images}
    set_by_file |= {(variable, Image.GATEWAY) for variable in CALLER_VARIABLE_BY_SETTING.values()}
    return [
        f"{image}: no field of the deployment file sets {variable.name}"
        for image, given in environment.items()
        for variable in given
        if variable not in DEPLOYMENT_VARIABLES and (variable, image) not in set_by_file | SINGLE_IMAGE_VARIABLES.keys()
    ]


def test_every_variable_is_set_by_a_launcher() -> None:
    assert unreachable(VARIABLES_BY_IMAGE) == []


def test_a_variable_that_no_deployment_can_set_is_reported() -> None:
    planted = {**VARIABLES_BY_IMAGE, Image.GATEWAY: (*VARIABLES_BY_IMAGE[Image.GATEWAY], Variable("VOICE_PLANTED", ""))}
    assert unreachable(planted) == ["gateway: no field of the deployment file sets VOICE_PLANTED"]


@pytest.fixture(scope="module")
def default_launches() -> list[Launch]:
    return list(launches(templates_by_tier(shipped("sandbox"))))


@pytest.fixture(scope="module")
def changed_launches(tmp_path_factory: pytest.TempPathFactory) -> list[Launch]:
    """Return the launches of a file in which every setting has another value; the second fleet runs vLLM on GPUs."""
    load = {"sessions": 32, "session_tokens": 448, "context_tokens": 448}
    edits = {
        "aws.availability_zones": ["us-west-2a", "us-west-2b"],
        "load": {"calls": 10},
        "aws.asr.1.instance_type": "p5.4xlarge",
        "aws.asr.1.vllm": {"model": "whisper-large-v3", "load": load},
        **{setting.field: setting.value for _, setting in SETTINGS},
    }
    return list(launches(templates_by_tier(edited_sandbox(edits, tmp_path_factory.mktemp("all-settings")))))


def values_for(launch_list: list[Launch], image: Image, variable: Variable) -> set[str | None]:
    return {{**each.shared, **each.own}.get(variable.name) for each in launch_list if each.image == image.value}


@pytest.mark.parametrize(
    ("variable", "setting"), SETTINGS, ids=[f"{variable.name}-{setting.field}" for variable, setting in SETTINGS]
)
def test_a_field_of_the_deployment_file_reaches_the_programs(
    variable: Variable, setting: Setting, default_launches: list[Launch], changed_launches: list[Launch]
) -> None:
    readers = [image for image in setting.images if variable in VARIABLES_BY_IMAGE[image]]
    assert readers
    for image in readers:
        assert setting.expected in values_for(changed_launches, image, variable)
        assert setting.expected not in values_for(default_launches, image, variable)
