"""An `AudioChunk` is the same in `blueprint.contract` and in the data plane's C header.

A C compiler is not among what these tests may expect. So the contract's side is written into a header here, and the
data plane's own tests (`make test-native`) hold the C struct against it.
"""

import os
from pathlib import Path

from blueprint.contract.chunk import (
    CHUNK_HEADER,
    CHUNK_MEL_BINS,
    CHUNK_MEL_FRAMES,
    CHUNK_PAYLOAD_BYTES,
    CHUNK_SAMPLES,
    ChunkFlag,
    ChunkKind,
)

HEADER = Path(__file__).parents[2] / "images/vad-dataplane/tests/wire/contract.h"

FIELDS = ("SESSION", "NUMBER", "SEQUENCE", "KIND", "FLAGS", "COUNT")
SIZES = {"Q": 8, "I": 4, "H": 2, "B": 1}


def layout() -> dict[str, int]:
    """Return offsets and sizes of a chunk's fields, in bytes, and the numbers in them."""
    order, codes = CHUNK_HEADER.format[0], CHUNK_HEADER.format[1:]
    assert order == "<", "standard sizes, no padding, little-endian"
    numbers: dict[str, int] = {}
    offset = 0
    for field, code in zip(FIELDS, codes, strict=True):
        numbers[f"CONTRACT_{field}_OFFSET"] = offset
        numbers[f"CONTRACT_{field}_BYTES"] = SIZES[code]
        offset += SIZES[code]
    assert offset == CHUNK_HEADER.size
    numbers["CONTRACT_PAYLOAD_OFFSET"] = CHUNK_HEADER.size
    numbers["CONTRACT_PAYLOAD_BYTES"] = CHUNK_PAYLOAD_BYTES
    numbers["CONTRACT_MEL_BINS"] = CHUNK_MEL_BINS
    numbers["CONTRACT_MEL_FRAMES"] = CHUNK_MEL_FRAMES
    numbers["CONTRACT_SAMPLES"] = CHUNK_SAMPLES
    numbers |= {f"CONTRACT_KIND_{kind.name}": kind.value for kind in ChunkKind}
    numbers |= {f"CONTRACT_FLAG_{flag.name}": flag.value for flag in ChunkFlag}
    return numbers


def header() -> str:
    numbers = "".join(f"    {name} = {number},\n" for name, number in layout().items())
    return (
        "/* AudioChunk as blueprint/contract/chunk.py has it. Written by tests/contract/test_chunk_layout.py:\n"
        " * UPDATE_GOLDEN=1 pytest tests/contract/test_chunk_layout.py */\n"
        "#ifndef CONTRACT_H\n#define CONTRACT_H\n\nenum {\n" + numbers + "};\n\n#endif\n"
    )


def test_header_for_the_native_test_is_the_contract() -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        HEADER.write_text(header())
    assert HEADER.read_text() == header()
