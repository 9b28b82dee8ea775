"""`voice calibrate`: measure what a host carries, and write it into the deployment file."""

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
from rich.markup import escape

import blueprint
from blueprint.aws import names
from blueprint.file.model.deployment import Deployment
from blueprint.file.model.load import Measured
from blueprint.file.source import Location
from ops.calibrate.edit import with_value
from ops.calibrate.search import most_sustained
from ops.call.access import Auth
from ops.call.recording import RecordingError
from ops.exits import FAILED, INTERRUPTED, REFUSED
from ops.findings import load
from ops.loadtest import options
from ops.loadtest.drivers import Api
from ops.loadtest.load import ClosedLoop
from ops.loadtest.options import OptionError
from ops.loadtest.session import LoadTest, LoadTestError
from ops.options import DeploymentFile, Json
from ops.output import err, out, print_json, stop
from ops.progress import Progress

SAMPLE = Path(__file__).parents[1] / "demo/page/sample.wav"
WHOLE_ANSWER_S = 120.0
Option = typer.Option


def calibrate(  # noqa: PLR0917  typer's parameters have names
    file: DeploymentFile,
    fleet: Annotated[
        str, typer.Argument(metavar="FLEET", help="What the figure is for: an ASR fleet, or with --url vad or gateway.")
    ],
    url: Annotated[
        str | None, Option(metavar="URL", help="Session API of a deployment; without it our engine, on this machine.")
    ] = None,
    hosts: Annotated[int, Option(min=1, help="Hosts of the fleet that carry the calls there.")] = 1,
    auth: Annotated[Auth | None, Option(help="Authorizer of that deployment.", show_default=False)] = None,
    api_key_env: Annotated[str | None, Option(metavar="NAME", help="Variable that holds the key or token.")] = None,
    audio: Annotated[Path, Option(help="What each call says, WAV.", show_default=False)] = SAMPLE,
    final_ms: Annotated[float, Option(min=1, help="A call is carried when its last final is no later, ms.")] = 2000.0,
    most: Annotated[int, Option(min=1, max=8192, help="Calls at a time that are not exceeded.")] = 256,
    model: Annotated[
        Path | None, Option(metavar="DIR", help="On this machine: Whisper model of CTranslate2; else tiny.en.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure how many calls a host carries, and write it into the file with date and conditions.

    Calls speak in real time; their number doubles until one of them fails or gets its last final too late, and then
    the limit is narrowed down. `measured` of the fleet takes the place of the ceiling that the file was sized by;
    comments stay.

    Example: voice calibrate deployments/small.yaml cpu --url https://voice.example.org/v1 --auth iam
    """
    deployment = load(file)
    place = _place(deployment, fleet)
    if url is None and place[1] != "asr":
        raise stop(f"on this machine our engine alone is measured: {fleet} needs --url", REFUSED)
    try:
        if url is None:
            with own_engine(model) as (local, what):
                calls, is_limit = _measure(local, audio, final_ms, most, auth, api_key_env)
            on = f"{what}, {os.cpu_count()} vCPU of {platform.machine()}"
        else:
            calls, is_limit = _measure(url, audio, final_ms, most, auth, api_key_env)
            on = f"{hosts} hosts behind {url}" if hosts > 1 else url
    except (OptionError, RecordingError) as error:
        raise stop(str(error), REFUSED) from None
    except LoadTestError as error:
        raise stop(str(error), FAILED) from None
    except KeyboardInterrupt:
        raise stop("interrupted: nothing is written", INTERRUPTED) from None
    if calls < hosts:
        raise stop(f"{on} does not carry {hosts} calls with finals within {final_ms:g} ms: nothing is written", FAILED)
    measured = Measured(
        calls=calls // hosts,
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        conditions=f"{on}: {audio.name}, finals within {final_ms:g} ms{'' if is_limit else ', more not tried'}",
    )
    _write(file, place, measured)
    if as_json:
        print_json({"fleet": fleet, "measured": measured.model_dump()}, deployment.name)
    else:
        out.print(
            f"{escape(str(file))}: a host of {fleet} carries {measured.calls:,} calls ({escape(measured.conditions)}); "
            f"next: voice plan {escape(str(file))}",
            soft_wrap=True,
        )


def _place(deployment: Deployment, fleet: str) -> Location:
    asr = [each.name for each in deployment.aws_half.asr] if deployment.aws_half else []
    known = [names.GATEWAY_FLEET, names.VAD_FLEET, *asr] if deployment.aws_half else []
    if fleet not in known:
        raise stop(f"{fleet} is no fleet of {deployment.name}; there are {', '.join(known) or 'none on AWS'}", REFUSED)
    places: dict[str, Location] = {names.GATEWAY_FLEET: ("aws", "edge", "gateway"), names.VAD_FLEET: ("aws", "vad")}
    return places.get(fleet) or ("aws", "asr", asr.index(fleet))


def _measure(  # noqa: PLR0917  two places call it
    url: str, audio: Path, final_ms: float, most: int, auth: Auth | None, key: str | None
) -> tuple[int, bool]:
    driver = options.driver_maker(
        Api.SESSION, audio=[audio], text=None, reference=None, sample_rate=24_000, scenario=None
    )
    progress = Progress(err)

    def sustains(calls: int) -> bool:
        # Anew each time: its connections end with the run.
        endpoint = options.endpoint_of("host", "--url", url, Api.SESSION, "", "{}", auth, key)
        work = LoadTest(
            api=Api.SESSION,
            endpoints=[endpoint],
            driver=driver,
            loads={ClosedLoop(calls): calls},
            slo={"final": final_ms},
            gpus=1,
            usd_per_hour=None,
            scenario=None,
            rounds=1,
            warmup=1 if calls == 1 else 0,
            timeout_s=WHOLE_ANSWER_S,
            seed=0,
            setup={},
        )
        (result,) = asyncio.run(work.run(progress)).results
        final = result.summary.metrics.get("final")
        return not result.summary.failures and final is not None and final.max <= final_ms

    return most_sustained(sustains, most)


@contextmanager
def own_engine(model: Path | None) -> Iterator[tuple[str, str]]:
    """Run the voice path on this machine; yield its address and what transcribes."""
    try:
        from ops.demo.command import weights  # noqa: PLC0415  of the repository, not of the package
        from ops.demo.services import ServiceError, VoicePath  # noqa: PLC0415
    except ModuleNotFoundError:
        raise stop("our engine runs from the repository only (`make setup`); or give --url", REFUSED) from None
    folder_of_model = weights(model)
    try:
        with (
            TemporaryDirectory(prefix="voice-calibrate-") as folder,
            VoicePath(Path(folder), folder_of_model, data_plane=None) as path,
        ):
            with Progress(err).phase("start our engine on this machine"):
                path.start_store().wait_ready()
                gateway = path.start_gateway()
                path.start_vad()
                path.start_engine()
                path.wait_ready()
                path.wait_for_capacity(gateway)
            yield gateway.url, f"our engine with {'tiny.en' if model is None else model.name}"
    except ServiceError as error:
        raise stop(str(error), FAILED) from None


def _write(file: Path, place: Location, measured: Measured) -> None:
    text = with_value(file.read_text(encoding="utf-8"), place, "measured", measured.model_dump())
    with TemporaryDirectory(prefix="voice-calibrate-") as folder:
        draft = Path(folder) / file.name
        draft.write_text(text, encoding="utf-8")
        blueprint.load(draft)  # before the operator's file is touched
    file.write_text(text, encoding="utf-8")
