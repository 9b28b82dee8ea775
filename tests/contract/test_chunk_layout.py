"""The layout of an `AudioChunk` is the same in `voice_blueprint.contract` and in the data plane's C header.

These tests cannot rely on a C compiler. They therefore write the layout of the contract to a header, with which the
data plane's tests (`make test-native`) compare the C struct.
"""

import os
from pathlib import Path

from voice_blueprint.contract.chunk import (
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
        "/* AudioChunk as voice_blueprint/contract/chunk.py has it. Written by tests/contract/test_chunk_layout.py:\n"
        " * UPDATE_GOLDEN=1 pytest tests/contract/test_chunk_layout.py */\n"
        "#ifndef CONTRACT_H\n#define CONTRACT_H\n\nenum {\n" + numbers + "};\n\n#endif\n"
    )


def test_header_of_the_native_test_matches_the_contract() -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        HEADER.write_text(header())
    assert HEADER.read_text() == header()
