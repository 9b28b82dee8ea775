/* Two small layers with rectifiers: from the inputs of a frame to the log-odds that there is speech. */
#ifndef VOICE_VAD_NETWORK_H
#define VOICE_VAD_NETWORK_H

#include "features.h"
#include "learned.h"

static float network(void) {
    float first[HIDDEN], second[HIDDEN_2];
    for (int h = 0; h < HIDDEN; ++h) {
        first[h] = bias_1[h];
    }
    for (int i = 0; i < INPUTS; ++i) {
        const float x = inputs_[i];
        UNROLL
        for (int h = 0; h < HIDDEN; ++h) {
            first[h] += x * weight_1[i][h];
        }
    }
    for (int h = 0; h < HIDDEN_2; ++h) {
        second[h] = bias_2[h];
    }
    for (int i = 0; i < HIDDEN; ++i) {
        const float x = first[i] > 0 ? first[i] : 0;
        for (int h = 0; h < HIDDEN_2; ++h) {
            second[h] += x * weight_2[i][h];
        }
    }
    float logit = bias_3;
    for (int h = 0; h < HIDDEN_2; ++h) {
        logit += (second[h] > 0 ? second[h] : 0) * weight_3[h];
    }
    return logit;
}

#endif
