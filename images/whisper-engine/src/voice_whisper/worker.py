"""A worker process: prefill, decode or both, and nothing else.

Started by ``Process``: ``python -m voice_whisper.worker ROLE DESCRIPTOR SLOTS THREADS NUMBER``. It ends when its input
does.
"""

import contextlib
import os
import sys
import time
from io import FileIO
from typing import cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from voice_whisper.backends.base import Array, Backend, CannotLoadError, Role, load
from voice_whisper.memory import SharedSlots
from voice_whisper.messages import (
    DecodeReply,
    DecodeRequest,
    EncodeReply,
    EncodeRequest,
    Failed,
    Ready,
    States,
    TranscribeReply,
    TranscribeRequest,
)
from voice_whisper.settings import ModelSettings


def main() -> int:
    """Answer requests until there are none; exit with 1 when the model cannot be loaded."""
    role, descriptor, slots, threads, number = Role(sys.argv[1]), *map(int, sys.argv[2:])
    replies = _keep_stdout()
    memory = SharedSlots(slots, descriptor)
    try:
        backend = load(ModelSettings(), role, threads, number)
    except CannotLoadError as error:
        _say(replies, Failed(why=str(error)).model_dump_json())
        return 1
    _say(replies, Ready(bins=backend.bins, languages=backend.languages).model_dump_json())
    for line in sys.stdin:
        _say(replies, answer(role, backend, memory, line).model_dump_json())
    return 0


def answer(role: Role, backend: Backend, memory: SharedSlots, line: str) -> BaseModel:
    """Do what a line asks for, as far as it is this role's."""
    match role:
        case Role.ENCODER:
            return encode(backend, memory, EncodeRequest.model_validate_json(line))
        case Role.DECODER:
            return decode(backend, memory, DecodeRequest.model_validate_json(line))
        case Role.COLOCATED:
            return transcribe(backend, memory, TranscribeRequest.model_validate_json(line))


def encode(backend: Backend, memory: SharedSlots, request: EncodeRequest) -> EncodeReply:
    """Turn the features of slots into hidden states, in place."""
    since = time.perf_counter()
    hidden = backend.encode(_features(memory, request))
    states = States(shape=hidden.shape[1:], dtype=hidden.dtype.name)
    for slot, result in zip(request.slots, hidden, strict=True):
        memory.hidden(slot, states.shape, states.dtype)[:] = result
    return EncodeReply(states=states, took_ms=1000 * (time.perf_counter() - since))


def decode(backend: Backend, memory: SharedSlots, request: DecodeRequest) -> DecodeReply:
    """Turn the hidden states of slots into text."""
    since = time.perf_counter()
    shape, dtype = request.states.shape, request.states.dtype
    hidden = cast("Array", np.stack([memory.hidden(slot, shape, dtype) for slot in request.slots]))
    texts = backend.decode(hidden, request.languages)
    return DecodeReply(texts=texts, took_ms=1000 * (time.perf_counter() - since))


def transcribe(backend: Backend, memory: SharedSlots, request: TranscribeRequest) -> TranscribeReply:
    """Turn the features of slots into text; hidden states stay here."""
    since = time.perf_counter()
    hidden = backend.encode(_features(memory, request))
    encoded = time.perf_counter()
    texts = backend.decode(hidden, request.languages)
    decoded = time.perf_counter()
    return TranscribeReply(texts=texts, encode_ms=1000 * (encoded - since), decode_ms=1000 * (decoded - encoded))


def _features(memory: SharedSlots, request: EncodeRequest) -> NDArray[np.float32]:
    return np.stack([memory.features(slot, request.bins, request.rows) for slot in request.slots])


def _keep_stdout() -> FileIO:
    """Return the way to the main process, and lead what libraries print to stderr."""
    replies = FileIO(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return replies


def _say(replies: FileIO, line: str) -> None:
    replies.write(line.encode() + b"\n")


if __name__ == "__main__":
    # Where the main process has ended first, nobody waits for an answer.
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
