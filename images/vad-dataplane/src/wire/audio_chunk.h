/* AudioChunk: one datagram from the VAD tier to the ASR tier, 100 ms of one session. Little-endian.
 * voice_blueprint/contract/chunk.py describes the same layout; a test compares the two. */
#ifndef VOICE_WIRE_AUDIO_CHUNK_H
#define VOICE_WIRE_AUDIO_CHUNK_H

#include <stdint.h>

enum {
    VOICE_CHUNK_MEL_BINS = 80,
    VOICE_CHUNK_MEL_FRAMES = 10,
    VOICE_CHUNK_SAMPLES = 1600,
    VOICE_CHUNK_PAYLOAD_BYTES = 3200,
};

/* Contents of the payload. */
enum voice_chunk_kind {
    VOICE_CHUNK_LOG_MEL = 1,
    VOICE_CHUNK_PCM16 = 2,
};

/* Bits of `flags`. */
enum voice_chunk_flag {
    VOICE_CHUNK_END_OF_SPEECH = 1,
    VOICE_CHUNK_CONCEALED = 2,       /* some of it is concealed: packets were lost */
    VOICE_CHUNK_START_OF_SPEECH = 4,
    VOICE_CHUNK_SILENCE = 8,         /* contains no speech: pre-roll or hangover; the first to be shed */
    VOICE_CHUNK_COMMIT = 16,         /* its sender requests a final up to here */
    VOICE_CHUNK_LAST = 32,           /* its sender has sent a goodbye: nothing follows */
};

struct voice_audio_chunk {
    uint32_t session;
    uint32_t number;   /* chunks of the session before this one, sent or lost */
    uint32_t sequence;
    uint8_t kind;   /* enum voice_chunk_kind */
    uint8_t flags;  /* enum voice_chunk_flag */
    uint16_t count; /* frames or samples with audio; the rest of the payload is zero */
    union {
        float log_mel[VOICE_CHUNK_MEL_FRAMES][VOICE_CHUNK_MEL_BINS];
        int16_t pcm[VOICE_CHUNK_SAMPLES];
    } payload;
};

#endif
