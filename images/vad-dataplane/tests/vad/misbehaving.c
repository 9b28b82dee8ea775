/* Modules that break the rules, one per -DKIND_...; the host has to cope with each. KIND_ALL_SPEECH keeps to them. */
#include <stdint.h>

#include "vad/abi.h"

#define EXPORT(name) __attribute__((export_name(#name))) name

/* What the frame's first sample tells the module to do. */
enum { BEHAVE = 0, READ_OUTSIDE, WRITE_OUTSIDE, LOOP, RECURSE, EXPLODE, DIVIDE, GROW, CALL_WRONG };

static volatile int16_t frame[VAD_FRAME_SAMPLES] __attribute__((aligned(4)));
static volatile uint32_t sink, zero;

uint32_t EXPORT(vad_abi_version)(void);
uint32_t EXPORT(vad_stream_count)(void);
uintptr_t EXPORT(vad_frame_offset)(void);
uintptr_t EXPORT(vad_state_offset)(void);
uint32_t EXPORT(vad_state_bytes)(void);
void EXPORT(vad_init)(void);
void EXPORT(vad_reset)(uint32_t stream);
uint32_t EXPORT(vad_process)(uint32_t stream);

uint32_t vad_abi_version(void) {
#ifdef KIND_WRONG_ABI
    return VAD_ABI_VERSION + 1;
#else
    return VAD_ABI_VERSION;
#endif
}

uint32_t vad_stream_count(void) {
    return 4096;
}

uintptr_t vad_frame_offset(void) {
#ifdef KIND_FRAME_OUTSIDE
    return 0xfffffffc;
#else
    return (uintptr_t)frame;
#endif
}

uintptr_t vad_state_offset(void) {
    return 0;
}

uint32_t vad_state_bytes(void) {
#ifdef KIND_STATES_OUTSIDE
    return 0x100000;
#else
    return 0;
#endif
}

void vad_init(void) {
#ifdef KIND_STARTS_FOR_EVER
    for (;;) {
        ++sink;
    }
#endif
}

/* Never deeper than the limit on calls within calls, and yet 2^30 calls: steps have to stop it. */
__attribute__((noinline)) static void explode(int depth) {
    ++sink;
    if (depth > 0) {
        explode(depth - 1);
        explode(depth - 1);
    }
}

#pragma clang diagnostic ignored "-Winfinite-recursion"
__attribute__((noinline)) static uint32_t recurse(uint32_t n) {
    sink += n;
    return recurse(n + 1) + sink;
}

void vad_reset(uint32_t stream) {
    if (stream == 13) {
        *(volatile uint8_t*)0xfffffff0 = 1;
    }
}

typedef uint64_t (*wrong_type)(uint64_t, float);

uint32_t vad_process(uint32_t stream) {
#ifdef KIND_ALL_SPEECH
    const int16_t order = BEHAVE;
#else
    const int16_t order = frame[0];
#endif
    switch (order) {
        case READ_OUTSIDE: sink = *(volatile uint32_t*)0x7fffffff; break;
        case WRITE_OUTSIDE: *(volatile uint64_t*)((uintptr_t)__builtin_wasm_memory_size(0) * 65536 - 4) = 1; break;
        case LOOP:
            for (;;) {
                ++sink;
            }
        case RECURSE: return recurse(stream);
        case EXPLODE: explode(30); break;
        case DIVIDE: sink = 7 / zero; break;
        case GROW: sink = (uint32_t)__builtin_wasm_memory_grow(0, 1); return sink == UINT32_MAX ? VAD_SPEECH : 0;
        case CALL_WRONG: sink = (uint32_t)((wrong_type)(uintptr_t)(vad_reset))(1, 1); break;
        default: break;
    }
    return VAD_SPEECH | VAD_ONSET | 200U << VAD_PRE_ROLL_SHIFT;
}
