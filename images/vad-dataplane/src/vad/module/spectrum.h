/* Power spectrum of 0 to 4 kHz: 512 samples are reduced to 256 at half the rate, the input of an FFT. Narrow-band calls
 * contain nothing above 4 kHz: one number is sufficient for that range, and it is computed elsewhere.
 *
 * 256 = 32 x 8. With n = 8 a + b and k = c + 32 d the transform is
 *   X[c + 32 d] = sum over b of W8^(b d) W256^(b c) (sum over a of W32^(a c) y[8 a + b])        where WN = e^(-2 pi i/N)
 * The inner sums are computed for the 8 adjacent values of b, the outer ones for 8 values of c at a time: both use
 * whole lanes, with one transposition in between. The input is real, so c = 0 to 16 determine the rest, and 32 real
 * rows are processed as 16 complex ones that are split at the end. */
#ifndef VOICE_VAD_SPECTRUM_H
#define VOICE_VAD_SPECTRUM_H

#include "lanes.h"

enum {
    WINDOW = 256, /* at 8 kHz */
    BINS = WINDOW / 2, /* of 31.25 Hz; the one at 4 kHz is left out */
    ROWS = 16, /* complex ones of LANES numbers */
};

struct complex_lanes {
    lanes re, im;
};

static float window_[WINDOW];
static float between_re[ROWS][LANES], between_im[ROWS][LANES]; /* W256^(b c) */
static float middle_[LANES][LANES]; /* W256^(b (16 + 32 d)): for d = 0 to 3 the real parts, then the imaginary ones */
static float turn4_re[4][4], turn4_im[4][4]; /* W16^(a c) */
static float split_re[ROWS / 2], split_im[ROWS / 2]; /* W32^c */
static float inner_re[ROWS][LANES], inner_im[ROWS][LANES], outer_re[ROWS][LANES], outer_im[ROWS][LANES];
static float turned_re[LANES][ROWS], turned_im[LANES][ROWS];
static int32_t own_[2 * ROWS + 1][LANES], before_own_[2 * ROWS + 1][LANES];
static float middle_row_[LANES]; /* of c = 16 */
static float mirrored_[4][ROWS];
static float power_[BINS];

/* sin(x) for 0 <= x <= pi/2: a Taylor series, for tables at start only; its error is below a float's precision. */
static double quarter_sine(double x) {
    double term = x, sum = x;
    for (int n = 1; n < 10; ++n) {
        term *= -x * x / ((2 * n) * (2 * n + 1));
        sum += term;
    }
    return sum;
}

/* sin(2 pi k / WINDOW), any k >= 0. */
static double sine(int k) {
    const double step = 6.283185307179586 / WINDOW;
    const int quarter = WINDOW / 4, in_turn = k % WINDOW, in_half = in_turn % (WINDOW / 2);
    const double value = quarter_sine(step * (in_half <= quarter ? in_half : WINDOW / 2 - in_half));
    return in_turn < WINDOW / 2 ? value : -value;
}

static double cosine(int k) {
    return sine(k + WINDOW / 4);
}

static void spectrum_init(void) {
    for (int k = 0; k < WINDOW; ++k) {
        window_[k] = (float)((0.5 - 0.5 * cosine(k)) / 8); /* Hann; 8 is the gain of halve() */
    }
    for (int c = 0; c < ROWS; ++c) {
        const double half = c % (ROWS / 2) == 0 ? 1 : 0.5; /* that split() leaves out */
        for (int b = 0; b < LANES; ++b) {
            between_re[c][b] = (float)(half * cosine(b * c));
            between_im[c][b] = (float)(-half * sine(b * c));
        }
        turn4_re[c / 4][c % 4] = (float)cosine(16 * (c / 4) * (c % 4));
        turn4_im[c / 4][c % 4] = (float)-sine(16 * (c / 4) * (c % 4));
    }
    for (int i = 0; i < LANES * 4; ++i) {
        const int b = i / 4, d = i % 4;
        middle_[b][d] = (float)cosine(b * (16 + 32 * d));
        middle_[b][d + 4] = (float)-sine(b * (16 + 32 * d));
    }
    for (int c = 0; c < ROWS / 2; ++c) {
        split_re[c] = (float)cosine(8 * c);
        split_im[c] = (float)-sine(8 * c);
    }
}

