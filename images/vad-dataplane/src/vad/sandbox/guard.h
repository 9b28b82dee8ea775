/* The checks with which build.sh replaces wasm2c's own in its output. `instance` is the module object, the first
 * parameter of every function of that output. */
#undef FUNC_PROLOGUE
#undef FUNC_EPILOGUE
#undef RANGE_CHECK
#undef LOAD_DATA
#undef DEFINE_LOAD
#undef DEFINE_STORE

/* A program that does not terminate repeats a loop or calls functions forever: both use steps. */
#define TAKE_STEP                                              \
    if (UNLIKELY(--instance->w2c_memory.steps_left == 0)) {    \
        TRAP(EXHAUSTION);                                      \
    }
#define FUNC_PROLOGUE                                          \
    TAKE_STEP                                                  \
    if (UNLIKELY(++instance->w2c_memory.depth > SANDBOX_DEPTH)) { \
        TRAP(EXHAUSTION);                                      \
    }
#define FUNC_EPILOGUE --instance->w2c_memory.depth

#define RANGE_CHECK(mem, offset, len)                          \
    if (UNLIKELY((uint64_t)(offset) + (uint64_t)(len) > SANDBOX_BYTES)) { \
        TRAP(OOB);                                             \
    }
#define LOAD_DATA(m, o, i, s)                                  \
    do {                                                       \
        RANGE_CHECK((&m), o, s)                                \
        memcpy(&(m).data[o], i, s);                            \
    } while (0)

/* wasm2c's own keep every load, for what the signal handler sees; here the check is all that can be seen of one. */
#define DEFINE_LOAD(name, t1, t2, t3)                          \
    static inline t3 name(wasm_rt_memory_t* mem, u64 addr) {   \
        RANGE_CHECK(mem, addr, sizeof(t1))                     \
        t1 result;                                             \
        wasm_rt_memcpy(&result, &mem->data[addr], sizeof(t1)); \
        return (t3)(t2)result;                                 \
    }
#define DEFINE_STORE(name, t1, t2)                             \
    static inline void name(wasm_rt_memory_t* mem, u64 addr, t2 value) { \
        RANGE_CHECK(mem, addr, sizeof(t1))                     \
        const t1 wrapped = (t1)value;                          \
        wasm_rt_memcpy(&mem->data[addr], &wrapped, sizeof(t1)); \
    }
