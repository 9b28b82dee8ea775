/* Eight numbers side by side. WebAssembly as it is taken here has no such type: the compiler takes these apart into eight
 * values of one kind after the other, and the one that makes machine code of the module puts them together again. */
#ifndef VOICE_VAD_LANES_H
#define VOICE_VAD_LANES_H

#include <stdint.h>

/* In WebAssembly every round of a loop is counted against a limit: fewer, longer rounds are cheaper. Without a loop at all
 * addresses are known, and need no check either. */
#ifdef __wasm__
#define UNROLL _Pragma("clang loop unroll_count(4)")
#define NO_LOOP _Pragma("clang loop unroll(full)")
#else
#define UNROLL
#define NO_LOOP
#endif

/* A function of its own in the module and in the machine code of it: what is handed on goes through memory. */
#define STAGE __attribute__((noinline)) static void

/* What stands between two of these is put together as one: compilers look no further than some hundred values. */
#define GROUP_ENDS __asm__ volatile("" ::: "memory")

#pragma GCC diagnostic ignored "-Wpsabi" /* functions that take them are inlined */

enum { LANES = 8 };
typedef float lanes __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t int_lanes __attribute__((vector_size(32), aligned(4), may_alias));
typedef int16_t short_lanes __attribute__((vector_size(16), aligned(2), may_alias));

static inline lanes load(const float* from) {
    return *(const lanes*)from;
}

static inline void store(float* to, lanes x) {
    *(lanes*)to = x;
}

static inline float sum_of(lanes x) {
    return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}

#endif