static inline struct complex_lanes times(struct complex_lanes x, lanes re, lanes im) {
    return (struct complex_lanes){x.re * re - x.im * im, x.re * im + x.im * re};
}

static inline struct complex_lanes times_number(struct complex_lanes x, float re, float im) {
    return (struct complex_lanes){x.re * re - x.im * im, x.re * im + x.im * re};
}

static inline struct complex_lanes plus(struct complex_lanes x, struct complex_lanes y) {
    return (struct complex_lanes){x.re + y.re, x.im + y.im};
}

static inline struct complex_lanes minus(struct complex_lanes x, struct complex_lanes y) {
    return (struct complex_lanes){x.re - y.re, x.im - y.im};
}

/* By -i. */
static inline struct complex_lanes quarter_turn(struct complex_lanes x) {
    return (struct complex_lanes){x.im, -x.re};
}

static inline void transform4(struct complex_lanes* a, struct complex_lanes* b, struct complex_lanes* c,
                              struct complex_lanes* d) {
    const struct complex_lanes ac = plus(*a, *c), ca = minus(*a, *c), bd = plus(*b, *d), db = quarter_turn(minus(*b, *d));
    *a = plus(ac, bd);
    *b = plus(ca, db);
    *c = minus(ac, bd);
    *d = minus(ca, db);
}

/* A transform of 4 over rows at a distance of `apart`, with twiddle factors if given, into every fourth row. */
static inline void transform4_rows(int row, int apart, float (*re)[LANES], float (*im)[LANES], int into,
                                   float (*to_re)[LANES], float (*to_im)[LANES], const float* turn_re,
                                   const float* turn_im) {
    struct complex_lanes x[4];
    NO_LOOP
    for (int i = 0; i < 4; ++i) {
        x[i] = (struct complex_lanes){load(re[row + apart * i]), load(im[row + apart * i])};
    }
    transform4(&x[0], &x[1], &x[2], &x[3]);
    NO_LOOP
    for (int c = 0; c < 4; ++c) {
        const struct complex_lanes y = c == 0 || turn_re == 0 ? x[c] : times_number(x[c], turn_re[c], turn_im[c]);
        store(to_re[into + 4 * c], y.re);
        store(to_im[into + 4 * c], y.im);
    }
    GROUP_ENDS;
}

/* A word contains two samples: its contribution to its own value, and to the previous one. */
STAGE take_words(const int16_t* samples) {
    NO_LOOP
    for (int row = 0; row <= 2 * ROWS; ++row) {
        const int_lanes words = *(const int_lanes*)(samples + 2 * LANES * row);
        const int_lanes first = (words << 16) >> 16, second = words >> 16;
        *(int_lanes*)own_[row] = first + second + second + second;
        *(int_lanes*)before_own_[row] = first + first + first + second;
        GROUP_ENDS;
    }
}

/* Half the rate: four neighbours weighted 1 3 3 1, a low pass that is zero at 8 kHz and 15 dB down at 5 kHz. Even rows are
 * real parts, odd ones imaginary. */
STAGE halve(void) {
    NO_LOOP
    for (int row = 0; row < 2 * ROWS; ++row) {
        const int_lanes sum = *(const int_lanes*)own_[row] + *(const int_lanes*)(before_own_[row] + 1);
        store((row % 2 == 0 ? inner_re : inner_im)[row / 2],
              __builtin_convertvector(sum, lanes) * load(window_ + LANES * row));
        GROUP_ENDS;
    }
}

/* Transforms of 16 over rows, as 4 x 4. */
STAGE transform_rows(void) {
    NO_LOOP
    for (int a = 0; a < 4; ++a) {
        transform4_rows(a, 4, inner_re, inner_im, a, outer_re, outer_im, turn4_re[a], turn4_im[a]);
    }
}

STAGE transform_rows_again(void) {
    NO_LOOP
    for (int c = 0; c < 4; ++c) {
        transform4_rows(4 * c, 1, outer_re, outer_im, c, inner_re, inner_im, 0, 0);
    }
}

static inline void put_row(int c, struct complex_lanes x) {
    const struct complex_lanes y = times(x, load(between_re[c]), load(between_im[c]));
    store(outer_re[c], y.re);
    store(outer_im[c], y.im);
}

/* The even rows are the real parts and the odd ones the imaginary parts: splits the two into outer_ and
 * middle_row_. */
