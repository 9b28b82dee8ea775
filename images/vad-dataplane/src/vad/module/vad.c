/* The VAD module: an energy gate, and if that does not decide, a small network on the spectrum relative to the tracked
 * noise floor; then hysteresis, hangover and pre-roll. No libm, no allocation, no imports; a stream's decisions depend
 * only on its own frames. */
#include "../abi.h"
#include "network.h"

#ifdef __wasm__
#define EXPORT(name) __attribute__((export_name(#name))) name
#else
#define EXPORT(name) name
#endif

enum { STREAMS = 8192 };

#ifdef __wasm__
/* The compiler calls it to clear large objects; the module has no C library. */
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

/* Downwards: the check of the last word's address covers all of them. */
static inline void copy_words(uint64_t* to, const uint64_t* from, int words) {
    NO_LOOP
    for (int i = words - 1; i >= 0; --i) {
        to[i] = from[i];
    }
}

/* The spectrum is computed for every second frame, which halves its cost: speech lasts longer than 40 ms. The frame
 * after it needs only the last word of the past. */
static int look(void) {
    now_.stream.looked = !now_.stream.looked;
    return now_.stream.looked;
}

/* The log-odds that this frame is speech. Advances the stream by a frame. */
static float judge(struct stream* s, int* gated) {
    audio_.words[PAST_WORDS - 1] = s->past[PAST_WORDS - 1];
    const struct energies e = measure();
    *gated = gate(&e);
    if (*gated) {
        skip_spectrum();
        now_.stream.looked = 0; /* and the first frame that is not quiet is analyzed */
        now_.stream.odds = GATED_ODDS;
    } else if (look()) {
        copy_words(audio_.words, s->past, PAST_WORDS);
        const float middle = fill_inputs(&e);
        now_.stream.odds = network();
        const int steady = is_steady(&e, middle);
        const int music = is_music();
        if (steady || music || (now_.stream.odds > STAY_SCORE && is_line(middle))) {
            now_.stream.odds = GATED_ODDS;
        }
    }
    /* Digital silence contains no information: it does not count towards the age of a stream. */
    now_.stream.age = (uint8_t)(now_.stream.age + (!*gated && now_.stream.age < LEARNING_FRAMES));
    if (now_.stream.looked) {
        s->past[PAST_WORDS - 1] = audio_.words[FRAME / 4 + PAST_WORDS - 1];
    } else {
        copy_words(s->past, audio_.words + FRAME / 4, PAST_WORDS);
    }
    return now_.stream.odds;
}

/* The network classifies the previous frame, using the current one too; pre-roll and hangover cover the delay. */
static uint32_t decide(float odds) {
    struct stream* s = &now_.stream;
    s->score += SMOOTHING * (odds - s->score);
    const int learning = s->age < LEARNING_FRAMES && s->level_fast > LEARNING_LEVEL;
    const int voiced = learning || s->score > (s->speech ? STAY_SCORE : START_SCORE);
    uint32_t decision = s->age < LEARNING_FRAMES ? VAD_LEARNING : 0;
    if (voiced && !s->speech) {
        /* Speech at the end of music is detected late. */
        const uint32_t pre_roll = s->music > IS_MUSIC / 2 ? VAD_PRE_ROLL_MAX : PRE_ROLL;
        decision |= VAD_ONSET | pre_roll << VAD_PRE_ROLL_SHIFT;
    }
    s->speech = voiced || s->hangover > 0;
    s->hangover = voiced ? HANGOVER : (uint8_t)(s->hangover - (s->hangover > 0));
    return decision | (s->speech ? (uint32_t)VAD_SPEECH : 0);
}

uint32_t vad_process(uint32_t stream) {
    if (stream >= STREAMS) {
        return VAD_SPEECH;
    }
    struct stream* s = &streams_[stream];
    copy_words(now_.words, (const uint64_t*)s, STATE_WORDS);
    int gated = 0;
    const float odds = judge(s, &gated);
    const uint32_t decision = decide(odds) | (gated ? (uint32_t)VAD_GATED : 0);
    copy_words((uint64_t*)s, now_.words, STATE_WORDS);
    return decision;
}
