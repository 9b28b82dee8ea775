"""`make demo-agent`: a caller that asks the agent questions aloud, and interrupts an answer.

The demo prints the duration of each stage of a turn.
"""

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

from voice_ops.demo.agent.caller import SAMPLE_RATE_HZ, Caller, Samples
from voice_ops.demo.agent.services import AgentPath, fetch_text
from voice_ops.demo.agent.vllm import ChatServer, serve_vllm
from voice_ops.demo.command import calculate_word_error_rate, find_weights
from voice_ops.demo.services import DATA_PLANE_BUILD, LOOPBACK, ServiceError
from voice_ops.demo.web import PageServer
from voice_ops.exits import FAILED, INTERRUPTED
from voice_ops.findings import load_checked_deployment
from voice_ops.output import create_exit, create_table, err, format_markup, out
from voice_ops.progress import Progress
from voice_ops.provenance import describe_machine, get_current_commit
from voice_runtime.store import connect

QUESTIONS = (
    "What is the capital of France?",
    "How many days are there in a week?",
    "What color is the sky?",
    "Who wrote Romeo and Juliet?",
    "What is the largest animal on earth?",
    "How many legs does a spider have?",
    "What do bees make?",
    "Which planet do we live on?",
    "What is the opposite of hot?",
)
LONG_STORY_PROMPT = "Please tell me a long story about a dog and a cat."
INTERRUPTION_TEXT = "Stop please, that is enough."
INTERRUPT_AFTER_S = 0.5
MAX_WORD_ERROR_RATE = 0.4
"""Maximum word error rate of an answer that one small model speaks and another transcribes: "France is" becomes
"Francis". For an unrelated answer, almost all words differ."""
MAX_INACCURATE_FRACTION = 0.3
"""Maximum share of answers above that rate. A small language model sometimes invents names or uses other scripts, which
no small ASR model transcribes correctly."""


@dataclass(frozen=True)
class LatencyGoal:
    """Maximum for a measured duration in a conversation, with the demo's models on two idle cores.

    Attributes:
        max_ms: The limit, milliseconds.
    """

    name: str
    max_ms: int


MEDIAN_GOAL, P95_GOAL, BARGE_IN_GOAL = GOALS = (
    LatencyGoal("voice to voice, p50", 600),
    LatencyGoal("voice to voice, p95", 900),
    LatencyGoal("onset of an interruption to silence", 200),
)


@dataclass(frozen=True)
class Turn:
    """A question and its answer.

    Attributes:
        text: The answer in the agent's history.
        caller_transcript: Whisper's transcript of the audio that the caller received.
    """

    text: str
    caller_transcript: str

    @property
    def error_rate(self) -> float:
        """Share of words that differ."""
        return calculate_word_error_rate(self.text, self.caller_transcript)


@dataclass(frozen=True)
class ConversationResult:
    """Results of a conversation.

    Attributes:
        stages_ms: Durations of the stages of each turn.
        barge_in_latency_s: Time for which an answer remained audible after the onset of an interruption, seconds.
        token_counts: Number of ``tokens`` and of ``cached`` tokens in each request to the language model.
    """

    turns: list[Turn]
    stages_ms: list[dict[str, int]]
    barge_in_latency_s: float
    token_counts: list[dict[str, int]]


def demo(
    page: Annotated[bool, typer.Option("--page", help="Serve a web page to talk to the agent, until Ctrl-C.")] = False,
    engines: Annotated[
        Path | None,
        typer.Option("--engines", metavar="FILE", help="Serve the language model with vLLM and this file's flags."),
    ] = None,
) -> None:
    """Run a spoken conversation on this machine: Whisper tiny.en, SmolLM2-135M and a Piper voice.

    Prints questions and answers, the duration of each stage of a turn, and the goals with the measured values. Exits
    with 1 if a goal is missed, or if the transcript of an answer does not match it.

    Example: make demo-agent
    """
    try:
        with tempfile.TemporaryDirectory(prefix="voice-agent-") as folder:
            chat = (
                contextlib.nullcontext()
                if engines is None
                else serve_vllm(load_checked_deployment(engines), Path(folder))
            )
            with chat as server, start_services(Path(folder), server) as path:
                missed_goals = report_result(asyncio.run(run_conversation(path, QUESTIONS)))
                if page:
                    _serve_page(path)
                elif missed_goals:
                    raise create_exit(f"missed: {', '.join(goal.name for goal in missed_goals)}", FAILED)
    except (ServiceError, ConnectionError, TimeoutError) as error:
        raise create_exit(str(error) or "no answer came in time", FAILED) from None
    except KeyboardInterrupt:
        raise create_exit("interrupted: everything is stopped", INTERRUPTED) from None


