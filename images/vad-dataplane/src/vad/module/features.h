/* The inputs of the network for a frame: the level of each band above the noise floor of the stream, now and in recent
 * frames, and a few features of the level and the shape of the spectrum. Levels are log2 of an energy: 1 is 3 dB. */
#ifndef VOICE_VAD_FEATURES_H
#define VOICE_VAD_FEATURES_H

#include "spectrum.h"

#include <stddef.h>

enum {
    BANDS = 20,        /* 19 of the spectrum, and one for everything above 4 kHz */
    BANDS_PADDED = 24,
    SCALARS = 12,
    INPUTS = 3 * BANDS + SCALARS,
    HIGH_LINES = 3 * BANDS + 6, /* the input for the prominence of lines between 1 and 2.5 kHz */
    FRAME = 320,
    PAST = 196,        /* samples kept of the past; 194 are needed, and copies go 4 at a time */
    PAST_WORDS = PAST / 4,
    LEARNING_FRAMES = 15, /* 300 ms, after which the floor is trusted */
    SUBBLOCKS = 4,
};

/* Floors fall to a quieter frame quickly and rise by 4.5 dB/s: they find the noise between two words. */
static const float FLOOR_FALL = 0.3F, FLOOR_RISE = 0.03F, LONG_FLOOR_RISE = 0.006F;
/* Of the bands, which are computed only for every second frame. */
static const float BAND_FALL = 0.5F, BAND_RISE = 0.06F;
static const float FAST = 0.6F, SLOW = 0.2F;
static const float PEAK_FALL = 0.004F; /* 0.6 dB/s: the loudest voice of the last seconds */
/* A frame this close to the floor, after similar ones, is not speech, whatever its spectrum. */
static const float GATE_MARGIN = 0.2F;
static const int GATE_FRAMES = 10;
static const float SILENCE_LEVEL = 3; /* 2.8 LSB: below any line's own noise */

/* Constant sounds are not speech: a hum that is not loud and whose level hardly varies, and one or two lines of the
 * spectrum that contain all energy and do not move. */
static const float STEADY_LEVEL = 18.4F; /* -35 dBFS */
static const float SWAY = 0.42F, SWAY_SHARE = 0.04F, MOST_SWAY = 2, LEAP = 3, LINE_ENDS = -0.25F;
static const float LINE_SHARE = 32, KNOWN_LINE_SHARE = 4; /* 15 dB above the rest; 6 dB when it starts again */
enum { LINE_TONE = 8, LINE_STEADY = 4, LINE_STAYS = 1, IS_LINE = 40, KNOWN_LINE = 64, MOST_LINE = 224, LINE_BINS = 3 };

/* Music on hold: its low bands change less between analyzed frames than a voice's, its lines are more prominent, and it
 * is darker. Log-odds fitted to five pieces and five voices; accumulated while they last, and reduced faster. */
static const float MUSIC_BIAS = 2.7F, MUSIC_LOW = -0.3833F, MUSIC_MIDDLE = -0.4611F, MUSIC_LINES = 2.3514F, MUSIC_TILT = -0.5113F;
static const float MUSIC_SHARE = 0.16F, MUSIC_MORE = 8, MUSIC_LESS = -56, MOST_CHANGE = 4;
enum { IS_MUSIC = 112, MOST_MUSIC = 136, LOW_BAND = 1, MIDDLE_BAND = 6, HIGH_BAND = 12, LEVEL_STEPS = 6, MUSIC_STEPS = 8, GATED_MUSIC = 4 };

struct stream {
    _Alignas(64) float floor[BANDS], fast[BANDS], slow[BANDS];
    float level_floor, long_floor, peak, level_fast, motion, peaky_low, peaky_high;
    float odds, score;
    float middle, sway, line_level; /* of the sound from 340 Hz on: recent mean, deviation from it, at the last line */
    float music_odds;
    uint8_t age, quiet, speech, hangover, looked, line, line_at[2];
    uint8_t music, last_level[HIGH_BAND - LOW_BAND]; /* of the bands below HIGH_BAND, in the last analyzed frame */
    uint64_t past[PAST_WORDS];
};
enum { STATE_WORDS = offsetof(struct stream, past) / sizeof(uint64_t) };

/* The current stream, at fixed addresses. Of its past, only the part that the frame's decision needs. */
static union {
    uint64_t words[STATE_WORDS];
    struct stream stream;
} now_;

