/* Power spectrum of 0 to 4 kHz: 512 samples become 256 at half the rate, and those go through an FFT as 128 complex
 * values. Radix 4 (the last pass 2), Stockham (no bit reversal), real and imaginary parts in arrays of their own so that
 * the inner loops are straight runs. What lies above 4 kHz is not there in narrow-band calls: one number is enough for
 * it, and it is not made here. */
#ifndef VOICE_VAD_SPECTRUM_H
#define VOICE_VAD_SPECTRUM_H

#include <stdint.h>

/* In WebAssembly every round of a loop is counted against a limit: fewer, longer rounds are cheaper. */
#ifdef __wasm__
#define UNROLL _Pragma("clang loop unroll_count(4)")
#else
#define UNROLL
#endif

enum {
    WINDOW = 256, /* at 8 kHz */
    POINTS = WINDOW / 2,
    BINS = POINTS, /* of 31.25 Hz; the one at 4 kHz is left out */
};

static float window_[WINDOW];
static float twiddle_re[WINDOW], twiddle_im[WINDOW]; /* exp(-2 pi i k / WINDOW) */
static float work_re[2][POINTS], work_im[2][POINTS];
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

static void spectrum_init(void) {
    for (int k = 0; k < WINDOW; ++k) {
        twiddle_re[k] = (float)sine(k + WINDOW / 4);
        twiddle_im[k] = (float)-sine(k);
        window_[k] = (float)((0.5 - 0.5 * sine(k + WINDOW / 4)) / 8); /* Hann; 8 is the gain of halved() */
    }
}

/* Four neighbours weighted 1 3 3 1: a low pass that is zero at 8 kHz and 15 dB down at 5 kHz. */
static inline int32_t halved(const int16_t* x) {
    return x[0] + 3 * (x[1] + x[2]) + x[3];
}

/* One pass over POINTS values: butterflies over quarters of runs of `n`, each run `s` values wide. */
__attribute__((always_inline)) static inline void pass(int n, int s, const float* restrict xr, const float* restrict xi,
                                                       float* restrict yr, float* restrict yi) {
    const int m = n / 4, turn = WINDOW / n;
    for (int p = 0; p < m; ++p) {
        const float w1r = twiddle_re[turn * p], w1i = twiddle_im[turn * p];
        const float w2r = twiddle_re[2 * turn * p], w2i = twiddle_im[2 * turn * p];
        const float w3r = twiddle_re[3 * turn * p], w3i = twiddle_im[3 * turn * p];
        UNROLL
        for (int q = 0; q < s; ++q) {
            const int a = q + s * p, b = a + s * m, c = b + s * m, d = c + s * m, out = q + s * 4 * p;
            const float ac_r = xr[a] + xr[c], ac_i = xi[a] + xi[c], ca_r = xr[a] - xr[c], ca_i = xi[a] - xi[c];
            const float bd_r = xr[b] + xr[d], bd_i = xi[b] + xi[d], db_r = xr[b] - xr[d], db_i = xi[b] - xi[d];
            const float r1 = ca_r + db_i, i1 = ca_i - db_r, r2 = ac_r - bd_r, i2 = ac_i - bd_i;
            const float r3 = ca_r - db_i, i3 = ca_i + db_r;
            yr[out] = ac_r + bd_r, yi[out] = ac_i + bd_i;
            yr[out + s] = r1 * w1r - i1 * w1i, yi[out + s] = r1 * w1i + i1 * w1r;
            yr[out + 2 * s] = r2 * w2r - i2 * w2i, yi[out + 2 * s] = r2 * w2i + i2 * w2r;
            yr[out + 3 * s] = r3 * w3r - i3 * w3i, yi[out + 3 * s] = r3 * w3i + i3 * w3r;
        }
    }
}

static inline void last_pass(const float* restrict xr, const float* restrict xi, float* restrict yr,
                             float* restrict yi) {
    UNROLL
    for (int a = 0, b = POINTS / 2; b < POINTS; ++a, ++b) {
        yr[a] = xr[a] + xr[b], yi[a] = xi[a] + xi[b];
        yr[b] = xr[a] - xr[b], yi[b] = xi[a] - xi[b];
    }
}

/* The even samples went in as real parts and the odd ones as imaginary parts: takes the two apart again. */
static inline void split_power(const float* restrict re, const float* restrict im) {
    power_[0] = (re[0] + im[0]) * (re[0] + im[0]);
    UNROLL
    for (int k = 1; k <= POINTS / 2; ++k) {
        const int mirror = POINTS - k;
        const float even_r = 0.5F * (re[k] + re[mirror]), even_i = 0.5F * (im[k] - im[mirror]);
        const float odd_r = 0.5F * (im[k] + im[mirror]), odd_i = 0.5F * (re[mirror] - re[k]);
        const float turned_r = odd_r * twiddle_re[k] - odd_i * twiddle_im[k];
        const float turned_i = odd_r * twiddle_im[k] + odd_i * twiddle_re[k];
        const float low_r = even_r + turned_r, low_i = even_i + turned_i;
        const float high_r = even_r - turned_r, high_i = even_i - turned_i;
        power_[k] = low_r * low_r + low_i * low_i;
        power_[mirror] = high_r * high_r + high_i * high_i;
    }
}

/* Fills power_ from 2 * WINDOW + 2 samples at 16 kHz. */
static void spectrum_compute(const int16_t* restrict samples) {
    UNROLL
    for (int i = 0; i < POINTS; ++i) {
        work_re[0][i] = (float)halved(samples + 4 * i) * window_[2 * i];
        work_im[0][i] = (float)halved(samples + 4 * i + 2) * window_[2 * i + 1];
    }
    pass(128, 1, work_re[0], work_im[0], work_re[1], work_im[1]);
    pass(32, 4, work_re[1], work_im[1], work_re[0], work_im[0]);
    pass(8, 16, work_re[0], work_im[0], work_re[1], work_im[1]);
    last_pass(work_re[1], work_im[1], work_re[0], work_im[0]);
    split_power(work_re[0], work_im[0]);
}

#endif
