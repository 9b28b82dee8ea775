/* The interface between the data plane and a VAD module. A module is WebAssembly with no imports and with these exports
 * (C names and types as the module sees them; `memory` is exported too, and does not grow):
 *
 *   uint32_t vad_abi_version(void)         VAD_ABI_VERSION; anything else is refused when the module is loaded
 *   uint32_t vad_stream_count(void)        how many streams it has state for; numbered from 0
 *   uint32_t vad_frame_offset(void)        where the host writes a frame: VAD_FRAME_SAMPLES int16, 4-aligned
 *   uint32_t vad_state_offset(void)        where the state of stream 0 is: the others follow it, and the host
 *                                          prefetches a stream's memory
 *   uint32_t vad_state_bytes(void)         of one stream's state
 *   void     vad_init(void)                called once, before anything below
 *   void     vad_reset(uint32_t stream)    the stream restarts, as after vad_init
 *   uint32_t vad_process(uint32_t stream)  decides about the frame that the host wrote; the fields below, packed
 *
 * Constructors are not run: vad_init initializes the module. One thread at a time calls it. A call may use
 * VAD_STEPS_PER_CALL steps (iterations of loops and calls of functions), vad_init VAD_STEPS_OF_INIT; a module that
 * exceeds this is stopped and not called again. */
#ifndef VOICE_VAD_ABI_H
#define VOICE_VAD_ABI_H

enum {
    VAD_ABI_VERSION = 2,

    VAD_SAMPLE_RATE = 16000,
    VAD_FRAME_SAMPLES = 320, /* 20 ms */

    VAD_STEPS_PER_CALL = 100000,
    VAD_STEPS_OF_INIT = 10000000,

    /* Decision, bits 0 to 15. */
    VAD_SPEECH = 1 << 0,   /* send this frame */
    VAD_ONSET = 1 << 1,    /* speech starts here: send the pre-roll before this frame */
    VAD_LEARNING = 1 << 2, /* the stream is too young for the module to know its noise: speech if in doubt */
    VAD_GATED = 1 << 3,    /* decided by energy alone */
    VAD_PRE_ROLL_SHIFT = 8, /* bits 8 to 15: frames before this one to send, with VAD_ONSET only */
    VAD_PRE_ROLL_MASK = 0xff,
    VAD_PRE_ROLL_MAX = 16, /* number of frames that the host keeps; a larger number is reduced to it */
};

#endif
