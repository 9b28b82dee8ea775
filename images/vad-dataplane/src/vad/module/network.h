/* Two small layers with rectifiers: from the inputs of a frame to the log-odds that there is speech. */
#ifndef VOICE_VAD_NETWORK_H
#define VOICE_VAD_NETWORK_H

#include "features.h"
#include "learned.h"

_Static_assert(HIDDEN % LANES == 0, "the first layer is computed in groups of LANES");

/* Eight of the first layer's sums at a time, so that they stay in registers. */
static inline void first_layer(int from, float* restrict out) {
    float sum[LANES];
#pragma GCC unroll 8
    for (int lane = 0; lane < LANES; ++lane) {
        sum[lane] = bias_1[from + lane];
    }
    UNROLL
    for (int i = 0; i < INPUTS; ++i) {
        const float x = inputs_[i];
#pragma GCC unroll 8
        for (int lane = 0; lane < LANES; ++lane) {
            sum[lane] += x * weight_1[i][from + lane];
        }
    }
#pragma GCC unroll 8
    for (int lane = 0; lane < LANES; ++lane) {
        out[lane] = sum[lane] > 0 ? sum[lane] : 0;
    }
}

static float network(void) {
    float first[HIDDEN], second[HIDDEN_2];
    for (int from = 0; from < HIDDEN; from += LANES) {
        first_layer(from, first + from);
    }
    for (int h = 0; h < HIDDEN_2; ++h) {
        second[h] = bias_2[h];
    }
    for (int i = 0; i < HIDDEN; ++i) {
        for (int h = 0; h < HIDDEN_2; ++h) {
            second[h] += first[i] * weight_2[i][h];
        }
    }
    float logit = bias_3;
    for (int h = 0; h < HIDDEN_2; ++h) {
        logit += (second[h] > 0 ? second[h] : 0) * weight_3[h];
    }
    return logit;
}

#endif
