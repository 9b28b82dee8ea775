"""`voice loadtest`: load test an OpenAI-compatible endpoint, and report what its callers would have observed."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer

from voice_ops.call.access import AuthorizerType
from voice_ops.call.recording import RecordingError
from voice_ops.exits import FAILED, INTERRUPTED, INVALID_INPUT
from voice_ops.loadtest import options
from voice_ops.loadtest.drivers import Api
from voice_ops.loadtest.inputs import PASSAGE
from voice_ops.loadtest.options import OptionError
from voice_ops.loadtest.price import PriceError
from voice_ops.loadtest.report import LoadTestReport
from voice_ops.loadtest.session import LoadTest, LoadTestError
from voice_ops.loadtest.tables import create_comparison_table, create_results_table, format_markdown
from voice_ops.options import JsonOption
from voice_ops.output import create_exit, err, format_markup, out, print_json
from voice_ops.progress import Progress

Option = typer.Option


def loadtest(  # noqa: PLR0917  Typer passes parameters by name
    url: Annotated[str, typer.Argument(metavar="URL", help="Base URL of the endpoint, such as http://localhost:8000.")],
    api: Annotated[Api | None, Option(help="API to test. Optional with --scenario.", show_default=False)] = None,
    model: Annotated[
        str, Option(help="Model to request. Optional if the endpoint serves only one.", show_default=False)
    ] = "",
    scenario: Annotated[
        str | None,
        Option(
            help="table-7 or table-8: compare with the published results in that table of arXiv 2603.25551, measured "
            "on one H200."
        ),
    ] = None,
    concurrency: Annotated[str | None, Option(help="Closed loop: concurrent requests, such as 1,16,32,500.")] = None,
    rate: Annotated[
        str | None, Option(help="Open loop: requests per second with Poisson arrivals, such as 2,5.")
    ] = None,
    requests: Annotated[
        int | None, Option(min=1, help="Requests per load level. Default: 4 per concurrent request, at least 60.")
    ] = None,
    audio: Annotated[list[Path] | None, Option(help="Recording to transcribe, WAV; repeat for more.")] = None,
    text: Annotated[
        Path | None, Option(help="Text file to speak or to use as the prompt. Default: a passage of 500 characters.")
    ] = None,
    reference: Annotated[
        Path | None, Option(help="Recording of the voice to clone, WAV. Default: a voice of the endpoint.")
    ] = None,
    sample_rate: Annotated[int, Option(min=1, help="Sample rate of the generated speech, Hz.")] = 24_000,
    body: Annotated[
        str, Option(help='Additional fields of each request, as a JSON object such as {"voice": ...}.')
    ] = "{}",
    slo: Annotated[
        list[str] | None, Option(help="Service level for goodput as METRIC:LIMIT, such as first:500; repeat for more.")
    ] = None,
    baseline: Annotated[str | None, Option(metavar="URL", help="Base URL of an endpoint to compare with.")] = None,
    names: Annotated[str | None, Option(help="Labels of the two endpoints, such as tuned,baseline.")] = None,
    rounds: Annotated[int, Option(min=2, help="Number of rounds; each tests both endpoints.")] = 6,
    instance_type: Annotated[str | None, Option(help="Instance type of the endpoint, for the cost.")] = None,
    region: Annotated[str | None, Option(help="Region of the price. Default: the first one in the catalogue.")] = None,
    price: Annotated[
        float | None, Option("--usd-per-hour", min=0, help="Price of the instance, if it is not in the catalogue.")
    ] = None,
    gpus: Annotated[int, Option(min=1, help="GPUs or other accelerators of the endpoint.")] = 1,
    auth: Annotated[
        AuthorizerType | None, Option(help="Authorizer of the deployment, for the API `session`.", show_default=False)
    ] = None,
    api_key_env: Annotated[
        str | None, Option(metavar="NAME", help="Environment variable that contains the key or token.")
    ] = None,
    timeout: Annotated[float, Option(min=0.1, help="Timeout of a complete response, s.")] = 120.0,
    warmup: Annotated[
        int, Option(min=1, help="Warm-up requests before the first load level, which are not counted.")
    ] = 2,
    seed: Annotated[int, Option(min=0, help="Random seed for arrival times and confidence intervals.")] = 0,
    output: Annotated[Path | None, Option(metavar="DIR", help="Folder for JSON, Markdown and plots.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Load test an endpoint: latency, throughput, starved streams, goodput and cost.

    Supports OpenAI-compatible APIs, this platform's session API (`session`, with the URL of a gateway) and agents
    (`conversation`, where `turn` is the time from the end of a question to the first sound of the answer). Latency is
    measured from the scheduled start of a request, which avoids coordinated omission. With --baseline both endpoints
    are tested in turn, and differences have confidence intervals.

    Example: voice loadtest http://localhost:8000 --api speech --concurrency 1,16,32 --output report
    """
    try:
        scenario_values = options.parse_scenario(scenario)
        tested_api = options.select_api(api, scenario, model=model, baseline=baseline)
        limits = options.parse_slo(slo or [], scenario_values)
        usd, price_source = options.select_price(price, instance_type, region, gpus)
        measured, other = options.parse_endpoint_names(names, scenario_values)
        endpoint_urls = [(measured, "URL", url), *([(other, "--baseline", baseline)] if baseline else [])]
        rounds = rounds if baseline else 1
        loads = options.parse_loads(concurrency, rate, scenario_values)
        spoken = f"{text or f'passages of {len(PASSAGE)} characters'}" + (
            f", voice of {reference}" if reference else ""
        )
        work = LoadTest(
            api=tested_api,
            endpoints=[
                options.parse_endpoint(*parsed_url, tested_api, model, body, auth, api_key_env)
                for parsed_url in endpoint_urls
            ],
            create_driver=options.create_driver_factory(
                tested_api,
                audio=audio or [],
                text=text,
                reference=reference,
                sample_rate=sample_rate,
                scenario=scenario_values,
            ),
            requests_by_load={load: options.calculate_request_count(requests, load, rounds) for load in loads},
            slo=limits,
            gpu_count=gpus,
            usd_per_hour=usd,
            scenario=scenario_values,
            round_count=rounds,
            warmup_requests=warmup,
            timeout_s=timeout,
            seed=seed,
            setup={
                "input": ", ".join(map(str, audio or [])) or spoken,
                "further fields": body,
                "SLO": ", ".join(f"{name} at most {limit:g}" for name, limit in limits.items()) or "none",
                "price": price_source,
                "GPUs": str(gpus),
                "seed": str(seed),
            },
        )
        if output:
            output.mkdir(parents=True, exist_ok=True)
    except (OptionError, RecordingError, PriceError) as error:
        raise create_exit(str(error), INVALID_INPUT) from None
    except OSError as error:
        raise create_exit(f"--output {output}: {error.strerror}", INVALID_INPUT) from None
    try:
        report = asyncio.run(work.run(Progress(err)))
    except LoadTestError as error:
        raise create_exit(str(error), FAILED) from None
    except KeyboardInterrupt:
        raise create_exit("interrupted: no report was written", INTERRUPTED) from None
    _print_report(report, output, as_json=as_json)
    if report.has_failed_load:
        raise typer.Exit(FAILED)


def _print_report(report: LoadTestReport, output: Path | None, *, as_json: bool) -> None:
    if as_json:
        print_json(report.as_dict())
    else:
        out.print(create_results_table(report).to_table())
        for comparison in report.comparisons:
            out.print(create_comparison_table(report, comparison).to_table())
    for caveat in report.warnings:
        err.print(format_markup("[yellow]![/] {}", caveat), soft_wrap=True)
    if output:
        from voice_ops.loadtest.plots import save_plots  # noqa: PLC0415  matplotlib would slow down every other command

        plots = save_plots(report, output)
        (output / "report.json").write_text(json.dumps(report.as_dict(), indent=2) + "\n", encoding="utf-8")
        (output / "report.md").write_text(format_markdown(report, plots), encoding="utf-8")
        err.print(f"written to {output}: report.md, report.json, {', '.join(plots)}", soft_wrap=True)
