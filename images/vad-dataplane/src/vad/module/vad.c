/* The VAD module: a gate on the energy, and where that does not decide, a small network on the spectrum against the
 * tracked noise floor; then hysteresis, hangover and pre-roll. No libm, no allocation, no imports; a stream's decisions
 * depend on its own frames alone. */
#include "../abi.h"
#include "network.h"

#ifdef __wasm__
#define EXPORT(name) __attribute__((export_name(#name))) name
#else
#define EXPORT(name) name
#endif

enum { STREAMS = 8192 };

#ifdef __wasm__
/* The compiler calls it for large zeroes; there is no C library in here. */
void* memset(void* into, int value, unsigned long count);
void* memset(void* into, int value, unsigned long count) {
    uint8_t* bytes = into;
    UNROLL
    for (unsigned long i = 0; i < count; ++i) {
        bytes[i] = (uint8_t)value;
    }
    return into;
}
#endif

static struct stream streams_[STREAMS];

uint32_t EXPORT(vad_abi_version)(void);
uint32_t EXPORT(vad_stream_count)(void);
uintptr_t EXPORT(vad_frame_offset)(void);
uintptr_t EXPORT(vad_state_offset)(void);
uint32_t EXPORT(vad_state_bytes)(void);
void EXPORT(vad_init)(void);
void EXPORT(vad_reset)(uint32_t stream);
uint32_t EXPORT(vad_process)(uint32_t stream);

uint32_t vad_abi_version(void) {
    return VAD_ABI_VERSION;
}

uint32_t vad_stream_count(void) {
    return STREAMS;
}

uintptr_t vad_frame_offset(void) {
    return (uintptr_t)(audio_.samples + PAST);
}

uintptr_t vad_state_offset(void) {
    return (uintptr_t)streams_;
}

uint32_t vad_state_bytes(void) {
    return sizeof streams_[0];
}

void vad_init(void) {
    spectrum_init();
}

void vad_reset(uint32_t stream) {
    if (stream < STREAMS) {
        streams_[stream] = (struct stream){0};
    }
}

/* The spectrum is looked at every second frame, which halves its cost: what is said lasts longer than 40 ms. */
static int look(struct stream* s) {
    s->looked = !s->looked;
    return s->looked;
}

/* The log-odds that this frame is speech. Moves the stream on by a frame. */
static float judge(struct stream* s, int* gated) {
    UNROLL
    for (int i = 0; i < PAST_WORDS; ++i) {
        audio_.words[i] = s->past[i];
    }
    const struct energies e = measure();
    *gated = gate(s, &e);
    if (*gated) {
        skip_spectrum(s);
        s->looked = 0; /* and the first frame that is not quiet is looked at */
        s->odds = GATED_ODDS;
    } else if (look(s)) {
        const float middle = fill_inputs(s, &e);
        s->odds = network();
        const int steady = is_steady(s, &e, middle);
        if (steady || (s->odds > STAY_SCORE && is_line(s, middle))) {
            s->odds = GATED_ODDS;
        }
    }
    /* Digital silence teaches nothing: a stream is as old as it has been heard. */
    s->age = (uint16_t)(s->age + (!*gated && s->age < LEARNING_FRAMES));
    UNROLL
    for (int i = 0; i < PAST_WORDS; ++i) {
        s->past[i] = audio_.words[FRAME / 4 + i];
    }
    return s->odds;
}

/* The network judges what was a frame ago, with what came since; pre-roll and hangover bridge that. */
static uint32_t decide(struct stream* s, float odds) {
    s->score += SMOOTHING * (odds - s->score);
    const int learning = s->age < LEARNING_FRAMES && s->level_fast > LEARNING_LEVEL;
    const int voiced = learning || s->score > (s->speech ? STAY_SCORE : START_SCORE);
    uint32_t decision = s->age < LEARNING_FRAMES ? VAD_LEARNING : 0;
    if (voiced && !s->speech) {
        decision |= VAD_ONSET | (uint32_t)PRE_ROLL << VAD_PRE_ROLL_SHIFT;
    }
    s->speech = voiced || s->hangover > 0;
    s->hangover = voiced ? HANGOVER : (uint8_t)(s->hangover - (s->hangover > 0));
    return decision | (s->speech ? (uint32_t)VAD_SPEECH : 0);
}

uint32_t vad_process(uint32_t stream) {
    if (stream >= STREAMS) {
        return VAD_SPEECH;
    }
    int gated = 0;
    const float odds = judge(&streams_[stream], &gated);
    return decide(&streams_[stream], odds) | (gated ? (uint32_t)VAD_GATED : 0);
}
