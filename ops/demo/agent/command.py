"""`make demo-agent`: ask aloud, hear an answer, interrupt it; then what each part of a turn took."""

import asyncio
import contextlib
import json
import signal
import statistics
import tempfile
import webbrowser
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import soxr
import typer
from faster_whisper import WhisperModel
from redis.asyncio import Redis
from rich.table import Table

from ops.demo.agent.caller import RATE, Caller, Samples
from ops.demo.agent.services import AgentPath, said_by
from ops.demo.command import weights, word_error_rate
from ops.demo.services import DATA_PLANE_BUILD, LOOPBACK, ServiceError
from ops.demo.web import PageServer
from ops.exits import FAILED, INTERRUPTED
from ops.output import err, out, stop
from ops.progress import Progress
from voice_runtime.store import connect

QUESTIONS = ("What is the capital of France?", "How many days are there in a week?", "What color is the sky?")
STORY = "Please tell me a long story about a dog and a cat."
OBJECTION = "Stop please, that is enough."
INTERRUPT_AFTER_S = 0.5
WORST_ERROR_RATE = 0.4
"""Of an answer's words, spoken by one small model and heard by another: "France is" becomes "Francis". Of another
answer's words almost all differ."""


@dataclass(frozen=True)
class Turn:
    """A question and its answer.

    Attributes:
        text: The answer as the agent remembers it.
        heard: The answer as Whisper hears what the caller got.
    """

    text: str
    heard: str

    @property
    def error_rate(self) -> float:
        """Share of the words that differ."""
        return word_error_rate(self.text, self.heard)


@dataclass(frozen=True)
class Talk:
    """What came of a conversation.

    Attributes:
        stages_ms: Of each turn, what its parts took.
        interrupted_s: How long an answer was audible after the onset of an interruption, seconds.
        prompts: Of each request to the language model its ``tokens``, and those of them that were ``cached``.
    """

    turns: list[Turn]
    stages_ms: list[dict[str, int]]
    interrupted_s: float
    prompts: list[dict[str, int]]


def demo(
    page: Annotated[bool, typer.Option("--page", help="Serve a page to talk to, until Ctrl-C.")] = False,
) -> None:
    """Hold a spoken conversation on this machine: Whisper tiny.en, SmolLM2-135M and a Piper voice.

    Prints questions and answers, what each part of a turn took, and how soon an interruption was obeyed. Exits with 1
    when an answer that was heard is not the one that was given.

    Example: make demo-agent
    """
    try:
        with tempfile.TemporaryDirectory(prefix="voice-agent-") as folder, started(Path(folder)) as path:
            report(asyncio.run(talk(path, QUESTIONS)))
            if page:
                _serve(path)
    except (ServiceError, ConnectionError, TimeoutError) as error:
        raise stop(str(error) or "no answer came in time", FAILED) from None
    except KeyboardInterrupt:
        raise stop("interrupted: everything is stopped", INTERRUPTED) from None


@contextlib.contextmanager
def started(folder: Path) -> Iterator[AgentPath]:
    """Start everything, and stop it.

    Raises:
        ServiceError: Something does not start.
    """
    built = DATA_PLANE_BUILD if (DATA_PLANE_BUILD / "vad-dataplane").exists() else None
    with AgentPath(folder, weights(None), data_plane=built) as path:
        with Progress(err).phase("store, gateway, VAD, Whisper, SmolLM2, Piper, agent"):
            path.start_store().wait_ready()
            gateway = path.start_gateway()
            path.start_vad()
            path.start_engine()
            path.start_engines()
            path.wait_ready()
            path.wait_for_capacity(gateway)
            path.start_agent(gateway).wait_ready()
        yield path


