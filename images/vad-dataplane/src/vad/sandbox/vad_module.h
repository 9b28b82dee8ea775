/* The interface of a loadable module (a shared object that build.sh creates): one table under one name. */
#ifndef VOICE_VAD_MODULE_H
#define VOICE_VAD_MODULE_H

#include <stddef.h>
#include <stdint.h>

#define VAD_MODULE_SYMBOL "voice_vad_module"
enum { VAD_MODULE_LAYOUT = 2 }; /* of this table; what the WebAssembly inside of it offers is VAD_ABI_VERSION */

enum { VAD_TRAP_EXHAUSTION = 7 }; /* too many steps, or too deeply nested calls; other reasons are faults */

/* Called by a module that exceeds its bounds; must not return. */
typedef void (*vad_trap_handler)(int reason);

struct vad_module {
    uint32_t layout;
    void (*set_trap_handler)(vad_trap_handler handler);

    /* An instance is `instance_bytes` of zeroed memory, 64-aligned, that `instantiate` fills in. No call allocates. */
    size_t instance_bytes;
    void (*instantiate)(void* instance);
    /* Where the module's memory is inside of an instance, and its size. */
    size_t memory_offset;
    size_t memory_bytes;

    /* The exports of abi.h. Each may end in the trap handler. */
    uint32_t (*abi_version)(void* instance);
    uint32_t (*stream_count)(void* instance);
    uint32_t (*frame_offset)(void* instance);
    uint32_t (*state_offset)(void* instance);
    uint32_t (*state_bytes)(void* instance);
    void (*init)(void* instance);
    void (*reset)(void* instance, uint32_t stream);
    uint32_t (*process)(void* instance, uint32_t stream);
};

#endif
