/* What the network sees of a frame: how far its bands stand above the noise floor of the stream, now and lately, and a
 * few numbers about the level and the shape of the spectrum. Levels are log2 of an energy: 1 is 3 dB. */
#ifndef VOICE_VAD_FEATURES_H
#define VOICE_VAD_FEATURES_H

#include "spectrum.h"

enum {
    BANDS = 20,        /* 19 of the spectrum, and one for all that lies above 4 kHz */
    SCALARS = 12,
    INPUTS = 3 * BANDS + SCALARS,
    FRAME = 320,
    PAST = 196,        /* samples kept of the past; 194 are needed, and copies go 4 at a time */
    PAST_WORDS = PAST / 4,
    LEARNING_FRAMES = 15, /* 300 ms, after which the floor is trusted */
    SUBBLOCKS = 4,
    LANES = 8,         /* sums that compilers make a vector of */
};

/* Floors fall to a quieter frame quickly and rise by 4.5 dB/s: they find the noise between two words. */
static const float FLOOR_FALL = 0.3F, FLOOR_RISE = 0.03F, LONG_FLOOR_RISE = 0.006F;
/* Of the bands, which are looked at every second frame only. */
static const float BAND_FALL = 0.5F, BAND_RISE = 0.06F;
static const float FAST = 0.6F, SLOW = 0.2F;
static const float PEAK_FALL = 0.004F; /* 0.6 dB/s: the loudest voice of the last seconds */
/* A frame so close to the floor, after others like it, is no speech, whatever its spectrum. */
static const float GATE_MARGIN = 0.2F;
static const int GATE_FRAMES = 10;
static const float SILENCE_LEVEL = 3; /* 2.8 LSB: below any line's own noise */

/* What stays as it is says nothing: a hum whose level hardly sways is no speech where it is not loud, nor is a line of the
 * spectrum, or two, that holds all there is and stays in its place. */
static const float STEADY_LEVEL = 18.4F; /* -35 dBFS */
static const float SWAY = 0.42F, SWAY_SHARE = 0.04F, MOST_SWAY = 2, LEAP = 3;
static const float LINE_SHARE = 32, KNOWN_LINE_SHARE = 4; /* 15 dB above the rest; 6 dB where it begins again */
enum { LINE_STEADY = 4, LINE_STAYS = 1, IS_LINE = 40, KNOWN_LINE = 64, MOST_LINE = 224, LINE_BINS = 3 };

struct stream {
    _Alignas(64) uint64_t past[PAST_WORDS]; /* a stream shares no cache line with another one */
    float floor[BANDS], fast[BANDS], slow[BANDS];
    float level_floor, long_floor, peak, level_fast, motion, peaky_low, peaky_high;
    float odds, score;
    float middle, sway, line_level; /* of the sound from 340 Hz on: lately, how far it strays from that, at the last line */
    uint16_t age, quiet;
    uint8_t speech, hangover, looked, line, line_at[2];
};

/* The frame with the past before it, for whole words and for samples. */
static union {
    uint64_t words[(PAST + FRAME) / 4];
    int16_t samples[PAST + FRAME];
} audio_;
static float inputs_[INPUTS];

struct energies {
    float level;      /* of the frame, without its mean */
    float difference; /* of the second difference: mostly what lies above 4 kHz */
    float crest;      /* loudest quarter against the mean of the quarters, 0 to 2 */
};

static const uint8_t band_edge[BANDS] = {3, 5, 7, 9, 11, 13, 16, 19, 22, 26, 30, 35, 41, 48, 56, 65, 76, 89, 104, 122};

/* log2 for positive normal numbers, error below 0.0002. */
static inline float log2_fast(float x) {
    union {
        float number;
        uint32_t bits;
    } view = {.number = x};
    const float exponent = (float)((int32_t)(view.bits >> 23) - 127);
    view.bits = (view.bits & 0x7fffffU) | 0x3f800000U;
    const float m = view.number;
    return exponent + (((-0.0803073F * m + 0.63823F) * m - 2.1076127F) * m + 4.0598381F) * m - 2.510148F;
}

static inline float clamp(float x, float low, float high) {
    return x < low ? low : x > high ? high : x;
}

static inline void follow(float* floor, float level, float fall, float rise) {
    const float change = level - *floor;
    *floor += change < 0 ? fall * change : change < rise ? change : rise;
}

