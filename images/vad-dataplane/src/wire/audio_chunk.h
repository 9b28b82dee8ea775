/* AudioChunk: one datagram from the VAD tier to the ASR tier, 100 ms of one session. Little-endian.
 * blueprint/contract.py describes the same layout; a test compares the two. */
#ifndef VOICE_WIRE_AUDIO_CHUNK_H
#define VOICE_WIRE_AUDIO_CHUNK_H

#include <stdint.h>

enum {
    VOICE_CHUNK_MEL_BINS = 80,
    VOICE_CHUNK_MEL_FRAMES = 10,
    VOICE_CHUNK_SAMPLES = 1600,
    VOICE_CHUNK_PAYLOAD_BYTES = 3200,
};

struct voice_audio_chunk {
    uint64_t session;
    uint32_t sequence;
    uint8_t kind;
    uint8_t flags;
    uint16_t count; /* frames or samples that hold audio; the rest of the payload is zero */
    union {
        float log_mel[VOICE_CHUNK_MEL_FRAMES][VOICE_CHUNK_MEL_BINS];
        int16_t pcm[VOICE_CHUNK_SAMPLES];
    } payload;
};

#endif