@contextlib.contextmanager
def start_services(folder: Path, chat: ChatServer | None = None) -> Iterator[AgentPath]:
    """Start all services, and stop them at the end of the context.

    Without ``chat``, the services include a language model.

    Raises:
        ServiceError: A service does not start.
    """
    data_plane = DATA_PLANE_BUILD if (DATA_PLANE_BUILD / "vad-dataplane").exists() else None
    with AgentPath(folder, find_weights(None), data_plane=data_plane) as path:
        with Progress(err).phase(f"store, gateway, VAD, Whisper, {'' if chat else 'SmolLM2, '}Piper, agent"):
            path.start_store().wait_until_ready()
            gateway = path.start_gateway()
            path.start_vad()
            path.start_engine()
            path.start_engines(chat)
            path.wait_until_ready()
            path.wait_for_capacity(gateway)
            path.start_agent(gateway).wait_until_ready()
        yield path


async def run_conversation(path: AgentPath, questions: Iterable[str]) -> ConversationResult:
    """Ask the agent questions aloud, listen to the answers, and interrupt the last one.

    Raises:
        ConnectionError: The agent closes the connection.
        TimeoutError: No answer arrived.
    """
    rate = int(fetch_text(f"http://{LOOPBACK}:{path.ports['speech']}/") or SAMPLE_RATE_HZ)
    *spoken_questions, story, objection = [
        resample_for_caller(path.synthesize(text), rate) for text in (*questions, LONG_STORY_PROMPT, INTERRUPTION_TEXT)
    ]
    store = connect(path.store_settings)
    answers: list[tuple[str, Samples]] = []
    async with Caller(f"ws://{LOOPBACK}:{path.ports['agent']}/v1/conversations") as caller:
        for number, question in enumerate(spoken_questions, start=1):

            async def is_answered(number: int = number) -> bool:
                return len(await read_conversation(store, caller.conversation)) == 2 * number

            answer_audio = await caller.ask_question(question, is_answered)
            answer_text = await read_conversation(store, caller.conversation)
            answers.append((answer_text[-1]["content"], answer_audio))
            out.print(
                format_markup("[dim]{}[/]\n{}", answer_text[-2]["content"], answer_text[-1]["content"]), soft_wrap=True
            )
        barge_in_latency_s = await caller.interrupt(story, objection, INTERRUPT_AFTER_S)
    await store.aclose()
    whisper = WhisperModel(str(path.model), device="cpu", compute_type="int8", cpu_threads=1)
    turns = [Turn(text, transcribe(whisper, answer_audio, caller.heard_rate)) for text, answer_audio in answers]
    return ConversationResult(turns, read_stage_durations(path), barge_in_latency_s, read_token_counts(path))


def read_stage_durations(path: AgentPath) -> list[dict[str, int]]:
    """Return the duration of each stage in each turn, in milliseconds, from the agent's log."""
    return [line["stages_ms"] for line in _read_log_lines(path, "turn")]


def read_token_counts(path: AgentPath) -> list[dict[str, int]]:
    """Return the token counts of each request to the language model from the agent's log."""
    return _read_log_lines(path, "prompt")


def _read_log_lines(path: AgentPath, message: str) -> list[dict[str, Any]]:
    lines = (path.folder / "agent.log").read_text(encoding="utf-8").splitlines()
    logged = [json.loads(line) for line in lines if line.startswith("{")]
    return [line for line in logged if line.get("message") == message]  # a metric has no message


