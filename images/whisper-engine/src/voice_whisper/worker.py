"""A worker process: prefill or decode, and nothing else.

Started by ``Process``: ``python -m voice_whisper.worker ROLE DESCRIPTOR SLOTS THREADS``. It ends when its input does.
"""

import os
import sys
import time
from typing import TextIO, cast

import numpy as np

from voice_whisper.backends.base import Array, Backend, CannotLoadError, Role, load
from voice_whisper.memory import SharedSlots
from voice_whisper.messages import DecodeReply, DecodeRequest, EncodeReply, EncodeRequest, Failed, Ready, States
from voice_whisper.settings import ModelSettings


def main() -> int:
    """Answer requests until there are none; exit with 1 when the model cannot be loaded."""
    role, descriptor, slots, threads = Role(sys.argv[1]), *map(int, sys.argv[2:])
    replies = _keep_stdout()
    memory = SharedSlots(slots, descriptor)
    try:
        backend = load(ModelSettings(), role, threads)
    except CannotLoadError as error:
        _say(replies, Failed(why=str(error)).model_dump_json())
        return 1
    _say(replies, Ready(bins=backend.bins).model_dump_json())
    for line in sys.stdin:
        if role is Role.ENCODER:
            reply = encode(backend, memory, EncodeRequest.model_validate_json(line)).model_dump_json()
        else:
            reply = decode(backend, memory, DecodeRequest.model_validate_json(line)).model_dump_json()
        _say(replies, reply)
    return 0


def encode(backend: Backend, memory: SharedSlots, request: EncodeRequest) -> EncodeReply:
    """Turn the features of slots into hidden states, in place."""
    since = time.perf_counter()
    features = [memory.features(slot, request.bins, request.rows) for slot in request.slots]
    hidden = backend.encode(np.stack(features))
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


def _keep_stdout() -> TextIO:
    """Return the way to the main process, and lead what libraries print to stderr."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return replies


def _say(replies: TextIO, line: str) -> None:
    replies.write(line + "\n")
    replies.flush()


if __name__ == "__main__":
    sys.exit(main())
