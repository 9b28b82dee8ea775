"""`voice loadtest`: put an OpenAI-compatible endpoint under load and report what its callers would have seen."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ops.call.access import Auth
from ops.call.recording import RecordingError
from ops.exits import FAILED, INTERRUPTED, REFUSED
from ops.loadtest import options
from ops.loadtest.drivers import Api
from ops.loadtest.inputs import PASSAGE
from ops.loadtest.options import OptionError
from ops.loadtest.price import PriceError
from ops.loadtest.report import Report
from ops.loadtest.scenarios import SOURCE
from ops.loadtest.session import LoadTest, LoadTestError
from ops.loadtest.tables import comparison_grid, markdown, results_grid
from ops.options import Json
from ops.output import err, out, print_json, stop
from ops.progress import Progress

Option = typer.Option


def loadtest(  # noqa: PLR0917  typer's parameters have names
    url: Annotated[str, typer.Argument(metavar="URL", help="Endpoint, such as http://localhost:8000.")],
    api: Annotated[Api | None, Option(help="What to drive; a scenario knows it.", show_default=False)] = None,
    model: Annotated[str, Option(help="Model; the only one served, by default.", show_default=False)] = "",
    scenario: Annotated[str | None, Option(help=f"table-7 or table-8, beside its published figures: {SOURCE}.")] = None,
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
    names: Annotated[str | None, Option(help="What to call the two, such as tuned,baseline.")] = None,
    rounds: Annotated[int, Option(min=2, help="Times that the two change places.")] = 6,
    instance_type: Annotated[str | None, Option(help="What the endpoint runs on, for the cost.")] = None,
    region: Annotated[str | None, Option(help="Region of its price; the catalogue's first.")] = None,
    price: Annotated[float | None, Option("--usd-per-hour", min=0, help="Its price, if not in the catalogue.")] = None,
    gpus: Annotated[int, Option(min=1, help="GPUs or other accelerators behind the endpoint.")] = 1,
    auth: Annotated[Auth | None, Option(help="For session: authorizer of the deployment.", show_default=False)] = None,
    api_key_env: Annotated[str | None, Option(metavar="NAME", help="Variable that holds the key or token.")] = None,
    timeout: Annotated[float, Option(min=0.1, help="Longest wait for a whole answer, s.")] = 120.0,
    warmup: Annotated[int, Option(min=1, help="Requests before the first load that do not count.")] = 2,
    seed: Annotated[int, Option(min=0, help="Of the arrivals and of the intervals.")] = 0,
    output: Annotated[Path | None, Option(metavar="DIR", help="Folder for JSON, Markdown and plots.")] = None,
    as_json: Json = False,
) -> None:
    """Put an endpoint under load: latency, throughput, starved streams, goodput, cost.

    It speaks the APIs of OpenAI. Latency counts from when a request should have started, so a stalled endpoint
    cannot hide (coordinated omission). With --baseline both endpoints are loaded in turn and differences come with
    an interval. The API `session` is this platform's own: URL is then that of a gateway. With `conversation` it is an
    agent's, and `turn` is the time from a question's end to the first sound of its answer.

    Example: voice loadtest http://localhost:8000 --api speech --concurrency 1,16,32 --output report
    """
    try:
        shown = options.scenario_of(scenario)
        driven = options.api_of(api, scenario, model=model, baseline=baseline)
        limits = options.slo_of(slo or [], shown)
        usd, how = options.price_of(price, instance_type, region, gpus)
        measured, other = options.names_of(names, shown)
        places = [(measured, "URL", url), *([(other, "--baseline", baseline)] if baseline else [])]
        rounds = rounds if baseline else 1
        loads = options.loads_of(concurrency, rate, shown)
        spoken = f"{text or f'passages of {len(PASSAGE)} characters'}" + (
            f", voice of {reference}" if reference else ""
        )
        work = LoadTest(
            api=driven,
            endpoints=[options.endpoint_of(*place, driven, model, body, auth, api_key_env) for place in places],
            driver=options.driver_maker(
                driven,
                audio=audio or [],
                text=text,
                reference=reference,
                sample_rate=sample_rate,
                scenario=shown,
            ),
            loads={load: options.requests_of(requests, load, rounds) for load in loads},
            slo=limits,
            gpus=gpus,
            usd_per_hour=usd,
            scenario=shown,
            rounds=rounds,
            warmup=warmup,
            timeout_s=timeout,
            seed=seed,
            setup={
                "input": ", ".join(map(str, audio or [])) or spoken,
                "further fields": body,
                "SLO": ", ".join(f"{name} at most {limit:g}" for name, limit in limits.items()) or "none",
                "price": how,
                "GPUs": str(gpus),
                "seed": str(seed),
            },
        )
        if output:
            output.mkdir(parents=True, exist_ok=True)
    except (OptionError, RecordingError, PriceError) as error:
        raise stop(str(error), REFUSED) from None
    except OSError as error:
        raise stop(f"--output {output}: {error.strerror}", REFUSED) from None
    try:
        report = asyncio.run(work.run(Progress(err)))
    except LoadTestError as error:
        raise stop(str(error), FAILED) from None
    except KeyboardInterrupt:
        raise stop("interrupted: nothing was reported", INTERRUPTED) from None
    _show(report, output, as_json=as_json)
    if report.failed:
        raise typer.Exit(FAILED)


def _show(report: Report, output: Path | None, *, as_json: bool) -> None:
    if as_json:
        print_json(report.as_dict())
    else:
        out.print(results_grid(report).rich())
        for comparison in report.comparisons:
            out.print(comparison_grid(report, comparison).rich())
    for doubt in report.doubts:
        err.print(f"[yellow]![/] {escape(doubt)}", soft_wrap=True)
    if output:
        from ops.loadtest.plots import save  # noqa: PLC0415  matplotlib would slow down every other command

        plots = save(report, output)
        (output / "report.json").write_text(json.dumps(report.as_dict(), indent=2) + "\n", encoding="utf-8")
        (output / "report.md").write_text(markdown(report, plots), encoding="utf-8")
        err.print(escape(f"written to {output}: report.md, report.json, {', '.join(plots)}"), soft_wrap=True)
