/* Shared by the XDP program and the data plane: keys, values and counters of its maps. */
#ifndef VOICE_XDP_STEER_H
#define VOICE_XDP_STEER_H

#include <linux/types.h>

enum voice_steer_limits {
    VOICE_STEER_QUEUES = 64,
    VOICE_STEER_SESSIONS = 65536,
    VOICE_STEER_ADMISSION_BYTES = 65536, /* of the ring of admission requests; a power of two and whole pages */
    VOICE_STEER_SOURCES = 2, /* last addresses of a session, such as two alternating uplinks */
    /* Packets with a session's SSRC from other addresses, as many as a call sends. Authenticated ones are refunded, so
     * this only limits forgeries. */
    VOICE_STRANGERS_PER_S = 50,
    /* Packets from a session's own addresses above its limit: attackers who know its address and port. A core
     * authenticates about a million per second, so this is 1 % of it. */
    VOICE_FORGERIES_PER_S = 10000,
    /* Look-ups of an address before it counts as flooding: a caller's address needs one per call. */
    VOICE_LOOKUPS_OF_ADDRESS_PER_S = 10,
    VOICE_STEER_ADDRESSES = 4096,
    VOICE_STEER_TURNED_AWAY = 65536, /* senders; a million packets per second overwrite a caller's entry within 65 ms */
};

/* One entry of the session map; its key is the SSRC in host byte order. */
struct voice_steer_session {
    __u64 known_paid_ns; /* voice_allow() of its own addresses */
    __u32 slot;    /* index into the map of senders */
    __u32 blocked; /* 1: the state store does not know it */
};

/* One entry of the map of senders, by the session's slot. The data plane writes it after it authenticated a packet,
 * without a system call. */
struct voice_steer_senders {
    __u64 sources[VOICE_STEER_SOURCES]; /* the last one first; 0: none */
    __u64 others_paid_ns;               /* voice_allow() of all other addresses */
    __u64 unused;
};

/* The only entry of the settings map. */
struct voice_steer_settings {
    __u32 rtp_port;            /* UDP destination port of audio, host byte order */
    __u32 packets_per_s;       /* sustained limit of a session, and its burst */
    __u32 admissions_per_s;    /* unknown senders that are looked up, of one receive queue */
};

#define VOICE_SECOND_NS 1000000000ULL

/* Consumes one of an allowance of `per_s` per second, with bursts of `burst_ns`, and at least one.
 * `paid_ns`: the time until which the previous ones would have lasted at that rate. */
static inline int voice_allow_burst(__u64 *paid_ns, __u64 now_ns, __u32 per_s, __u64 burst_ns) {
    const __u64 each = VOICE_SECOND_NS / per_s;
    const __u64 paid = (*paid_ns > now_ns ? *paid_ns : now_ns) + each;
    if (paid > now_ns + (burst_ns > each ? burst_ns : each)) {
        return 0;
    }
    *paid_ns = paid;
    return 1;
}

/* The same, with a burst of a second. */
static inline int voice_allow(__u64 *paid_ns, __u64 now_ns, __u32 per_s) {
    return voice_allow_burst(paid_ns, now_ns, per_s, VOICE_SECOND_NS);
}

/* Consumes one of the allowance of look-ups for an unknown sender. A flood has few addresses, or uses each SSRC once;
 * a caller's address causes few look-ups, and a rejected caller sends again 20 ms later. Two fifths of a second's
 * look-ups may be used at once by any sender. One fifth is reserved for addresses with few look-ups, one for senders
 * that were rejected before, and one for those that are both.
 * `address_paid_ns`: voice_allow() of the sender's address. `turned_away`: the most recently rejected sender, among
 * those that share the entry. */
static inline int voice_allow_look_up(__u64 *paid_ns, __u64 *address_paid_ns, __u64 *turned_away, __u64 sender,
                                      __u64 now_ns, __u32 per_s) {
    const __u64 asks_little = (__u64)voice_allow(address_paid_ns, now_ns, VOICE_LOOKUPS_OF_ADDRESS_PER_S);
    const __u64 persists = *turned_away == sender;
    if (voice_allow_burst(paid_ns, now_ns, per_s, VOICE_SECOND_NS / 5 * (2 + asks_little + 2 * persists))) {
        return 1;
    }
    *turned_away = sender;
    return 0;
}

/* The entry of a key in a table of `entries`, which several keys may share. */
static inline __u32 voice_entry_of(__u64 key, __u32 entries) {
    return (__u32)((key * 0x9e3779b97f4a7c15ULL) >> 40) % entries;
}

/* Refunds what voice_allow() has consumed, up to the full allowance. */
static inline __u64 voice_paid_back(__u64 paid_ns, __u32 per_s) {
    const __u64 each = VOICE_SECOND_NS / per_s;
    return paid_ns > each ? paid_ns - each : 0;
}

/* The address of a source, or a hash of it. */
static inline __u32 voice_address_of(__u64 source) { return (__u32)(source >> 16); }

/* A sender of an unknown session, as one number. */
static inline __u64 voice_sender_of(__u32 ssrc, __u64 source) { return (__u64)ssrc << 32 | voice_address_of(source); }

/* Sent once for an unknown SSRC; the answer is an entry of the session map. */
struct voice_steer_admission {
    __u32 ssrc;
};

/* Counters, one array entry each. The names of the drops are those of the contract. */
enum voice_steer_count {
    VOICE_STEER_PASSED,          /* to the kernel: not audio */
    VOICE_STEER_REDIRECTED,      /* to the AF_XDP socket of its queue */
    VOICE_STEER_NOT_RTP,         /* on the audio port, and neither RTP nor RTCP */
    VOICE_STEER_UNKNOWN_SESSION, /* its SSRC is not admitted yet */
    VOICE_STEER_BLOCKED,         /* the state store does not know its SSRC */
    VOICE_STEER_ADMISSION_FULL,  /* unknown, and the allowance of look-ups is used up */
    VOICE_STEER_RATE_LIMITED,    /* above the limit of a session's addresses, or of other addresses for its SSRC */
    VOICE_STEER_NO_SOCKET,       /* no AF_XDP socket is bound to the queue: the data plane is starting or gone */
    VOICE_STEER_COUNTS,
};

#endif