STAGE split(void) {
    NO_LOOP
    for (int c = 1; c < ROWS / 2; ++c) {
        const int mirror = ROWS - c;
        const struct complex_lanes x = {load(inner_re[c]), load(inner_im[c])};
        const struct complex_lanes y = {load(inner_re[mirror]), -load(inner_im[mirror])};
        const struct complex_lanes even = plus(x, y);
        const struct complex_lanes odd = times_number(quarter_turn(minus(x, y)), split_re[c], split_im[c]);
        const struct complex_lanes high = minus(even, odd);
        put_row(c, plus(even, odd));
        put_row(mirror, (struct complex_lanes){high.re, -high.im});
        GROUP_ENDS;
    }
    put_row(ROWS / 2, (struct complex_lanes){load(inner_re[ROWS / 2]), -load(inner_im[ROWS / 2])});
    const lanes re = load(inner_re[0]), im = load(inner_im[0]);
    store(outer_re[0], re + im);
    store(outer_im[0], (lanes){0});
    store(middle_row_, re - im);
}

STAGE transpose(void) {
    NO_LOOP
    for (int b = 0; b < LANES; ++b) {
        NO_LOOP
        for (int c = 0; c < ROWS; ++c) {
            turned_re[b][c] = outer_re[c][b];
        }
        NO_LOOP
        for (int c = 0; c < ROWS; ++c) {
            turned_im[b][c] = outer_im[c][b];
        }
        GROUP_ENDS;
    }
}

static inline void put_power(float* to, struct complex_lanes x) {
    store(to, x.re * x.re + x.im * x.im);
}

/* A transform of 4 over b = `first`, first + 2 and so on, for LANES values of c, in place. */
static inline void transform4_columns(int first, int c) {
    struct complex_lanes x[4];
    NO_LOOP
    for (int i = 0; i < 4; ++i) {
        x[i] = (struct complex_lanes){load(turned_re[first + 2 * i] + c), load(turned_im[first + 2 * i] + c)};
    }
    transform4(&x[0], &x[1], &x[2], &x[3]);
    NO_LOOP
    for (int i = 0; i < 4; ++i) {
        store(turned_re[first + 2 * i] + c, x[i].re);
        store(turned_im[first + 2 * i] + c, x[i].im);
    }
    GROUP_ENDS;
}

/* Transforms of 8, as 2 x 4. */
STAGE transform_columns(void) {
    NO_LOOP
    for (int c = 0; c < ROWS; c += LANES) {
        transform4_columns(0, c);
        transform4_columns(1, c);
    }
}

STAGE transform_columns_again(void) {
    const float half = 0.70710678F;
    NO_LOOP
    for (int i = 0; i < 2 * 4; ++i) {
        const int c = i / 4 * LANES, d = i % 4;
        const struct complex_lanes even = {load(turned_re[2 * d] + c), load(turned_im[2 * d] + c)};
        const struct complex_lanes x = {load(turned_re[2 * d + 1] + c), load(turned_im[2 * d + 1] + c)};
        const struct complex_lanes odd = d == 0   ? x
                                         : d == 1 ? times_number(x, half, -half)
                                         : d == 2 ? quarter_turn(x)
                                                  : times_number(x, -half, -half);
        put_power(power_ + 32 * d + c, plus(even, odd));
        put_power(mirrored_[d] + c, minus(even, odd));
        GROUP_ENDS;
    }
}

STAGE middle_column(void) {
    lanes sum = {0};
    NO_LOOP
    for (int b = 0; b < LANES; ++b) {
        sum += middle_row_[b] * load(middle_[b]);
    }
    NO_LOOP
    for (int d = 0; d < 4; ++d) {
        power_[16 + 32 * d] = sum[d] * sum[d] + sum[d + 4] * sum[d + 4];
    }
}

STAGE mirror(void) {
    NO_LOOP
    for (int d = 0; d < 4; ++d) {
        NO_LOOP
        for (int c = 1; c < ROWS; ++c) {
            power_[BINS - 32 * d - c] = mirrored_[d][c];
        }
    }
}

/* Fills power_ from 2 * WINDOW + 2 samples at 16 kHz, 4-aligned. */
static void spectrum_compute(const int16_t* samples) {
    take_words(samples);
    halve();
    transform_rows();
    transform_rows_again();
    split();
    transpose();
    transform_columns();
    transform_columns_again();
    middle_column();
    mirror();
}

#endif