async def talk(path: AgentPath, questions: Iterable[str]) -> Talk:
    """Ask aloud, listen, and interrupt.

    Raises:
        ConnectionError: The agent hangs up.
        TimeoutError: No answer came.
    """
    rate = int(said_by(f"http://{LOOPBACK}:{path.ports['speech']}/") or RATE)
    *asked, story, objection = [at_caller(path.say(text), rate) for text in (*questions, STORY, OBJECTION)]
    store = connect(path.store_settings)
    answers: list[tuple[str, Samples]] = []
    async with Caller(f"ws://{LOOPBACK}:{path.ports['agent']}/v1/conversations") as caller:
        for number, question in enumerate(asked, start=1):

            async def is_answered(number: int = number) -> bool:
                return len(await remembered(store, caller.conversation)) == 2 * number

            heard = await caller.ask(question, is_answered)
            said = await remembered(store, caller.conversation)
            answers.append((said[-1]["content"], heard))
            out.print(f"[dim]{said[-2]['content']}[/]\n{said[-1]['content']}", soft_wrap=True)
        interrupted_s = await caller.interrupt(story, objection, INTERRUPT_AFTER_S)
    await store.aclose()
    whisper = WhisperModel(str(path.model), device="cpu", compute_type="int8", cpu_threads=1)
    turns = [Turn(text, transcript(whisper, heard, caller.heard_rate)) for text, heard in answers]
    return Talk(turns, stages_of(path), interrupted_s, prompts_of(path))


def stages_of(path: AgentPath) -> list[dict[str, int]]:
    """Return what the parts of each turn took, ms, as the agent logs it."""
    return [line["stages_ms"] for line in _logged(path, "turn")]


def prompts_of(path: AgentPath) -> list[dict[str, int]]:
    """Return what each request to the language model held, as the agent logs it."""
    return _logged(path, "prompt")


def _logged(path: AgentPath, message: str) -> list[dict[str, Any]]:
    lines = (path.folder / "agent.log").read_text(encoding="utf-8").splitlines()
    logged = [json.loads(line) for line in lines if line.startswith("{")]
    return [line for line in logged if line.get("message") == message]  # a metric has none


def _serve(path: AgentPath) -> None:
    server = PageServer()
    server.start(agent=f"ws://{LOOPBACK}:{path.ports['agent']}")
    out.print(f"open [bold]{server.url}/agent.html[/] and talk; Ctrl-C ends")
    webbrowser.open(f"{server.url}/agent.html")
    try:
        signal.pause()
    except KeyboardInterrupt:
        show(stages_of(path))
    finally:
        server.stop()


async def remembered(store: Redis, conversation: str) -> list[dict[str, str]]:
    """Return what was said in a conversation."""
    found = store.lrange(f"conversation:{conversation}", 0, -1)
    return [json.loads(each) for each in await found]


def at_caller(pcm: bytes, rate: int) -> Samples:
    """Return PCM16 of any rate as a caller speaks it."""
    spoken = np.frombuffer(pcm, "<i2")
    return np.asarray(soxr.resample(spoken, rate, RATE), np.int16)


def transcript(whisper: WhisperModel, heard: Samples, rate: int) -> str:
    """Return the words that it finds in PCM16 of any sample rate."""
    audio = soxr.resample(heard.astype(np.float32) / 32768, rate, RATE)
    segments, _ = whisper.transcribe(audio, beam_size=1, without_timestamps=True)
    return " ".join(segment.text.strip() for segment in segments)


def report(held: Talk) -> None:
    """Print what the turns took.

    Raises:
        ConnectionError: An answer that was heard is another than the one that was given.
    """
    show(held.stages_ms)
    out.print(f"interrupted: silent {held.interrupted_s * 1000:.0f} ms after the onset of speech")
    cached, tokens = (sum(each[what] for each in held.prompts) for what in ("cached", "tokens"))
    out.print(f"in the language model's cache: {cached / tokens:.0%} of {tokens} tokens that it was asked with")
    for turn in held.turns:
        if turn.error_rate > WORST_ERROR_RATE:
            raise ConnectionError(f"heard was {turn.heard!r}, said was {turn.text!r}")


def show(turns: list[dict[str, int]]) -> None:
    """Print what each part took of the time between a question's end and the answer's first sound."""
    totals = [sum(stages.values()) for stages in turns]
    names = list(dict.fromkeys(name for stages in turns for name in stages))
    table = Table("part of a turn", "median, ms", "share", title="From the end of the question to the first sound")
    for name in names:
        took = statistics.median(stages.get(name, 0) for stages in turns)
        share = sum(stages.get(name, 0) for stages in turns) / max(sum(totals), 1)
        table.add_row(name.replace("_", " "), f"{took:.0f}", f"{share:.0%}")
    out.print(table)
    if totals:
        worst = sorted(totals)[min(len(totals) - 1, round(0.95 * len(totals)))]
        out.print(f"voice to voice: p50 {statistics.median(totals):.0f} ms, p95 {worst} ms, of {len(totals)} turns")
