/* A vector of eight numbers. The supported subset of WebAssembly has no such type: the first compiler splits them into
 * eight scalars, and the compiler that generates machine code from the module combines them again. */
#ifndef VOICE_VAD_LANES_H
#define VOICE_VAD_LANES_H

#include <stdint.h>

/* In the sandbox, every iteration of a loop counts towards a limit: fewer, longer iterations are cheaper. Without a
 * loop, addresses are constant, and need no check either. */
#ifdef __wasm__
#define UNROLL _Pragma("clang loop unroll_count(4)")
#define NO_LOOP _Pragma("clang loop unroll(full)")
#else
#define UNROLL
#define NO_LOOP
#endif

/* A separate function in the module and in its machine code: values are passed through memory. */
#define STAGE __attribute__((noinline)) static void

/* Code between two of these is vectorized together: compilers only search a few hundred values. */
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
