/* The runtime that wasm2c's output needs, as a replacement of wabt's: a sandbox without signal handlers, system calls
 * and locks. guard.h contains the checks of all limits.
 *
 * The whole module is one flat object. Its memory is an array inside of it whose size is a constant, so the compiler
 * proves most accesses to be in bounds and drops their checks. */
#ifndef WASM_RT_H_
#define WASM_RT_H_

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define WASM_RT_USE_STACK_DEPTH_COUNT 0
#define WASM_RT_MEMCHECK_SIGNAL_HANDLER 0
#define wasm_rt_memcpy __builtin_memcpy

#ifndef SANDBOX_PAGES
#error "SANDBOX_PAGES: the module's memory in pages of 64 KiB, which build.sh reads from the module"
#endif
enum {
    SANDBOX_BYTES = SANDBOX_PAGES * 65536,
    SANDBOX_TABLE = 64, /* functions that can be called indirectly */
    SANDBOX_DEPTH = 32, /* nested calls; build.sh rejects functions with a stack frame above 16 KiB */
};

typedef enum {
    WASM_RT_TRAP_NONE,
    WASM_RT_TRAP_OOB,
    WASM_RT_TRAP_INT_OVERFLOW,
    WASM_RT_TRAP_DIV_BY_ZERO,
    WASM_RT_TRAP_INVALID_CONVERSION,
    WASM_RT_TRAP_UNREACHABLE,
    WASM_RT_TRAP_CALL_INDIRECT,
    WASM_RT_TRAP_EXHAUSTION, /* too many steps, or too many calls within calls */
} wasm_rt_trap_t;

typedef enum { WASM_RT_I32, WASM_RT_I64, WASM_RT_F32, WASM_RT_F64, WASM_RT_FUNCREF, WASM_RT_EXTERNREF } wasm_rt_type_t;

typedef void (*wasm_rt_function_ptr_t)(void);

typedef struct {
    uint32_t func_type;
    wasm_rt_function_ptr_t func;
    void* module_instance;
} wasm_rt_funcref_t;

typedef void* wasm_rt_externref_t;
static const wasm_rt_funcref_t wasm_rt_funcref_null_value = {0, NULL, NULL};
static const wasm_rt_externref_t wasm_rt_externref_null_value = NULL;

typedef struct {
    uint32_t size;
    wasm_rt_funcref_t* data; /* slots; wasm2c's own code changes through a const table, hence a pointer */
    wasm_rt_funcref_t slots[SANDBOX_TABLE];
} wasm_rt_funcref_table_t;

typedef struct {
    uint32_t size;
    wasm_rt_externref_t* data;
} wasm_rt_externref_table_t; /* named in wasm2c's output, but build.sh admits no module that has one */

typedef struct {
    uint32_t steps_left;
    uint32_t depth;
    uint32_t pages;
    _Alignas(64) uint8_t data[SANDBOX_BYTES];
} wasm_rt_memory_t;

bool wasm_rt_is_initialized(void);
__attribute__((noreturn, cold)) void wasm_rt_trap(wasm_rt_trap_t trap);
uint32_t wasm_rt_register_func_type(uint32_t params, uint32_t results, ...);
void wasm_rt_allocate_memory(wasm_rt_memory_t* memory, uint32_t pages, uint32_t max_pages);
uint32_t wasm_rt_grow_memory(wasm_rt_memory_t* memory, uint32_t pages);
void wasm_rt_free_memory(wasm_rt_memory_t* memory);
void wasm_rt_allocate_funcref_table(wasm_rt_funcref_table_t* table, uint32_t elements, uint32_t max_elements);
void wasm_rt_free_funcref_table(wasm_rt_funcref_table_t* table);

#endif