static inline float sum_of(const float* lanes) {
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

/* Eight sums side by side, in an order that is the same for every compiler. */
static struct energies measure(void) {
    const int16_t* frame = audio_.samples + PAST;
    float sum = 0, squares = 0, differences = 0, loudest = 0;
    for (int block = 0; block < SUBBLOCKS; ++block) {
        float part_sum[LANES] = {0}, part[LANES] = {0}, rough[LANES] = {0};
        for (int i = 0; i < FRAME / SUBBLOCKS; i += LANES) {
#pragma GCC unroll 8
            for (int lane = 0; lane < LANES; ++lane) {
                const float x = frame[lane], curve = (float)(frame[lane - 1] + frame[lane - 1] - frame[lane - 2]) - x;
                part_sum[lane] += x;
                part[lane] += x * x;
                rough[lane] += curve * curve;
            }
            frame += LANES;
        }
        const float energy = sum_of(part);
        sum += sum_of(part_sum);
        squares += energy;
        differences += sum_of(rough);
        loudest = energy > loudest ? energy : loudest;
    }
    const float mean = sum / FRAME, variance = squares / FRAME - mean * mean;
    return (struct energies){
        .level = log2_fast((variance > 0 ? variance : 0) + 0.01F),
        .difference = log2_fast(differences / FRAME + 0.01F),
        .crest = log2_fast((loudest * SUBBLOCKS + 1) / (squares + 1)),
    };
}

/* How much the strongest bin of a range stands out: voiced speech has lines there, noise has not. */
static inline float peaky(int from, int to) {
    float sum = 1, most = 1;
    UNROLL
    for (int k = from; k < to; ++k) {
        sum += power_[k];
        most = power_[k] > most ? power_[k] : most;
    }
    return log2_fast(most * (float)(to - from) / sum) * 0.5F - 1;
}

/* Returns the level of all bands from 340 Hz on. */
static inline float band_levels(const struct energies* e, float* restrict level) {
    float middle = 0.5F;
    for (int b = 0; b < BANDS - 1; ++b) {
        float sum = 0.5F;
        for (int k = band_edge[b]; k < band_edge[b + 1]; ++k) {
            sum += power_[k];
        }
        level[b] = log2_fast(sum);
        middle += b < 4 ? 0 : sum;
    }
    level[BANDS - 1] = e->difference;
    return log2_fast(middle);
}

/* Whether the sound is as loud as it was for a second: noise. */
static int is_steady(struct stream* s, const struct energies* e, float middle) {
    if (s->age == 0) {
        s->middle = middle;
        s->sway = SWAY + 0.1F;
    }
    const float change = middle - s->middle, strays = change < 0 ? -change : change;
    s->sway += SWAY_SHARE * ((strays < MOST_SWAY ? strays : MOST_SWAY) - s->sway);
    s->middle = strays > LEAP ? middle : s->middle + SWAY_SHARE * change;
    return s->sway < SWAY && strays < 1 && e->level < STEADY_LEVEL;
}

static int strongest(int from, int to, int best) {
    UNROLL
    for (int k = from; k < to; ++k) {
        best = power_[k] > power_[best] ? k : best;
    }
    return best;
}

/* What lies around one bin, and not around another. */
static inline float around(int at, int other) {
    float sum = 0;
    for (int k = at - LINE_BINS; k <= at + LINE_BINS; ++k) {
        const int apart = k < other - LINE_BINS || k > other + LINE_BINS;
        sum += k < 0 || k >= BINS || !apart ? 0 : power_[k];
    }
    return sum;
}

static inline int beside(int bin, int other) {
    return bin - other <= 1 && other - bin <= 1;
}

/* Whether one or two lines hold all of the spectrum, and have for a while: tones of a telephone. A voice moves. */
static int is_line(struct stream* s, float middle) {
    const int first = strongest(band_edge[0], band_edge[BANDS - 1], band_edge[0]);
    const int below = first - LINE_BINS, above = first + LINE_BINS + 1;
    int second = strongest(band_edge[0], below, below > band_edge[0] ? band_edge[0] : above);
    second = strongest(above, band_edge[BANDS - 1], second);
    float total = 0;
    UNROLL
    for (int k = band_edge[0]; k < band_edge[BANDS - 1]; ++k) {
        total += power_[k];
    }
    const float lines = around(first, -BINS) + around(second, first);
    const float share = s->line < KNOWN_LINE ? LINE_SHARE : KNOWN_LINE_SHARE;
    const int pure = total > share * (total - lines + 1);
    const int stays = pure && (beside(first, s->line_at[0]) || beside(first, s->line_at[1]));
    const float change = middle - s->line_level;
    const int more = change < 0.5F && change > -0.5F ? LINE_STEADY : LINE_STAYS;
    s->line = (uint8_t)(stays ? (s->line + more < MOST_LINE ? s->line + more : MOST_LINE) : s->line - s->line / 4);
    s->line_at[0] = (uint8_t)first;
    s->line_at[1] = (uint8_t)second;
    s->line_level = middle;
    return pure && s->line >= IS_LINE;
}

static inline float haste(const struct stream* s) {
    return s->age < LEARNING_FRAMES ? (float)(LEARNING_FRAMES + 1 - s->age) : 1;
}

/* The levels that need no spectrum. True when they suffice: no speech. */
static int gate(struct stream* s, const struct energies* e) {
    if (s->age == 0) {
        s->level_floor = s->long_floor = s->peak = s->level_fast = e->level;
    }
    follow(&s->level_floor, e->level, FLOOR_FALL, FLOOR_RISE * haste(s));
    follow(&s->long_floor, e->level, FLOOR_FALL, LONG_FLOOR_RISE * haste(s));
    s->peak = e->level > s->peak ? e->level : s->peak - PEAK_FALL;
    const float change = e->level - s->level_fast;
    s->level_fast += 0.3F * change;
    s->motion += 0.05F * ((change < 0 ? -change : change) - s->motion);
    const int quiet = e->level < s->level_floor + GATE_MARGIN;
    s->quiet = quiet ? (uint16_t)(s->quiet + (s->quiet <= GATE_FRAMES)) : 0;
    return e->level < SILENCE_LEVEL || (s->quiet > GATE_FRAMES && s->age >= LEARNING_FRAMES);
}

static void skip_spectrum(struct stream* s) {
    for (int b = 0; b < BANDS; ++b) {
        s->fast[b] *= 0.6F;
        s->slow[b] *= 0.9F;
    }
    s->peaky_low *= 0.8F;
    s->peaky_high *= 0.8F;
}

static void fill_scalars(struct stream* s, const struct energies* e) {
    float* out = inputs_ + 3 * BANDS;
    const float low = peaky(3, 32), high = peaky(32, 80);
    s->peaky_low += 0.35F * (low - s->peaky_low);
    s->peaky_high += 0.35F * (high - s->peaky_high);
    out[0] = clamp(e->level - s->level_floor, -2, 12) * 0.25F;
    out[1] = clamp(e->level - s->long_floor, -2, 12) * 0.25F;
    out[2] = clamp(s->peak - e->level, 0, 12) * 0.25F;
    out[3] = clamp(s->peak - s->level_floor, 0, 16) * 0.25F;
    out[4] = e->crest;
    out[5] = low;
    out[6] = high;
    out[7] = s->peaky_low;
    out[8] = s->peaky_high;
    out[9] = clamp(s->motion, 0, 4);
    out[10] = clamp(s->level_fast - s->level_floor, -2, 12) * 0.25F;
    out[11] = clamp(s->floor[0] - s->floor[BANDS / 2], -8, 8) * 0.125F; /* tilt of the noise */
}

/* Fills inputs_ from the spectrum of the frame; returns band_levels(). */
static float fill_inputs(struct stream* s, const struct energies* e) {
    float level[BANDS];
    spectrum_compute(audio_.samples + 2);
    const float middle = band_levels(e, level);
    const float rise = BAND_RISE * haste(s);
    for (int b = 0; b < BANDS; ++b) {
        if (s->age == 0) {
            s->floor[b] = level[b];
        }
        follow(&s->floor[b], level[b], BAND_FALL, rise);
        const float above = clamp(level[b] - s->floor[b], -2, 12) * 0.25F;
        s->fast[b] += FAST * (above - s->fast[b]);
        s->slow[b] += SLOW * (above - s->slow[b]);
        inputs_[b] = above;
        inputs_[BANDS + b] = s->fast[b];
        inputs_[2 * BANDS + b] = s->slow[b];
    }
    fill_scalars(s, e);
    return middle;
}

#endif
