/* What the XDP program and the data plane share: keys, values and counters of its maps. */
#ifndef VOICE_XDP_STEER_H
#define VOICE_XDP_STEER_H

#include <linux/types.h>

enum voice_steer_limits {
    VOICE_STEER_QUEUES = 64,
    VOICE_STEER_SESSIONS = 65536,
    VOICE_STEER_ADMISSION_BYTES = 65536, /* of the ring of admission requests; a power of two and whole pages */
};

/* One entry of the session map; its key is the SSRC in host byte order. */
struct voice_steer_session {
    __u64 seen_ns;     /* monotonic time of its last packet; the data plane removes those that fell silent */
    __u64 refilled_ns; /* when tokens were last added */
    __u32 tokens;      /* packets that it may send now, in 1/1000 */
    __u32 blocked;     /* 1: the state store does not know it */
};

/* The only entry of the settings map. */
struct voice_steer_settings {
    __u32 rtp_port;            /* UDP destination port of audio, host byte order */
    __u32 packets_per_s;       /* that one session may send for long */
    __u32 burst_packets;       /* that it may send at once */
    __u32 admissions_per_s;    /* unknown senders that are looked up, over all CPUs' shares */
};

/* Sent once for an unknown SSRC; the answer is an entry of the session map. */
struct voice_steer_admission {
    __u32 ssrc;
    __u32 queue;
};

/* Counters, one array entry each. The names of the drops are those of the contract. */
enum voice_steer_count {
    VOICE_STEER_PASSED,          /* to the kernel: not audio */
    VOICE_STEER_REDIRECTED,      /* to the AF_XDP socket of its queue */
    VOICE_STEER_NOT_RTP,         /* on the audio port, and no RTP packet */
    VOICE_STEER_UNKNOWN_SESSION, /* nobody has admitted its SSRC yet */
    VOICE_STEER_BLOCKED,         /* the state store does not know its SSRC */
    VOICE_STEER_ADMISSION_FULL,  /* unknown, and too many unknown senders are asked about already */
    VOICE_STEER_RATE_LIMITED,    /* more packets than a session sends */
    VOICE_STEER_NO_SOCKET,       /* no AF_XDP socket is bound to the queue: the data plane is starting or gone */
    VOICE_STEER_COUNTS,
};

#endif
