"""A worker process from the perspective of the main process."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from voice_whisper.backends.base import Role
from voice_whisper.memory import SlotMemory
from voice_whisper.messages import BatchReply, BatchRequest, FailedMessage, ReadyMessage

START_TIMEOUT_S = 1800
"""Timeout for starting a worker. The first start downloads or compiles the weights."""

BATCH_TIMEOUT_S = 60
"""Timeout for a batch."""

STOP_TIMEOUT_S = 5

MAX_REPLY_BYTES = 4 << 20
"""Maximum size of a reply. Eight windows of 30 s with ten words per second and 150 bytes per word have 360 KB, which
exceeds asyncio's default of 64 KiB. The rest is a reserve for the long words of a model that repeats itself."""

_START_MESSAGE_ADAPTER: TypeAdapter[ReadyMessage | FailedMessage] = TypeAdapter(ReadyMessage | FailedMessage)
T = TypeVar("T")


class WorkerDiedError(Exception):
    """The process has exited, or hung and was killed."""


class WorkerStartError(Exception):
    """The process could not load its model. The message contains the reason."""


class WorkerProcess:
    """A worker process.

    Attributes:
        model: The worker's description of the model.
    """

    model: ReadyMessage

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ended = asyncio.ensure_future(process.wait())

    @property
    def pid(self) -> int:
        return self._process.pid

    @classmethod
    async def start(cls, role: Role, memory: SlotMemory, slots: int, *, threads: int, number: int) -> "WorkerProcess":
        """Start a worker, and wait until it has loaded its model.

        Args:
            number: Index among the workers of its role, from 0, which determines the worker's GPU.

        Raises:
            WorkerDiedError: The worker exited without a message.
            WorkerStartError: The worker reported why it cannot start.
        """
        arguments = [role.value, str(memory.descriptor), str(slots), str(threads), str(number)]
        worker = cls(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "voice_whisper.worker", *arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=MAX_REPLY_BYTES,
                pass_fds=(memory.descriptor,),
                start_new_session=True,  # the main process handles Ctrl-C
            )
        )
        try:
            worker.model = _parse_start_message(await worker._read_line(START_TIMEOUT_S))
        except BaseException:
            await worker.stop()
            raise
        return worker

    async def send_request(self, request: BatchRequest) -> BatchReply:
        """Send a request, and return the worker's response.

        Raises:
            WorkerDiedError: The process exited, or was killed because its response was invalid.
        """
        try:
            self._stdin.write(request.model_dump_json().encode() + b"\n")
            await self._stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise WorkerDiedError(f"worker {self.pid} is gone") from None
        try:
            return BatchReply.model_validate_json(await self._read_line(BATCH_TIMEOUT_S))
        except ValidationError as error:
            self._process.kill()
            # Its input may contain words of a caller, which are not logged.
            problem = error.errors(include_input=False, include_url=False)[0]["msg"]
            raise WorkerDiedError(f"worker {self.pid} sent an invalid reply and was killed: {problem}") from None

    async def wait_while_alive(self, waiting: Coroutine[Any, Any, T]) -> T:
        """Wait for an operation while the process is alive, and return the operation's result.

        Raises:
            WorkerDiedError: The process exited first.
        """
        task = asyncio.ensure_future(waiting)
        try:
            await asyncio.wait({task, self._ended}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise WorkerDiedError(f"worker {self.pid} ended with {self._process.returncode}")
            return task.result()
        finally:
            task.cancel()

    async def stop(self) -> None:
        """Stop the process, gracefully if it still responds."""
        if self._process.returncode is None:
            self._stdin.close()
            try:
                await asyncio.wait_for(asyncio.shield(self._ended), STOP_TIMEOUT_S)
            except TimeoutError:
                self._process.kill()
        await self._ended

    @property
    def _stdin(self) -> asyncio.StreamWriter:
        if self._process.stdin is None:
            raise RuntimeError("the worker was started without a pipe")
        return self._process.stdin

    async def _read_line(self, timeout_s: float) -> bytes:
        if self._process.stdout is None:
            raise RuntimeError("the worker was started without a pipe")
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), timeout_s)
        except TimeoutError:
            self._process.kill()
            raise WorkerDiedError(f"worker {self.pid} did not answer for {timeout_s} s and was killed") from None
        except ValueError:  # the line is longer than the limit, and the rest of it would be read as the next reply
            self._process.kill()
            raise WorkerDiedError(f"worker {self.pid} sent over {MAX_REPLY_BYTES} bytes and was killed") from None
        if not line.endswith(b"\n"):
            raise WorkerDiedError(f"worker {self.pid} is gone")
        return line


def _parse_start_message(first_words: bytes) -> ReadyMessage:
    words = _START_MESSAGE_ADAPTER.validate_json(first_words)
    if isinstance(words, FailedMessage):
        raise WorkerStartError(words.reason)
    return words
