/* The implementation of wasm-rt.h, and the table that the host loads. */
#include <stdarg.h>

#include "abi.h"
#include "module.h" /* wasm2c's, in build.sh's folder */
#include "sandbox/vad_module.h"

typedef Z_vad_instance_t instance_t;

_Static_assert((int)WASM_RT_TRAP_EXHAUSTION == (int)VAD_TRAP_EXHAUSTION, "the host tells a runaway by this number");

static vad_trap_handler trap_handler; /* set once, before the first call */

void wasm_rt_trap(wasm_rt_trap_t trap) {
    trap_handler((int)trap);
    abort(); /* the handler does not return */
}

bool wasm_rt_is_initialized(void) {
    return true;
}

/* The number of a type encodes its parameters and results: equal types get equal numbers without a table. */
uint32_t wasm_rt_register_func_type(uint32_t params, uint32_t results, ...) {
    enum { TYPES = 7, MOST = 9 }; /* fits into 32 bits together with the count of results */
    if (params + results > MOST) {
        wasm_rt_trap(WASM_RT_TRAP_CALL_INDIRECT);
    }
    va_list types;
    va_start(types, results);
    uint32_t number = results;
    for (uint32_t i = 0; i < params + results; ++i) {
        number = number * TYPES + (uint32_t)va_arg(types, int) + 1;
    }
    va_end(types);
    return number + 1;
}

void wasm_rt_allocate_memory(wasm_rt_memory_t* memory, uint32_t pages, uint32_t max_pages) {
    (void)max_pages;
    if (pages != SANDBOX_PAGES) {
        wasm_rt_trap(WASM_RT_TRAP_OOB);
    }
    memory->pages = pages;
    memset(memory->data, 0, sizeof memory->data);
}

/* Refused, which a module sees as a failed allocation. */
uint32_t wasm_rt_grow_memory(wasm_rt_memory_t* memory, uint32_t pages) {
    (void)memory;
    return pages == 0 ? SANDBOX_PAGES : UINT32_MAX;
}

void wasm_rt_free_memory(wasm_rt_memory_t* memory) {
    (void)memory;
}

void wasm_rt_allocate_funcref_table(wasm_rt_funcref_table_t* table, uint32_t elements, uint32_t max_elements) {
    (void)max_elements;
    if (elements > SANDBOX_TABLE) {
        wasm_rt_trap(WASM_RT_TRAP_CALL_INDIRECT);
    }
    table->size = elements;
    table->data = table->slots;
}

void wasm_rt_free_funcref_table(wasm_rt_funcref_table_t* table) {
    (void)table;
}

static void set_trap_handler(vad_trap_handler handler) {
    trap_handler = handler;
}

static instance_t* allow(void* memory, uint32_t steps) {
    instance_t* instance = memory;
    instance->w2c_memory.steps_left = steps;
    instance->w2c_memory.depth = 0;
    return instance;
}

/* The host makes instances on one thread. */
static void instantiate(void* memory) {
    static bool ready;
    if (!ready) {
        Z_vad_init_module();
        ready = true;
    }
    Z_vad_instantiate(allow(memory, VAD_STEPS_OF_INIT));
}

static uint32_t abi_version(void* memory) {
    return Z_vadZ_vad_abi_version(allow(memory, VAD_STEPS_PER_CALL));
}

static uint32_t stream_count(void* memory) {
    return Z_vadZ_vad_stream_count(allow(memory, VAD_STEPS_PER_CALL));
}

static uint32_t frame_offset(void* memory) {
    return Z_vadZ_vad_frame_offset(allow(memory, VAD_STEPS_PER_CALL));
}

static uint32_t state_offset(void* memory) {
    return Z_vadZ_vad_state_offset(allow(memory, VAD_STEPS_PER_CALL));
}

static uint32_t state_bytes(void* memory) {
    return Z_vadZ_vad_state_bytes(allow(memory, VAD_STEPS_PER_CALL));
}

static void init(void* memory) {
    Z_vadZ_vad_init(allow(memory, VAD_STEPS_OF_INIT));
}

static void reset(void* memory, uint32_t stream) {
    Z_vadZ_vad_reset(allow(memory, VAD_STEPS_PER_CALL), stream);
}

static uint32_t process(void* memory, uint32_t stream) {
    return Z_vadZ_vad_process(allow(memory, VAD_STEPS_PER_CALL), stream);
}

__attribute__((visibility("default"))) const struct vad_module voice_vad_module = {
    .layout = VAD_MODULE_LAYOUT,
    .set_trap_handler = set_trap_handler,
    .instance_bytes = sizeof(instance_t),
    .instantiate = instantiate,
    .memory_offset = offsetof(instance_t, w2c_memory) + offsetof(wasm_rt_memory_t, data),
    .memory_bytes = SANDBOX_BYTES,
    .abi_version = abi_version,
    .stream_count = stream_count,
    .frame_offset = frame_offset,
    .state_offset = state_offset,
    .state_bytes = state_bytes,
    .init = init,
    .reset = reset,
    .process = process,
};
