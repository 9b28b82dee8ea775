"""Options of `voice loadtest`, validated before any request."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from yarl import URL

from voice_ops.call.access import AuthorizerType, CredentialsError, create_header_provider, read_secret
from voice_ops.loadtest.client_session import DeepgramDriver, OpenAiDriver
from voice_ops.loadtest.conversation import ConversationDriver
from voice_ops.loadtest.drivers import Api, ChatDriver, Driver, SpeechDriver, TranscriptionDriver
from voice_ops.loadtest.endpoint import Endpoint
from voice_ops.loadtest.inputs import PASSAGE, Recording, read_recording
from voice_ops.loadtest.load import ClosedLoopLoad, Load, OpenLoopLoad
from voice_ops.loadtest.metrics import METRICS
from voice_ops.loadtest.price import find_hourly_price
from voice_ops.loadtest.realtime import RealtimeDriver
from voice_ops.loadtest.scenarios import REFERENCE_DURATION_S, SCENARIOS, Scenario
from voice_ops.loadtest.summary import Slo
from voice_ops.loadtest.voice_session import VoiceSessionDriver

N = TypeVar("N", int, float)
_MIN_REQUEST_COUNT = 60
_REQUESTS_PER_CALLER = 4
_REFERENCE_TOLERANCE_S = 1


class OptionError(ValueError):
    """An option cannot be used. The message contains its name, its value and alternatives."""


def parse_url(text: str, option: str) -> URL:
    """Parse the URL of an endpoint, with or without the ``/v1`` of its APIs."""
    try:
        url = URL(text)
    except ValueError as error:
        raise OptionError(f"{option} {text} is not a URL: {error}") from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise OptionError(f"{option} {text} is not the URL of an endpoint, such as http://localhost:8000")
    if url.user or url.password or url.query:
        raise OptionError(f"{option} must not contain a key; export it in a variable and specify --api-key-env")
    return url.with_path(url.path.rstrip("/").removesuffix("/v1"))


def parse_endpoint(  # noqa: PLR0917  one caller
    name: str,
    option: str,
    url: str,
    api: Api,
    model: str,
    body: str,
    auth: AuthorizerType | None,
    key_variable: str | None,
) -> Endpoint:
    if api is not Api.SESSION and auth:
        raise OptionError(f"--auth only applies to session: {api} uses an API key as OpenAI's API does")
    parsed_url = parse_url(url, option)
    try:
        key = read_secret(key_variable)
        # For an OpenAI-compatible endpoint, a key is a bearer token.
        headers = create_header_provider(
            AuthorizerType.JWT if key and api is not Api.SESSION else auth, key, str(parsed_url)
        )
    except CredentialsError as error:
        raise OptionError(str(error)) from None
    return Endpoint(name, parsed_url, model, parse_body(body), headers)


def select_api(api: Api | None, name: str | None, *, model: str, baseline: str | None) -> Api:
    """Return the API to test, which the options or a scenario specify."""
    scenario = parse_scenario(name)
    if scenario is None:
        if api is None:
            raise OptionError(f"specify --api ({', '.join(Api)}) or --scenario")
        if model and not api.has_model_parameter:
            raise OptionError(f"--model does not apply to {api}: the deployment file selects the model")
        return api
    if api not in {None, Api.SPEECH}:
        raise OptionError(f"--scenario {name} tests speech, not {api}")
    if scenario.needs_baseline and not baseline:
        raise OptionError(
            f"--scenario {name} compares {' with '.join(scenario.endpoint_names)}: specify --baseline URL"
        )
    return Api.SPEECH


def select_price(
    usd: float | None, instance_type: str | None, region: str | None, gpus: int
) -> tuple[float | None, str]:
    """Return the cost of the endpoint per hour, and its source."""
    if usd is not None and instance_type:
        raise OptionError("--usd-per-hour and --instance-type both set the price; specify one of them")
    if instance_type:
        return find_hourly_price(instance_type, region, gpus)
    return (None, "not given") if usd is None else (usd, f"{usd:g} USD per hour")


def parse_scenario(name: str | None) -> Scenario | None:
    if name is None:
        return None
    if name not in SCENARIOS:
        raise OptionError(f"--scenario {name} is unknown; the scenarios are {', '.join(SCENARIOS)}")
    return SCENARIOS[name]


def parse_loads(concurrency: str | None, rate: str | None, scenario: Scenario | None) -> list[Load]:
    """Parse the loads: a list of concurrencies or of rates, or the loads of the scenario."""
    if concurrency and rate:
        raise OptionError("--concurrency is a closed loop and --rate an open loop; specify one of them")
    if scenario and (concurrency or rate):
        raise OptionError("a scenario sets the concurrency; omit --concurrency and --rate")
    if scenario:
        return [ClosedLoopLoad(level) for level in scenario.concurrencies]
    if rate:
        return [OpenLoopLoad(value) for value in _parse_numbers("--rate", rate, float)]
    return [ClosedLoopLoad(value) for value in _parse_numbers("--concurrency", concurrency or "1", int)]


def _parse_numbers(option: str, text: str, kind: type[N]) -> list[N]:
    try:
        values = [kind(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or not all(0 < value < float("inf") for value in values):
        raise OptionError(f"{option} {text} is not a list of positive {kind.__name__} values, such as 1,16,32")
    return values


def calculate_request_count(requests: int | None, load: Load, rounds: int) -> int:
    """Return the number of requests per endpoint, which is at least the concurrency of the load in each round."""
    concurrency = load.concurrency if isinstance(load, ClosedLoopLoad) else 1
    min_requests = concurrency * rounds
    if requests is None:
        return max(_MIN_REQUEST_COUNT, _REQUESTS_PER_CALLER * concurrency, min_requests)
    if requests < min_requests:
        rounds_text = f" in each of {rounds} rounds" if rounds > 1 else ""
        raise OptionError(
            f"--requests {requests} is too small for {concurrency} concurrent requests{rounds_text}; specify "
            f"{min_requests} or more"
        )
    return requests


def parse_slo(limits: list[str], scenario: Scenario | None) -> Slo:
    """Parse limits such as ``first:500``. Without limits, return those of the scenario."""
    if not limits and scenario:
        return scenario.slo
    slo = {}
    for limit in limits:
        name, _, value = limit.partition(":")
        try:
            slo[name] = float(value)
        except ValueError:
            raise OptionError(f"--slo {limit} has no number; the format is METRIC:LIMIT, such as first:500") from None
        if name not in METRICS:
            raise OptionError(f"--slo {limit}: the metric {name} is unknown; the metrics are {', '.join(METRICS)}")
    return slo


def parse_body(text: str) -> Mapping[str, Any]:
    """Parse a JSON object with additional fields for every request."""
    try:
        body = json.loads(text)
    except ValueError as error:
        raise OptionError(f"--body is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise OptionError('--body is not a JSON object such as \'{"voice": "neutral_female"}\'')
    return body


def parse_endpoint_names(names: str | None, scenario: Scenario | None) -> tuple[str, str]:
    """Return the labels of the endpoint and its baseline in the report."""
    if names is None:
        return scenario.endpoint_names if scenario else ("measured", "baseline")
    measured, _, baseline = (part.strip() for part in names.partition(","))
    if not measured or not baseline or measured == baseline:
        raise OptionError(f"--names {names} is not a pair of names, such as tuned,baseline")
    return measured, baseline


def create_driver_factory(
    api: Api,
    *,
    audio: list[Path],
    text: Path | None,
    reference: Path | None,
    sample_rate: int,
    scenario: Scenario | None,
) -> Callable[[Endpoint], Driver]:
    """Read the inputs, and return a function that creates an endpoint's driver.

    Raises:
        OptionError, RecordingError: An input is missing, cannot be read, or does not fit this API.
    """
    if api not in {Api.SPEECH, Api.CHAT}:
        return _create_transcription_factory(api, audio)
    if audio:
        raise OptionError(f"--audio applies to transcription, realtime and session, not to {api}")
    if scenario and text:
        raise OptionError("a scenario sets the text; omit --text")
    words = _read_text(text) if text else PASSAGE
    if api is Api.CHAT:
        if reference:
            raise OptionError("--reference applies to speech, not to chat")
        return lambda endpoint: ChatDriver(endpoint, words)
    voice = _read_reference(reference, scenario) if reference else None
    return lambda endpoint: SpeechDriver(endpoint, words, voice, sample_rate)


_LIVE_DRIVERS: dict[Api, Callable[[Endpoint, tuple[Recording, ...]], Driver]] = {
    Api.REALTIME: RealtimeDriver,
    Api.SESSION: VoiceSessionDriver,
    Api.OPENAI: OpenAiDriver,
    Api.DEEPGRAM: DeepgramDriver,
    Api.CONVERSATION: ConversationDriver,
}


def _create_transcription_factory(api: Api, audio: list[Path]) -> Callable[[Endpoint], Driver]:
    if not audio:
        raise OptionError(f"{api} requires recordings of speech: specify --audio FILE.wav for each")
    recordings = tuple(read_recording(file) for file in audio)
    if api is Api.TRANSCRIPTION:
        return lambda endpoint: TranscriptionDriver(endpoint, recordings)
    return lambda endpoint: _LIVE_DRIVERS[api](endpoint, recordings)


def _read_text(file: Path) -> str:
    try:
        text = " ".join(file.read_text(encoding="utf-8").split())
    except OSError as error:
        raise OptionError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise OptionError(f"{file} is not UTF-8 text") from None
    if not text:
        raise OptionError(f"{file} is empty")
    return text


def _read_reference(file: Path, scenario: Scenario | None) -> Recording:
    recording = read_recording(file)
    if scenario and abs(recording.duration_s - REFERENCE_DURATION_S) > _REFERENCE_TOLERANCE_S:
        raise OptionError(
            f"--reference {file} is {recording.duration_s:.1f} s long; the published runs used {REFERENCE_DURATION_S} s"
        )
    return recording