def _serve_page(path: AgentPath) -> None:
    server = PageServer()
    server.start(agent=f"ws://{LOOPBACK}:{path.ports['agent']}")
    out.print(format_markup("open [bold]{}/agent.html[/] and talk; Ctrl-C ends", server.url))
    webbrowser.open(f"{server.url}/agent.html")
    try:
        signal.pause()
    except KeyboardInterrupt:
        print_stage_durations(read_stage_durations(path))
    finally:
        server.stop()


async def read_conversation(store: Redis, conversation: str) -> list[dict[str, str]]:
    """Return the messages in a conversation from the state store."""
    messages = store.lrange(f"conversation:{conversation}", 0, -1)
    return [json.loads(each) for each in await messages]


def resample_for_caller(pcm: bytes, rate: int) -> Samples:
    """Resample PCM16 from any rate to a caller's rate."""
    sentence = np.frombuffer(pcm, "<i2")
    return np.asarray(soxr.resample(sentence, rate, SAMPLE_RATE_HZ), np.int16)


def transcribe(whisper: WhisperModel, answer_audio: Samples, rate: int) -> str:
    """Transcribe PCM16 at any sample rate with Whisper."""
    audio = soxr.resample(answer_audio.astype(np.float32) / 32768, rate, SAMPLE_RATE_HZ)
    segments, _ = whisper.transcribe(audio, beam_size=1, without_timestamps=True)
    return " ".join(segment.text.strip() for segment in segments)


def report_result(result: ConversationResult) -> list[LatencyGoal]:
    """Print the measured durations next to the goals, and return the missed goals.

    Raises:
        ConnectionError: The transcripts of too many answers do not match the answers.
    """
    print_stage_durations(result.stages_ms)
    totals = [sum(stages.values()) for stages in result.stages_ms]
    measured = {
        MEDIAN_GOAL: statistics.median(totals),
        P95_GOAL: float(np.quantile(totals, 0.95, method="higher")),
        BARGE_IN_GOAL: result.barge_in_latency_s * 1000,
    }
    missed_goals = [goal for goal, duration_ms in measured.items() if duration_ms > goal.max_ms]
    table = create_table(
        "On two idle cores",
        [""],
        ["goal, ms", "measured, ms"],
        "",
        f"commit {get_current_commit()}, {describe_machine()}",
    )
    for goal, duration_ms in measured.items():
        table.add_row(
            goal.name, str(goal.max_ms), f"{duration_ms:.0f}", "missed" if goal in missed_goals else "reached"
        )
    out.print(table)
    cached_tokens, tokens = (
        sum(each[field_name] for each in result.token_counts) for field_name in ("cached", "tokens")
    )
    out.print(f"in the language model's cache: {cached_tokens / tokens:.0%} of {tokens} prompt tokens")
    inaccurate_turns = [turn for turn in result.turns if turn.error_rate > MAX_WORD_ERROR_RATE]
    for turn in inaccurate_turns:
        out.print(f"spoken: {turn.text}\n  transcribed: {turn.caller_transcript}")
    if len(inaccurate_turns) > len(result.turns) * MAX_INACCURATE_FRACTION:
        raise ConnectionError(
            f"{len(inaccurate_turns)} of {len(result.turns)} answers were transcribed as something else"
        )
    return missed_goals


def print_stage_durations(turns: list[dict[str, int]]) -> None:
    """Print the time by stage from the end of a question to the first sound of the answer."""
    totals = [sum(stages.values()) for stages in turns]
    names = list(dict.fromkeys(name for stages in turns for name in stages))
    title = f"From the end of the question to the first sound, {len(turns)} turns"
    table = create_table(title, ["part of a turn"], ["median, ms", "share"])
    for name in names:
        duration_ms = statistics.median(stages.get(name, 0) for stages in turns)
        share = sum(stages.get(name, 0) for stages in turns) / max(sum(totals), 1)
        table.add_row(name.replace("_", " "), f"{duration_ms:.0f}", f"{share:.0%}")
    out.print(table)
