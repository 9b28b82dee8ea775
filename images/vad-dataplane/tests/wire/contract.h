/* AudioChunk as blueprint/contract.py has it. Written by tests/contract/test_chunk_layout.py:
 * UPDATE_GOLDEN=1 pytest tests/contract/test_chunk_layout.py */
#ifndef CONTRACT_H
#define CONTRACT_H

enum {
    CONTRACT_SESSION_OFFSET = 0,
    CONTRACT_SESSION_BYTES = 8,
    CONTRACT_SEQUENCE_OFFSET = 8,
    CONTRACT_SEQUENCE_BYTES = 4,
    CONTRACT_KIND_OFFSET = 12,
    CONTRACT_KIND_BYTES = 1,
    CONTRACT_FLAGS_OFFSET = 13,
    CONTRACT_FLAGS_BYTES = 1,
    CONTRACT_COUNT_OFFSET = 14,
    CONTRACT_COUNT_BYTES = 2,
    CONTRACT_PAYLOAD_OFFSET = 16,
    CONTRACT_PAYLOAD_BYTES = 3200,
};

#endif
