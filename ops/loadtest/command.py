"""`voice loadtest`: put an OpenAI-compatible endpoint under load and report what its callers would have seen."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ops.call.access import Auth
from ops.call.recording import RecordingError
from ops.exits import FAILED, INTERRUPTED, REFUSED
from ops.loadtest.drivers import Api
from ops.loadtest.inputs import PASSAGE
from ops.loadtest.options import OptionError, driver_of, endpoint_of, loads_of, requests_of, slo_of
from ops.loadtest.session import LoadTest, LoadTestError
from ops.loadtest.tables import comparison_table, results_table
from ops.options import Json
from ops.output import err, out, print_json, stop
from ops.progress import Progress

Option = typer.Option


def loadtest(  # noqa: PLR0917  typer's parameters have names
    url: Annotated[str, typer.Argument(metavar="URL", help="Endpoint, such as http://localhost:8000.")],
    api: Annotated[Api, Option(help="What to drive.")],
    model: Annotated[str, Option(help="Model; the only one served, by default.", show_default=False)] = "",
    concurrency: Annotated[str | None, Option(help="Closed loop: requests at a time, such as 1,16,32,500.")] = None,
    rate: Annotated[str | None, Option(help="Open loop: Poisson arrivals in a second, such as 2,5.")] = None,
    requests: Annotated[int | None, Option(min=1, help="Requests for each load; 4 a caller, 60 at least.")] = None,
    audio: Annotated[list[Path] | None, Option(help="Recording to transcribe, WAV; repeat for more.")] = None,
    text: Annotated[Path | None, Option(help="Text to speak, or prompt; a passage of 500 characters.")] = None,
    reference: Annotated[Path | None, Option(help="Voice to speak in, WAV; else the endpoint's own.")] = None,
    sample_rate: Annotated[int, Option(min=1, help="Of the speech that comes back, Hz.")] = 24_000,
    body: Annotated[str, Option(help="JSON object of further fields, such as {'voice': ...}.")] = "{}",
    slo: Annotated[list[str] | None, Option(help="METRIC:LIMIT for goodput, such as first:500; repeat.")] = None,
    baseline: Annotated[str | None, Option(metavar="URL", help="Endpoint to compare with, in turn.")] = None,
    rounds: Annotated[int, Option(min=2, help="Times that the two change places.")] = 6,
    price: Annotated[float | None, Option("--usd-per-hour", min=0, help="Price of what runs the endpoint.")] = None,
    gpus: Annotated[int, Option(min=1, help="GPUs or other accelerators behind the endpoint.")] = 1,
    auth: Annotated[Auth | None, Option(help="For session: authorizer of the deployment.", show_default=False)] = None,
    api_key_env: Annotated[str | None, Option(metavar="NAME", help="Variable that holds the key or token.")] = None,
    timeout: Annotated[float, Option(min=0.1, help="Longest wait for a whole answer, s.")] = 120.0,
    warmup: Annotated[int, Option(min=1, help="Requests before the first load that do not count.")] = 2,
    seed: Annotated[int, Option(min=0, help="Of the arrivals and of the intervals.")] = 0,
    as_json: Json = False,
) -> None:
    """Put an endpoint under load: latency, throughput, starved streams, goodput, cost.

    It speaks the APIs of OpenAI. Latency counts from when a request should have started, so a stalled endpoint
    cannot hide (coordinated omission). With --baseline both endpoints are loaded in turn and differences come with
    an interval. The API `session` is this platform's own: URL is then that of a gateway.

    Example: voice loadtest http://localhost:8000 --api speech --concurrency 1,16,32
    """
    places = [("measured", "URL", url)] + ([("baseline", "--baseline", baseline)] if baseline else [])
    rounds = rounds if baseline else 1
    try:
        limits = slo_of(slo or [])
        work = LoadTest(
            api=api,
            endpoints=[endpoint_of(*place, api, model, body, auth, api_key_env) for place in places],
            driver=driver_of(api, audio or [], text, reference, sample_rate),
            loads={load: requests_of(requests, load, rounds) for load in loads_of(concurrency, rate)},
            slo=limits,
            gpus=gpus,
            usd_per_hour=price,
            rounds=rounds,
            warmup=warmup,
            timeout_s=timeout,
            seed=seed,
            setup={
                "input": ", ".join(map(str, audio or [])) or str(text or f"passages of {len(PASSAGE)} characters"),
                "voice": str(reference or "the endpoint's own"),
                "further fields": body,
                "SLO": ", ".join(f"{name} at most {limit:g}" for name, limit in limits.items()) or "none",
                "price": "not given" if price is None else f"{price:g} USD an hour",
                "GPUs": str(gpus),
                "seed": str(seed),
            },
        )
    except (OptionError, RecordingError) as error:
        raise stop(str(error), REFUSED) from None
    try:
        report = asyncio.run(work.run(Progress(err)))
    except LoadTestError as error:
        raise stop(str(error), FAILED) from None
    except KeyboardInterrupt:
        raise stop("interrupted: nothing was reported", INTERRUPTED) from None
    if as_json:
        print_json(report.as_dict())
    else:
        out.print(results_table(report))
        for comparison in report.comparisons:
            out.print(comparison_table(report, comparison))
    for doubt in report.doubts:
        err.print(f"[yellow]![/] {escape(doubt)}", soft_wrap=True)
    if report.failed:
        raise typer.Exit(FAILED)
