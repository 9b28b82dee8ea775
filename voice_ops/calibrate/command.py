"""`voice calibrate`: measure the calls per host, and write them into the deployment file."""

import asyncio
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

import voice_blueprint
from voice_blueprint.aws import names
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.load import MeasuredCapacity
from voice_blueprint.file.source import Location
from voice_ops.calibrate.edit import set_mapping_value
from voice_ops.calibrate.search import find_max_sustained_calls
from voice_ops.call.access import AuthorizerType
from voice_ops.call.recording import RecordingError
from voice_ops.exits import FAILED, INTERRUPTED, INVALID_INPUT
from voice_ops.findings import load_deployment
from voice_ops.loadtest import options
from voice_ops.loadtest.drivers import Api
from voice_ops.loadtest.load import ClosedLoopLoad
from voice_ops.loadtest.options import OptionError
from voice_ops.loadtest.session import LoadTest, LoadTestError
from voice_ops.options import DeploymentFileArgument, JsonOption
from voice_ops.output import create_exit, err, out, print_json
from voice_ops.progress import Progress

SAMPLE_FILE = Path(__file__).parents[1] / "demo/page/sample.wav"
RESPONSE_TIMEOUT_S = 120.0
Option = typer.Option


def calibrate(  # noqa: PLR0917  Typer passes parameters by name
    file: DeploymentFileArgument,
    fleet: Annotated[
        str, typer.Argument(metavar="FLEET", help="ASR fleet to measure; with --url also `vad` or `gateway`.")
    ],
    url: Annotated[
        str | None,
        Option(metavar="URL", help="Session API of a deployment. By default the engine runs on this machine."),
    ] = None,
    hosts: Annotated[int, Option(min=1, help="Hosts of the fleet that serve the calls.")] = 1,
    auth: Annotated[
        AuthorizerType | None, Option(help="Authorizer of the deployment at --url.", show_default=False)
    ] = None,
    api_key_env: Annotated[
        str | None, Option(metavar="NAME", help="Environment variable that contains the key or token.")
    ] = None,
    audio: Annotated[Path, Option(help="Recording to send in each call, WAV.", show_default=False)] = SAMPLE_FILE,
    final_ms: Annotated[float, Option(min=1, help="Maximum delay of the last final transcript, ms.")] = 2000.0,
    max_calls: Annotated[int, Option(min=1, max=8192, help="Maximum concurrent calls.")] = 256,
    model: Annotated[
        Path | None,
        Option(
            metavar="DIR", help="Whisper model in CTranslate2's format, for a run on this machine. Default: tiny.en."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure the calls per host with a load test, and write the result to the file.

    Calls send audio in real time. Their number doubles until a call fails or its last final transcript is late; a
    binary search then finds the limit. The result is written to `measured` of the fleet, with date and conditions.
    Comments in the file are preserved.

    Example: voice calibrate deployments/small.yaml cpu --url https://voice.example.org/v1 --auth iam
    """
    deployment = load_deployment(file)
    location = _find_fleet_location(deployment, fleet)
    if url is None and location[1] != "asr":
        raise create_exit(f"only the CPU engine can be measured on this machine; {fleet} requires --url", INVALID_INPUT)
    try:
        if url is None:
            with run_local_engine(model) as (local, engine_name):
                calls, is_limit = _measure_max_calls(local, audio, final_ms, max_calls, auth, api_key_env)
            hardware = f"{engine_name}, {os.cpu_count()} vCPU of {platform.machine()}"
        else:
            calls, is_limit = _measure_max_calls(url, audio, final_ms, max_calls, auth, api_key_env)
            hardware = f"{hosts} hosts at {url}" if hosts > 1 else url
    except (OptionError, RecordingError) as error:
        raise create_exit(str(error), INVALID_INPUT) from None
    except LoadTestError as error:
        raise create_exit(str(error), FAILED) from None
    except KeyboardInterrupt:
        raise create_exit("interrupted: the file is unchanged", INTERRUPTED) from None
    if calls < hosts:
        raise create_exit(
            f"{hardware} cannot serve {hosts} calls with final transcripts within {final_ms:g} ms: "
            "the file is unchanged",
            FAILED,
        )
    measured = MeasuredCapacity(
        calls=calls // hosts,
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        conditions=f"{hardware}: {audio.name}, finals within {final_ms:g} ms"
        + ("" if is_limit else ", more calls not tested"),
    )
    _write_measurement(file, location, measured)
    if as_json:
        print_json({"fleet": fleet, "measured": measured.model_dump()}, deployment.name)
    else:
        out.print(
            f"{file!s}: a host of {fleet} serves {measured.calls:,} calls ({measured.conditions}); next: voice plan "
            f"{file!s}",
            soft_wrap=True,
        )


def _find_fleet_location(deployment: Deployment, fleet: str) -> Location:
    asr = [each.name for each in deployment.aws_section.asr] if deployment.aws_section else []
    fleets = [names.GATEWAY_FLEET, names.VAD_FLEET, *asr] if deployment.aws_section else []
    if fleet not in fleets:
        raise create_exit(
            f"{deployment.name} has no fleet {fleet}; its fleets are {', '.join(fleets) or 'none on AWS'}",
            INVALID_INPUT,
        )
    locations: dict[str, Location] = {names.GATEWAY_FLEET: ("aws", "edge", "gateway"), names.VAD_FLEET: ("aws", "vad")}
    return locations.get(fleet) or ("aws", "asr", asr.index(fleet))


def _measure_max_calls(  # noqa: PLR0917  two callers
    url: str, audio: Path, final_ms: float, max_calls: int, auth: AuthorizerType | None, key: str | None
) -> tuple[int, bool]:
    driver = options.create_driver_factory(
        Api.SESSION, audio=[audio], text=None, reference=None, sample_rate=24_000, scenario=None
    )
    progress = Progress(err)

    def can_sustain(calls: int) -> bool:
        # Create a new endpoint for each run, since its connections end with the run.
        endpoint = options.parse_endpoint("host", "--url", url, Api.SESSION, "", "{}", auth, key)
        work = LoadTest(
            api=Api.SESSION,
            endpoints=[endpoint],
            create_driver=driver,
            requests_by_load={ClosedLoopLoad(calls): calls},
            slo={"final": final_ms},
            gpu_count=1,
            usd_per_hour=None,
            scenario=None,
            round_count=1,
            warmup_requests=1 if calls == 1 else 0,
            timeout_s=RESPONSE_TIMEOUT_S,
            seed=0,
            setup={},
        )
        (result,) = asyncio.run(work.run(progress)).results
        final = result.summary.metrics.get("final")
        return not result.summary.failures and final is not None and final.max <= final_ms

    return find_max_sustained_calls(can_sustain, max_calls)


@contextmanager
def run_local_engine(model: Path | None) -> Iterator[tuple[str, str]]:
    """Run the voice path on this machine, and yield the URL of the gateway and a description of the engine."""
    try:
        from voice_ops.demo.command import find_weights  # noqa: PLC0415  part of the repository, not of the package
        from voice_ops.demo.services import ServiceError, VoicePath  # noqa: PLC0415
    except ModuleNotFoundError:
        raise create_exit(
            "the CPU engine runs only from the repository (`make setup`); otherwise specify --url", INVALID_INPUT
        ) from None
    model_folder = find_weights(model)
    try:
        with (
            TemporaryDirectory(prefix="voice-calibrate-") as folder,
            VoicePath(Path(folder), model_folder, data_plane=None) as path,
        ):
            with Progress(err).phase("start the CPU engine on this machine"):
                path.start_store().wait_until_ready()
                gateway = path.start_gateway()
                path.start_vad()
                path.start_engine()
                path.wait_until_ready()
                path.wait_for_capacity(gateway)
            yield gateway.url, f"CPU engine with {'tiny.en' if model is None else model.name}"
    except ServiceError as error:
        raise create_exit(str(error), FAILED) from None


def _write_measurement(file: Path, location: Location, measured: MeasuredCapacity) -> None:
    text = set_mapping_value(file.read_text(encoding="utf-8"), location, "measured", measured.model_dump())
    with TemporaryDirectory(prefix="voice-calibrate-") as folder:
        draft = Path(folder) / file.name
        draft.write_text(text, encoding="utf-8")
        voice_blueprint.load(draft)  # before the operator's file is changed
    file.write_text(text, encoding="utf-8")
