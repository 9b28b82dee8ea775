/* What the XDP program and the data plane share: keys, values and counters of its maps. */
#ifndef VOICE_XDP_STEER_H
#define VOICE_XDP_STEER_H

#include <linux/types.h>

enum voice_steer_limits {
    VOICE_STEER_QUEUES = 64,
    VOICE_STEER_SESSIONS = 65536,
    VOICE_STEER_ADMISSION_BYTES = 65536, /* of the ring of admission requests; a power of two and whole pages */
    /* What others than its sender may send in a session's name: enough for a sender whose address has changed to be
     * authenticated soon, and too little to cost anything. */
    VOICE_STRANGERS_PER_S = 20,
};

/* One entry of the session map; its key is the SSRC in host byte order. */
struct voice_steer_session {
    __u64 sender_paid_ns; /* voice_allow() of its sender, and of all others */
    __u64 others_paid_ns;
    __u32 slot;    /* index into the map of sources */
    __u32 blocked; /* 1: the state store does not know it */
};

/* The only entry of the settings map. */
struct voice_steer_settings {
    __u32 rtp_port;            /* UDP destination port of audio, host byte order */
    __u32 packets_per_s;       /* that a session's sender may send for long, and at once */
    __u32 admissions_per_s;    /* unknown senders that are looked up, of one receive queue */
};

/* Takes one from an allowance of `per_s` a second, of which a second's may come at once. `paid_ns`: until when what came
 * would have taken, at that rate. */
static inline int voice_allow(__u64 *paid_ns, __u64 now_ns, __u32 per_s) {
    const __u64 second = 1000000000;
    const __u64 each = second / per_s;
    const __u64 paid = (*paid_ns > now_ns ? *paid_ns : now_ns) + each;
    if (paid > now_ns + second) {
        return 0;
    }
    *paid_ns = paid;
    return 1;
}

/* Where a packet comes from, as one number, which is not 0. All arguments are in network byte order. */
static inline __u64 voice_source_of_ipv4(__u32 address, __u16 port) { return (__u64)address << 16 | port; }

static inline __u64 voice_source_of_ipv6(const __u32 *address, __u16 port) {
    __u64 mixed = port;
    for (int i = 0; i < 4; ++i) {
        mixed = (mixed ^ address[i]) * 0x9e3779b97f4a7c15ULL;
    }
    return mixed | 1ULL << 63; /* no IPv4 source has this bit */
}

/* Sent once for an unknown SSRC; the answer is an entry of the session map. */
struct voice_steer_admission {
    __u32 ssrc;
};

/* Counters, one array entry each. The names of the drops are those of the contract. */
enum voice_steer_count {
    VOICE_STEER_PASSED,          /* to the kernel: not audio */
    VOICE_STEER_REDIRECTED,      /* to the AF_XDP socket of its queue */
    VOICE_STEER_NOT_RTP,         /* on the audio port, and neither RTP nor RTCP */
    VOICE_STEER_UNKNOWN_SESSION, /* nobody has admitted its SSRC yet */
    VOICE_STEER_BLOCKED,         /* the state store does not know its SSRC */
    VOICE_STEER_ADMISSION_FULL,  /* unknown, and too many unknown senders are asked about already */
    VOICE_STEER_RATE_LIMITED,    /* more packets than a session's sender sends, or than others may in its name */
    VOICE_STEER_NO_SOCKET,       /* no AF_XDP socket is bound to the queue: the data plane is starting or gone */
    VOICE_STEER_COUNTS,
};

#endif
