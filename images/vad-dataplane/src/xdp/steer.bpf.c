// Directs audio to the data plane, and everything else to the kernel.
//
// Audio is UDP to the RTP port. Audio of an admitted session goes to the AF_XDP socket of its receive queue; other
// audio is dropped and counted by reason. Everything that cannot be parsed as UDP to that port, including fragments,
// goes to the kernel: SSH, ARP and health checks never depend on this program.
#include <linux/bpf.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>

#include "steer.h"
#include "wire/packet.h"


struct {
    __uint(type, BPF_MAP_TYPE_XSKMAP);
    __uint(max_entries, VOICE_STEER_QUEUES);
    __type(key, __u32);
    __type(value, __u32);
} xsks_map SEC(".maps"); /* DPDK's AF_XDP driver looks for this name */

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, VOICE_STEER_SESSIONS);
    __type(key, __u32);
    __type(value, struct voice_steer_session);
} sessions SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct voice_steer_settings);
} settings SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, VOICE_STEER_COUNTS);
    __type(key, __u32);
    __type(value, __u64);
} counts SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, VOICE_STEER_ADMISSION_BYTES);
} admissions SEC(".maps");

/* Unknown SSRCs with a recent request, so that one sender's packets cause one request. The oldest is evicted. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, __u32);
    __type(value, __u64); /* when */
} asked SEC(".maps");

/* The share of the allowance of each receive queue: one CPU at a time processes a queue. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, VOICE_STEER_QUEUES);
    __type(key, __u32);
    __type(value, __u64);
} admissions_paid_ns SEC(".maps");

/* By voice_entry_of() an address, its voice_allow(): addresses that share an entry share an allowance. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, VOICE_STEER_ADDRESSES);
    __type(key, __u32);
    __type(value, __u64);
} addresses SEC(".maps");

/* By voice_entry_of() a voice_sender_of(), the most recently rejected one. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, VOICE_STEER_TURNED_AWAY);
    __type(key, __u32);
    __type(value, __u64);
} turned_away SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, VOICE_STEER_SESSIONS);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct voice_steer_senders);
} senders SEC(".maps");

static __always_inline int count(enum voice_steer_count what, int verdict) {
    __u32 key = what;
    __u64 *value = bpf_map_lookup_elem(&counts, &key);
    if (value) {
        ++*value;
    }
    return verdict;
}

/* Requests an unknown SSRC from the data plane: once per second for each, and within the allowance for all. */
static __always_inline int unknown(struct xdp_md *packet, const struct voice_steer_settings *set, __u32 ssrc,
                                   __u64 source, __u64 now) {
    __u64 *when = bpf_map_lookup_elem(&asked, &ssrc);
    if (when && now - *when < VOICE_SECOND_NS) {
        return count(VOICE_STEER_UNKNOWN_SESSION, XDP_DROP);
    }
    __u32 queue = packet->rx_queue_index;
    __u64 *paid_ns = bpf_map_lookup_elem(&admissions_paid_ns, &queue);
    __u64 sender = voice_sender_of(ssrc, source);
    __u32 address_entry = voice_entry_of(voice_address_of(source), VOICE_STEER_ADDRESSES);
    __u64 *address_paid_ns = bpf_map_lookup_elem(&addresses, &address_entry);
    __u32 sender_entry = voice_entry_of(sender, VOICE_STEER_TURNED_AWAY);
    __u64 *last_turned_away = bpf_map_lookup_elem(&turned_away, &sender_entry);
    if (!paid_ns || !address_paid_ns || !last_turned_away ||
        !voice_allow_look_up(paid_ns, address_paid_ns, last_turned_away, sender, now, set->admissions_per_s)) {
        return count(VOICE_STEER_ADMISSION_FULL, XDP_DROP);
    }
    struct voice_steer_admission *request = bpf_ringbuf_reserve(&admissions, sizeof(*request), 0);
    if (!request) {
        return count(VOICE_STEER_ADMISSION_FULL, XDP_DROP);
    }
    request->ssrc = ssrc;
    bpf_ringbuf_submit(request, 0);
    bpf_map_update_elem(&asked, &ssrc, &now, BPF_ANY);
    return count(VOICE_STEER_UNKNOWN_SESSION, XDP_DROP);
}

SEC("xdp")
int steer(struct xdp_md *packet) {
    struct voice_cursor cursor = {.at = (void *)(long)packet->data, .end = (void *)(long)packet->data_end};
    __u32 zero = 0;
    __u64 source = 0;
    const struct voice_steer_settings *set = bpf_map_lookup_elem(&settings, &zero);
    const __u8 *udp = set ? voice_take_udp(&cursor, &source) : 0;
    if (!udp || voice_read16(udp + 2) != set->rtp_port) {
        return count(VOICE_STEER_PASSED, XDP_PASS);
    }
    __u32 ssrc = 0;
    __u32 bytes = voice_read16(udp + 4);
    enum voice_kind kind =
        bytes < VOICE_UDP_HEADER_BYTES ? VOICE_NEITHER : voice_take_sender(&cursor, bytes - VOICE_UDP_HEADER_BYTES, &ssrc);
    struct voice_steer_session *session = kind == VOICE_NEITHER ? 0 : bpf_map_lookup_elem(&sessions, &ssrc);
    /* RTCP reports of an unknown session cause no request. */
    if (kind == VOICE_NEITHER || (kind == VOICE_RTCP && !session)) {
        return count(VOICE_STEER_NOT_RTP, XDP_DROP);
    }
    __u64 now = bpf_ktime_get_ns();
    if (!session) {
        return unknown(packet, set, ssrc, source, now);
    }
    if (session->blocked) {
        return count(VOICE_STEER_BLOCKED, XDP_DROP);
    }
    __u32 slot = session->slot;
    struct voice_steer_senders *from = bpf_map_lookup_elem(&senders, &slot);
    if (!from) {
        return count(VOICE_STEER_RATE_LIMITED, XDP_DROP); /* no slot is as high: for the verifier */
    }
    /* The limit of packets per session applies where they are authenticated: here their session is not verified. */
    bool known = from->sources[0] == source || from->sources[1] == source;
    bool allowed = known ? voice_allow(&session->known_paid_ns, now, set->packets_per_s + VOICE_FORGERIES_PER_S)
                         : voice_allow(&from->others_paid_ns, now, VOICE_STRANGERS_PER_S);
    if (!allowed) {
        return count(VOICE_STEER_RATE_LIMITED, XDP_DROP);
    }
    /* The flags are the verdict if the queue has no socket: newer kernels support this, and no packet leaks. */
    int verdict = (int)bpf_redirect_map(&xsks_map, packet->rx_queue_index, XDP_DROP);
    return count(verdict == XDP_REDIRECT ? VOICE_STEER_REDIRECTED : VOICE_STEER_NO_SOCKET, verdict);
}

char _license[] SEC("license") = "Dual BSD/GPL";