/* The frame after its past, as words and as samples. */
static union {
    uint64_t words[(PAST + FRAME) / 4];
    int16_t samples[PAST + FRAME + 2 * LANES]; /* the last ones are read with weight 0 */
} audio_;
static float inputs_[INPUTS];

struct energies {
    float level;      /* of the frame, without its mean */
    float difference; /* of the second difference: mostly energy above 4 kHz */
    float crest;      /* loudest quarter relative to the mean of the quarters, 0 to 2 */
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

enum { PARTS = FRAME / (2 * LANES) };
static float sums_[PARTS][LANES], squares_[PARTS][LANES], rough_[PARTS][LANES];

/* The frame three times: compilers do not vectorize overlapping memory well. */
static float sample_[FRAME], last_[FRAME + LANES], before_[FRAME + LANES]; /* the latter two from one and two samples before */

STAGE convert(void) {
    const int16_t* frame = audio_.samples + PAST;
    last_[0] = frame[-1];
    before_[0] = frame[-2];
    before_[1] = frame[-1];
    NO_LOOP
    for (int i = 0; i < FRAME; i += LANES) {
        const lanes x = __builtin_convertvector(*(const short_lanes*)(frame + i), lanes);
        store(sample_ + i, x);
        store(last_ + 1 + i, x);
        store(before_ + 2 + i, x);
        GROUP_ENDS;
    }
}

static inline lanes second_difference(int i) {
    const lanes last = load(last_ + i);
    return last + last - load(before_ + i) - load(sample_ + i);
}

STAGE measure_parts(void) {
    NO_LOOP
    for (int part = 0; part < PARTS; ++part) {
        const int i = 2 * LANES * part, j = i + LANES;
        const lanes x = load(sample_ + i), y = load(sample_ + j);
        const lanes of_x = second_difference(i), of_y = second_difference(j);
        store(sums_[part], x + y);
        store(squares_[part], x * x + y * y);
        store(rough_[part], of_x * of_x + of_y * of_y);
        GROUP_ENDS;
    }
}

static float block_sums_[SUBBLOCKS][LANES], block_squares_[SUBBLOCKS][LANES], block_rough_[SUBBLOCKS][LANES];

static inline lanes five(float (*from)[LANES]) {
    return ((load(from[0]) + load(from[1])) + (load(from[2]) + load(from[3]))) + load(from[4]);
}

STAGE measure_blocks(void) {
    _Static_assert(PARTS / SUBBLOCKS == 5, "what five() takes");
    NO_LOOP
    for (int block = 0; block < SUBBLOCKS; ++block) {
        store(block_sums_[block], five(sums_ + 5 * block));
        store(block_squares_[block], five(squares_ + 5 * block));
        store(block_rough_[block], five(rough_ + 5 * block));
        GROUP_ENDS;
    }
}

/* Eight parallel sums, in the same order for every compiler. */
static struct energies measure(void) {
    convert();
    measure_parts();
    measure_blocks();
    float sum = 0, squares = 0, differences = 0, loudest = 0;
    for (int block = 0; block < SUBBLOCKS; ++block) {
        const float energy = sum_of(load(block_squares_[block]));
        sum += sum_of(load(block_sums_[block]));
        squares += energy;
        differences += sum_of(load(block_rough_[block]));
        loudest = energy > loudest ? energy : loudest;
    }
    const float mean = sum / FRAME, variance = squares / FRAME - mean * mean;
    return (struct energies){
        .level = log2_fast((variance > 0 ? variance : 0) + 0.01F),
        .difference = log2_fast(differences / FRAME + 0.01F),
        .crest = log2_fast((loudest * SUBBLOCKS + 1) / (squares + 1)),
    };
}

/* The prominence of the strongest bin of a range: voiced speech has lines there, noise does not. */
static inline float peaky(float sum, float most, int bins) {
    return log2_fast((most > 1 ? most : 1) * (float)bins / (sum + 1)) * 0.5F - 1;
}

static inline lanes larger(lanes x, lanes y) {
    lanes most;
#pragma GCC unroll 8
    for (int lane = 0; lane < LANES; ++lane) {
        most[lane] = x[lane] > y[lane] ? x[lane] : y[lane];
    }
    return most;
}

static inline float most_of(lanes x) {
    const float a = x[0] > x[1] ? x[0] : x[1], b = x[2] > x[3] ? x[2] : x[3];
    const float c = x[4] > x[5] ? x[4] : x[5], d = x[6] > x[7] ? x[6] : x[7];
    const float ab = a > b ? a : b, cd = c > d ? c : d;
    return ab > cd ? ab : cd;
}

/* Sum and largest of the bins 3 to 31 and 32 to 79. (The lower ones in lanes from 8 on, and five alone.) */
static float low_sum_[LANES], low_most_[LANES], high_sum_[LANES], high_most_[LANES];
STAGE measure_ranges(void) {
    const lanes a = load(power_ + 8), b = load(power_ + 16), c = load(power_ + 24);
    store(low_sum_, a + b + c);
    store(low_most_, larger(larger(a, b), c));
    GROUP_ENDS;
    const lanes d = load(power_ + 32), e = load(power_ + 40), f = load(power_ + 48);
    const lanes g = load(power_ + 56), h = load(power_ + 64), i = load(power_ + 72);
    store(high_sum_, ((d + e) + (f + g)) + (h + i));
    store(high_most_, larger(larger(larger(d, e), larger(f, g)), larger(h, i)));
}

static float level_[BANDS_PADDED];
STAGE sum_bands(void) {
    NO_LOOP
    for (int b = 0; b < BANDS - 1; ++b) {
        float sum = 0.5F;
        NO_LOOP
        for (int k = band_edge[b]; k < band_edge[b + 1]; ++k) {
            sum += power_[k];
        }
        level_[b] = sum;
    }
}

STAGE log_bands(void) {
    NO_LOOP
    for (int b = 0; b < BANDS_PADDED; b += LANES) {
        const int_lanes bits = *(const int_lanes*)(level_ + b);
        const lanes exponent = __builtin_convertvector(((bits >> 23) & 0xff) - 127, lanes);
        const lanes m = (lanes)((bits & 0x7fffff) | 0x3f800000);
        store(level_ + b, exponent + (((-0.0803073F * m + 0.63823F) * m - 2.1076127F) * m + 4.0598381F) * m - 2.510148F);
        GROUP_ENDS;
    }
}

static float total_; /* of all bands */

/* Fills level_; returns the level of all bands from 340 Hz on. */
static inline float band_levels(const struct energies* e) {
    sum_bands();
    float middle = 0.5F, low = 0;
    NO_LOOP
    for (int b = 0; b < BANDS - 1; ++b) {
        *(b < 4 ? &low : &middle) += level_[b];
    }
    total_ = low + middle - (BANDS * 0.5F);
    log_bands();
    level_[BANDS - 1] = e->difference;
    return log2_fast(middle);
}

/* Whether the level has been constant for a second: noise. */
static int is_steady(const struct energies* e, float middle) {
    if (now_.stream.age == 0) {
        now_.stream.middle = middle;
        now_.stream.sway = SWAY + 0.1F;
    }
    const float change = middle - now_.stream.middle, strays = change < 0 ? -change : change;
    now_.stream.sway += SWAY_SHARE * ((strays < MOST_SWAY ? strays : MOST_SWAY) - now_.stream.sway);
    now_.stream.middle = strays > LEAP ? middle : now_.stream.middle + SWAY_SHARE * change;
    return now_.stream.sway < SWAY && strays < 1 && e->level < STEADY_LEVEL;
}

static float wanted_[BINS], most_[LANES]; /* power of the bins to choose from, the others 0 */

STAGE want_bands(void) {
    NO_LOOP
    for (int k = 0; k < BINS; k += LANES) {
        store(wanted_ + k, load(power_ + k));
        GROUP_ENDS;
    }
    NO_LOOP
    for (int k = 0; k < BINS; ++k) {
        if (k < band_edge[0] || k >= band_edge[BANDS - 1]) {
            wanted_[k] = 0;
        }
    }
}

STAGE find_most(void) {
    lanes most[4];
    NO_LOOP
    for (int k = 0; k < BINS; k += 4 * LANES) {
        most[k / (4 * LANES)] = larger(larger(load(wanted_ + k), load(wanted_ + k + LANES)),
                                       larger(load(wanted_ + k + 2 * LANES), load(wanted_ + k + 3 * LANES)));
    }
    store(most_, larger(larger(most[0], most[1]), larger(most[2], most[3])));
}

static int strongest(void) {
    find_most();
    const float most = most_of(load(most_));
    int k = 0;
    while (k < LANES - 1 && most_[k] != most) {
        ++k;
    }
    while (k < BINS - LANES && wanted_[k] != most) {
        k += LANES;
    }
    return k;
}

/* The energy around one bin, but not around another. */
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

/* Whether one or two lines have contained all energy for a while: telephone tones. A voice moves. */
static int is_line(float middle) {
    want_bands();
    const int first = strongest();
    for (int k = first - LINE_BINS; k <= first + LINE_BINS; ++k) {
        wanted_[k & (BINS - 1)] = 0; /* those beyond the ends are 0 already */
    }
    const int second = strongest();
    const float total = total_;
    const float lines = around(first, -BINS) + around(second, first);
    const float share = now_.stream.line < KNOWN_LINE ? LINE_SHARE : KNOWN_LINE_SHARE;
    const int pure = total > share * (total - lines + 1);
    const int stays = pure && (beside(first, now_.stream.line_at[0]) || beside(first, now_.stream.line_at[1]));
    const float change = middle - now_.stream.line_level;
    const int more = change < 0.25F && change > -0.25F ? LINE_TONE : change < 0.5F && change > -0.5F ? LINE_STEADY : LINE_STAYS;
    const int ends = !pure && now_.stream.line >= IS_LINE && change < LINE_ENDS; /* the frame in which a tone stops has all lines */
    now_.stream.line = (uint8_t)(stays ? (now_.stream.line + more < MOST_LINE ? now_.stream.line + more : MOST_LINE) : now_.stream.line - now_.stream.line / 4);
    now_.stream.line_at[0] = (uint8_t)first;
    now_.stream.line_at[1] = (uint8_t)second;
    now_.stream.line_level = middle;
    return ends || (pure && now_.stream.line >= IS_LINE);
}

/* The change of the bands since the last analyzed frame, at most 12 dB each. */
static inline float change_of(int from, int to) {
    float sum = 0;
    NO_LOOP
    for (int b = from; b < to; ++b) {
        const uint8_t level = (uint8_t)(int)clamp(level_[b] * LEVEL_STEPS, 0, 255);
        const float change = (float)(level - now_.stream.last_level[b - LOW_BAND]) / LEVEL_STEPS;
        now_.stream.last_level[b - LOW_BAND] = level;
        sum += clamp(change < 0 ? -change : change, 0, MOST_CHANGE);
    }
    return sum;
}

static inline float mean_level(int from, int to) {
    float sum = 0;
    NO_LOOP
    for (int b = from; b < to; ++b) {
        sum += level_[b];
    }
    return sum / (float)(to - from);
}

/* Whether it has been music for a while. */
static int is_music(void) {
    const float tilt = mean_level(HIGH_BAND, BANDS - 1) - mean_level(LOW_BAND, LOW_BAND + 7);
    const float low = change_of(LOW_BAND, MIDDLE_BAND), middle = change_of(MIDDLE_BAND, HIGH_BAND);
    const float odds = MUSIC_BIAS + MUSIC_LOW * low + MUSIC_MIDDLE * middle + MUSIC_LINES * inputs_[HIGH_LINES] + MUSIC_TILT * tilt;
    now_.stream.music_odds += MUSIC_SHARE * (odds - now_.stream.music_odds);
    const int sum = now_.stream.music + (int)clamp(now_.stream.music_odds * MUSIC_STEPS, MUSIC_LESS, MUSIC_MORE);
    now_.stream.music = (uint8_t)(sum < 0 ? 0 : sum > MOST_MUSIC ? MOST_MUSIC : sum);
    return now_.stream.music > IS_MUSIC;
}

static inline float haste(void) {
    return now_.stream.age < LEARNING_FRAMES ? (float)(LEARNING_FRAMES + 1 - now_.stream.age) : 1;
}

/* The levels that need no spectrum. True if they are sufficient: no speech. */
static int gate(const struct energies* e) {
    if (now_.stream.age == 0) {
        now_.stream.level_floor = now_.stream.long_floor = now_.stream.peak = now_.stream.level_fast = e->level;
    }
    follow(&now_.stream.level_floor, e->level, FLOOR_FALL, FLOOR_RISE * haste());
    follow(&now_.stream.long_floor, e->level, FLOOR_FALL, LONG_FLOOR_RISE * haste());
    now_.stream.peak = e->level > now_.stream.peak ? e->level : now_.stream.peak - PEAK_FALL;
    const float change = e->level - now_.stream.level_fast;
    now_.stream.level_fast += 0.3F * change;
    now_.stream.motion += 0.05F * ((change < 0 ? -change : change) - now_.stream.motion);
    const int quiet = e->level < now_.stream.level_floor + GATE_MARGIN;
    now_.stream.quiet = quiet ? (uint8_t)(now_.stream.quiet + (now_.stream.quiet <= GATE_FRAMES)) : 0;
    return e->level < SILENCE_LEVEL || (now_.stream.quiet > GATE_FRAMES && now_.stream.age >= LEARNING_FRAMES);
}

static void skip_spectrum(void) {
    NO_LOOP
    for (int b = 0; b < BANDS; ++b) {
        now_.stream.fast[b] *= 0.6F;
    }
    NO_LOOP
    for (int b = 0; b < BANDS; ++b) {
        now_.stream.slow[b] *= 0.9F;
    }
    now_.stream.peaky_low *= 0.8F;
    now_.stream.peaky_high *= 0.8F;
    now_.stream.music = (uint8_t)(now_.stream.music < GATED_MUSIC ? 0 : now_.stream.music - GATED_MUSIC);
}

static void fill_scalars(const struct energies* e) {
    float* out = inputs_ + 3 * BANDS;
    measure_ranges();
    float sum = sum_of(load(low_sum_)), most = most_of(load(low_most_));
    NO_LOOP
    for (int k = band_edge[0]; k < LANES; ++k) {
        sum += power_[k];
        most = power_[k] > most ? power_[k] : most;
    }
    const float low = peaky(sum, most, 32 - band_edge[0]);
    const float high = peaky(sum_of(load(high_sum_)), most_of(load(high_most_)), 80 - 32);
    now_.stream.peaky_low += 0.35F * (low - now_.stream.peaky_low);
    now_.stream.peaky_high += 0.35F * (high - now_.stream.peaky_high);
    out[0] = clamp(e->level - now_.stream.level_floor, -2, 12) * 0.25F;
    out[1] = clamp(e->level - now_.stream.long_floor, -2, 12) * 0.25F;
    out[2] = clamp(now_.stream.peak - e->level, 0, 12) * 0.25F;
    out[3] = clamp(now_.stream.peak - now_.stream.level_floor, 0, 16) * 0.25F;
    out[4] = e->crest;
    out[5] = low;
    out[6] = high;
    out[7] = now_.stream.peaky_low;
    out[8] = now_.stream.peaky_high;
    out[9] = clamp(now_.stream.motion, 0, 4);
    out[10] = clamp(now_.stream.level_fast - now_.stream.level_floor, -2, 12) * 0.25F;
    out[11] = clamp(now_.stream.floor[0] - now_.stream.floor[BANDS / 2], -8, 8) * 0.125F; /* tilt of the noise */
}

/* The floor of each band, and the band's level above it. Four bands at a time, which BANDS is a multiple of. */
STAGE follow_bands(float rise) {
    NO_LOOP
    for (int b = 0; b < BANDS; b += 4) {
        float above[4], floor[4], fast[4], slow[4];
        NO_LOOP
        for (int i = 0; i < 4; ++i) {
            floor[i] = now_.stream.floor[b + i];
            follow(&floor[i], level_[b + i], BAND_FALL, rise);
            above[i] = clamp(level_[b + i] - floor[i], -2, 12) * 0.25F;
            fast[i] = now_.stream.fast[b + i] + FAST * (above[i] - now_.stream.fast[b + i]);
            slow[i] = now_.stream.slow[b + i] + SLOW * (above[i] - now_.stream.slow[b + i]);
        }
        NO_LOOP
        for (int i = 0; i < 4; ++i) {
            now_.stream.floor[b + i] = floor[i];
            inputs_[b + i] = above[i];
            inputs_[BANDS + b + i] = now_.stream.fast[b + i] = fast[i];
            inputs_[2 * BANDS + b + i] = now_.stream.slow[b + i] = slow[i];
        }
        GROUP_ENDS;
    }
}

/* Fills inputs_ from the spectrum of the frame; returns band_levels(). */
static float fill_inputs(const struct energies* e) {
    spectrum_compute(audio_.samples + 2);
    const float middle = band_levels(e);
    if (now_.stream.age == 0) {
        NO_LOOP
        for (int b = 0; b < BANDS; ++b) {
            now_.stream.floor[b] = level_[b];
        }
    }
    follow_bands(BAND_RISE * haste());
    fill_scalars(e);
    return middle;
}

#endif
