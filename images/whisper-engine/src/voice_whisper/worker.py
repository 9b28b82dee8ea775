"""A worker process for prefill, decode or both.

``WorkerProcess`` starts it with ``python -m voice_whisper.worker ROLE DESCRIPTOR SLOTS THREADS NUMBER``. The process
exits when its input ends.
"""

import contextlib
import os
import sys
import time
from io import FileIO
from typing import cast

import numpy as np

from voice_whisper.backends.base import Backend, HiddenStates, ModelLoadError, Role, load_backend
from voice_whisper.memory import SlotMemory
from voice_whisper.messages import BatchReply, BatchRequest, FailedMessage, ReadyMessage, StatesLayout
from voice_whisper.settings import ModelSettings


def main() -> int:
    """Process requests until the input ends, and return the exit code, which is 1 if the model cannot be loaded."""
    role, descriptor, slots, threads, number = Role(sys.argv[1]), *map(int, sys.argv[2:])
    replies = _redirect_stdout()
    memory = SlotMemory(slots, descriptor)
    try:
        backend = load_backend(ModelSettings(), role, threads, number)
    except ModelLoadError as error:
        _send_line(replies, FailedMessage(reason=str(error)).model_dump_json())
        return 1
    ready = ReadyMessage(
        bins=backend.bins, languages=backend.languages, supports_batch_encoding=backend.supports_batch_encoding
    )
    _send_line(replies, ready.model_dump_json())
    for line in sys.stdin:
        _send_line(
            replies, process_batch(role, backend, memory, BatchRequest.model_validate_json(line)).model_dump_json()
        )
    return 0


def process_batch(role: Role, backend: Backend, memory: SlotMemory, request: BatchRequest) -> BatchReply:
    """Process a batch according to the role: prefill, decode, or both."""
    durations_ms: dict[str, float] = {}
    started_at = time.perf_counter()
    if role is Role.DECODER:
        hidden = _load_hidden_states(memory, request)
    else:
        features = [memory.get_features_view(slot, request.bins, request.rows) for slot in request.slots]
        hidden = backend.encode(np.stack(features))
        states = _store_hidden_states(memory, request, hidden) if role is Role.ENCODER else None
        durations_ms["encode"] = 1000 * (time.perf_counter() - started_at)
        if states:
            return BatchReply(states=states, stages_ms=durations_ms)
        started_at = time.perf_counter()
    texts = backend.decode(hidden, request.languages, request.audio_rows, request.prompt)
    durations_ms["decode"] = 1000 * (time.perf_counter() - started_at)
    return BatchReply(texts=texts, stages_ms=durations_ms)


def _store_hidden_states(memory: SlotMemory, request: BatchRequest, hidden: HiddenStates) -> StatesLayout:
    """Store hidden states in their slots."""
    states = StatesLayout(shape=hidden.shape[1:], dtype=hidden.dtype.name)
    for slot, result in zip(request.slots, hidden, strict=True):
        memory.get_hidden_states_view(slot, states.shape, states.dtype)[:] = result
    return states


def _load_hidden_states(memory: SlotMemory, request: BatchRequest) -> HiddenStates:
    states = request.states
    if states is None:
        raise ValueError("a batch came to decode before prefill")
    return cast(
        "HiddenStates",
        np.stack([memory.get_hidden_states_view(slot, states.shape, states.dtype) for slot in request.slots]),
    )


def _redirect_stdout() -> FileIO:
    """Return a file for messages to the main process, and redirect library output to stderr."""
    replies = FileIO(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return replies


def _send_line(replies: FileIO, line: str) -> None:
    replies.write(line.encode() + b"\n")


if __name__ == "__main__":
    # If the main process has exited first, the response is not needed.
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
