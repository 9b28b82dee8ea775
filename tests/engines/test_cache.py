"""Persistence of the cache: cache hits of a conversation after a rollout and after a restart of the cache.

A replaced pod has a new engine and cache, and loses its disk; engines and caches that the kubelet restarts keep it.
"""

import os
import platform
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.engines.callers import EXTERNAL_HITS, HITS, Caller, Growth, tone, user_message
from tests.engines.conftest import audio_service
from voice_blueprint.azure.contract import ENGINE_HTTP, LMCACHE, LMCACHE_HTTP
from voice_blueprint.engines.launch.services import AggregatedProcesses, create_aggregated_processes
from voice_blueprint.engines.sizing.fit import LMCACHE_CHUNK_TOKENS
from voice_blueprint.file.model.azure import Azure
from voice_sandbox.engines.processes import LOOPBACK, ROOT, EngineProcess, run_processes
from voice_sandbox.engines.substitutions import CommandRenderer
from voice_sandbox.loopback import find_free_port

BLOCK_TOKENS = 128
"""Block size of vLLM's KV cache on a CPU; a chunk is two of them."""
ANSWER_TOKENS = 24


@dataclass(frozen=True)
class Turn:
    """Cached tokens of a turn.

    Attributes:
        shared: Length of the common prefix with the previous prompt.
        in_engine: Tokens in the engine's cache.
        from_cache: Tokens loaded from LMCache.
    """

    prompt: int
    shared: int
    in_engine: int
    from_cache: int

    def share_of(self, unit: int) -> float:
        """Return the cached share of the common prefix in complete blocks or chunks."""
        return (self.in_engine + self.from_cache) / (self.shared // unit * unit)


@dataclass
class Conversation:
    """The turns of one user, the first with a recording."""

    model: str
    messages: list[dict[str, Any]] = field(default_factory=list)
    tokens: int = 0

    def turn(self, engine: EngineProcess, words: str) -> Turn:
        """Send the next question, and keep the answer."""
        recordings = () if self.messages else (tone(440, 4),)
        self.messages.append(user_message(f"{words} " * 100, *recordings))
        growth = Growth(engine)
        answer = Caller(engine.url, self.model).chat(self.messages, ANSWER_TOKENS).raise_for_status().json()
        grown = growth.take()
        self.messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        before, self.tokens = self.tokens, answer["usage"]["prompt_tokens"]
        return Turn(self.tokens, before, grown[HITS], grown[EXTERNAL_HITS])

    def once_more(self, engine: EngineProcess) -> Turn:
        """Send the last question again."""
        growth = Growth(engine)
        Caller(engine.url, self.model).chat(self.messages[:-1], 1).raise_for_status()
        grown = growth.take()
        return Turn(self.tokens, self.tokens, grown[HITS], grown[EXTERNAL_HITS])


class Lives:
    """An engine and its LMCache server, each replaceable without the other."""

    def __init__(self, launch: AggregatedProcesses, folder: Path, models: Path) -> None:
        assert launch.lmcache
        self._folder = folder
        ports = {port.number: find_free_port() for port in (ENGINE_HTTP, LMCACHE, LMCACHE_HTTP)}
        self._substitutes = CommandRenderer(folder, models, ports)
        self._engine = self._substitutes.render_process(launch.engine)
        self.cache = EngineProcess(
            "lmcache", self._substitutes.render_process(launch.lmcache), folder,
            f"http://{LOOPBACK}:{ports[LMCACHE_HTTP.number]}", "/healthcheck",
        )  # fmt: skip
        self.model = launch.engine.model.name
        (folder / "nvme").mkdir()

    @contextmanager
    def engine(self, name: str) -> Iterator[EngineProcess]:
        """Start the engine, and stop it like a rollout."""
        with run_processes(self.made(name)) as (engine,):
            yield engine

    def made(self, name: str, *more: str, **variables: str) -> EngineProcess:
        """Create the engine on a separate port, without starting it.

        Args:
            more: Further flags.
            variables: Changed environment variables.
        """
        port, old = find_free_port(), str(self._substitutes.ports[ENGINE_HTTP.number])
        argv = [str(port) if each == old else each for each in self._engine.argv] + list(more)
        process = replace(self._engine, argv=argv, environment=self._engine.environment | variables)
        return EngineProcess(name, process, self._folder, f"http://{LOOPBACK}:{port}")

    def restart_cache(self, chunk_tokens: int = LMCACHE_CHUNK_TOKENS) -> None:
        """Stop the LMCache server, and start it on the same disk."""
        self.cache.terminate()
        self.cache.wait()
        argv = self.cache.process.argv
        argv[argv.index("--chunk-size") + 1] = str(chunk_tokens)
        self.cache.start().wait_until_ready()


@pytest.fixture(scope="module")
def lives(azure: Azure, models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    made = Lives(create_aggregated_processes(azure, audio_service(azure)), tmp_path_factory.mktemp("lives"), models)
    with run_processes(made.cache):
        yield made


ROWS: list[str] = []
TABLE_HEAD = "| Turn | Tokens | Also in the previous request | Cached by the engine | Cached by LMCache |"


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    """Print the cached shares in the form of ``docs/measurements.md``."""
    yield
    asked = ["git", "rev-parse", "--short=8", "HEAD"]
    commit = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603
    print(f"\n{time.strftime('%Y-%m-%d')}, commit {commit}, {os.cpu_count()} CPUs ({platform.machine()}):\n")
    print("\n".join([TABLE_HEAD, "|---" * TABLE_HEAD.count(" | ") + "|---|", *ROWS]))


def note(label: str, turn: Turn) -> None:
    ROWS.append(f"| {label} | {turn.prompt} | {turn.shared} | {turn.in_engine} | {turn.from_cache} |")


@pytest.fixture(scope="module")
def talk(lives: Lives) -> Conversation:
    return Conversation(lives.model)


def test_a_conversation_continues_during_a_rollout(lives: Lives, talk: Conversation) -> None:
    """Replace the engine after the third of five turns, without restarting LMCache."""
    with lives.engine("first") as engine:
        turns = [talk.turn(engine, words) for words in ("one", "two", "three")]
    with lives.engine("second") as engine:
        turns += [talk.turn(engine, words) for words in ("four", "five")]
    for number, turn in enumerate(turns, 1):
        note(f"{number}" + (", the first on a new engine" if number == 4 else ""), turn)
    assert turns[0].in_engine == turns[0].from_cache == 0
    for turn in (turns[1], turns[2], turns[4]):
        assert turn.share_of(BLOCK_TOKENS) >= 1
        assert turn.from_cache == 0
    assert turns[3].in_engine == 0
    assert turns[3].share_of(LMCACHE_CHUNK_TOKENS) == 1


def test_a_user_returns_after_engine_and_cache_have_restarted(lives: Lives, talk: Conversation) -> None:
    """The cache remains on the disk, and the result equals the engine's own computation."""
    lives.restart_cache()
    with lives.engine("third") as engine:
        turn = talk.turn(engine, "six")
        computed = Caller(engine.url, lives.model, salt="computed").chat(talk.messages[:-1], ANSWER_TOKENS)
    note("6, on a new engine and a new LMCache", turn)
    assert turn.in_engine == 0
    assert turn.share_of(LMCACHE_CHUNK_TOKENS) == 1
    assert talk.messages[-1]["content"] == computed.raise_for_status().json()["choices"][0]["message"]["content"]


def test_hash_seed_and_number_type_are_not_part_of_a_chunk_key(lives: Lives, talk: Conversation) -> None:
    """Chunk keys of LMCache 0.5.6 depend neither on the hash seed nor on the number type.

    Its keys are blake3 hashes, which need no seed: a release that returns to Python's hashes fails here. A chunk of
    another type is found but cannot be read; the engine must compute it, and continue.
    """
    with run_processes(seeded := lives.made("seed", PYTHONHASHSEED="1")):
        found = talk.once_more(seeded)
    note("6 again, another hash seed", found)
    assert found.share_of(LMCACHE_CHUNK_TOKENS) == 1
    # Not in parallel: the server reads a model's chunks in the format of the engine that registered last.
    with run_processes(wider := lives.made("float32", "--dtype", "float32")):
        answers = [
            Caller(wider.url, lives.model, salt=salt).chat(talk.messages[:-1], ANSWER_TOKENS).raise_for_status().json()
            for salt in (None, "computed")
        ]
        assert wider.get_exit_code() is None
    read, computed = (each["choices"][0]["message"]["content"] for each in answers)
    assert read == computed
    assert "Failed to scatter" in wider.log.read_text(encoding="utf-8"), "it was never tried"


def test_chunks_of_another_size_are_cache_misses(lives: Lives, talk: Conversation) -> None:
    lives.restart_cache(LMCACHE_CHUNK_TOKENS // 2)
    with lives.engine("smaller") as engine:
        turn = talk.once_more(engine)
    note(f"6 again, chunks of {LMCACHE_CHUNK_TOKENS // 2}", turn)
    assert turn.from_cache == 0
