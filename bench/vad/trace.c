/* The module built for this machine, with what the training needs to see of it. */
#include "module/vad.c"

enum { COLUMNS = INPUTS + 2 };

int trace_columns(void);
int trace_columns(void) {
    return COLUMNS;
}

/* One row a frame: the network's inputs, 1 when the energy gate decided, and 1 when the spectrum was looked at (the
 * inputs of other frames are stale). */
void trace(const int16_t* samples, int frames, float* rows);
void trace(const int16_t* samples, int frames, float* rows) {
    static int ready;
    if (!ready) {
        vad_init();
        ready = 1;
    }
    vad_reset(0);
    struct stream* s = &streams_[0];
    for (int f = 0; f < frames; ++f, rows += COLUMNS) {
        for (int i = 0; i < FRAME; ++i) {
            audio_.samples[PAST + i] = samples[f * FRAME + i];
        }
        int gated = 0;
        copy_words(now_.words, (const uint64_t*)s, STATE_WORDS);
        decide(judge(s, &gated));
        copy_words((uint64_t*)s, now_.words, STATE_WORDS);
        for (int i = 0; i < INPUTS; ++i) {
            rows[i] = inputs_[i];
        }
        rows[INPUTS] = (float)gated;
        rows[INPUTS + 1] = (float)(!gated && now_.stream.looked);
    }
}
