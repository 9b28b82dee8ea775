// Steers audio to the data plane, and everything else to the kernel.
//
// A packet is audio when it is UDP to the RTP port. Audio of an admitted session goes to the AF_XDP socket of its
// receive queue; other audio is dropped and counted by reason. Whatever cannot be parsed as UDP to that port, fragments
// included, is the kernel's: SSH, ARP and health checks never depend on this program.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stdbool.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "steer.h"

#define NS_PER_S 1000000000ULL
#define NS_PER_MS 1000000ULL
#define TOKEN 1000U /* one packet */
#define MAX_VLAN_TAGS 2
#define RTP_HEADER_BYTES 12
#define RTCP_FIRST 192 /* RFC 5761: packet types 192 to 223 on the RTP port are RTCP */
#define RTCP_LAST 223

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

/* Unknown SSRCs that were asked about lately, so that one sender's packets ask once. The oldest falls out. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, __u32);
    __type(value, __u64); /* when */
} asked SEC(".maps");

/* A bucket per CPU, each with its share of the allowance: nothing is shared on this path. */
struct bucket {
    __u64 refilled_ns;
    __u32 tokens;
    __u32 unused;
};
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct bucket);
} admission_bucket SEC(".maps");

struct cursor {
    void *at;
    void *end;
};

/* The next bytes of the packet, or null where it ends before them. */
#define TAKE(cursor, type) ((type *)take((cursor), sizeof(type)))
static __always_inline void *take(struct cursor *cursor, __u32 bytes) {
    void *at = cursor->at;
    if (at + bytes > cursor->end) {
        return 0;
    }
    cursor->at = at + bytes;
    return at;
}

static __always_inline int count(enum voice_steer_count what, int verdict) {
    __u32 key = what;
    __u64 *value = bpf_map_lookup_elem(&counts, &key);
    if (value) {
        ++*value;
    }
    return verdict;
}

struct vlan_tag {
    __be16 control;
    __be16 protocol;
};

/* Leaves the cursor at the UDP header; false for anything else, which the kernel gets. */
static __always_inline bool at_udp(struct cursor *cursor) {
    struct ethhdr *ethernet = TAKE(cursor, struct ethhdr);
    if (!ethernet) {
        return false;
    }
    __be16 protocol = ethernet->h_proto;
    for (int tags = 0; tags < MAX_VLAN_TAGS; ++tags) {
        if (protocol != bpf_htons(ETH_P_8021Q) && protocol != bpf_htons(ETH_P_8021AD)) {
            break;
        }
        struct vlan_tag *tag = TAKE(cursor, struct vlan_tag);
        if (!tag) {
            return false;
        }
        protocol = tag->protocol;
    }
    if (protocol == bpf_htons(ETH_P_IP)) {
        struct iphdr *ip = TAKE(cursor, struct iphdr);
        if (!ip || ip->version != 4 || ip->ihl < 5 || ip->protocol != IPPROTO_UDP) {
            return false;
        }
        if (ip->frag_off & bpf_htons(0x3fff)) { /* offset, or more fragments */
            return false;
        }
        return take(cursor, (ip->ihl - 5) * 4U) != 0;
    }
    if (protocol == bpf_htons(ETH_P_IPV6)) {
        struct ipv6hdr *ip = TAKE(cursor, struct ipv6hdr);
        /* Extension headers are the kernel's: no sender of audio needs one. */
        return ip && ip->version == 6 && ip->nexthdr == IPPROTO_UDP;
    }
    return false;
}

/* Reads the SSRC; false where the datagram is no RTP packet. */
static __always_inline bool parse_rtp(struct cursor *cursor, __u32 udp_payload_bytes, __u32 *ssrc) {
    __u8 *rtp = take(cursor, RTP_HEADER_BYTES);
    if (!rtp || udp_payload_bytes < RTP_HEADER_BYTES) {
        return false;
    }
    __u32 contributors = rtp[0] & 0x0f;
    if (rtp[0] >> 6 != 2 || udp_payload_bytes < RTP_HEADER_BYTES + 4 * contributors) {
        return false;
    }
    if (rtp[1] >= RTCP_FIRST && rtp[1] <= RTCP_LAST) {
        return false;
    }
    *ssrc = (__u32)rtp[8] << 24 | (__u32)rtp[9] << 16 | (__u32)rtp[10] << 8 | rtp[11];
    return true;
}

/* Takes one packet's token from a bucket that gains `per_s` packets a second, up to `burst`. */
static __always_inline bool allow(__u64 *refilled_ns, __u32 *tokens, __u64 now, __u32 per_s, __u32 burst) {
    __u64 elapsed_ms = (now - *refilled_ns) / NS_PER_MS;
    __u64 full = (__u64)burst * TOKEN;
    if (elapsed_ms) {
        /* packets a second are tokens (1/1000 packet) a millisecond; past an hour every bucket is full */
        __u64 gained = elapsed_ms > 3600000 ? full : elapsed_ms * per_s;
        __u64 held = *tokens + gained;
        *tokens = (__u32)(held > full ? full : held);
        *refilled_ns += elapsed_ms * NS_PER_MS;
    }
    if (*tokens < TOKEN) {
        return false;
    }
    *tokens -= TOKEN;
    return true;
}

/* Asks the data plane about an unknown SSRC: once a second for each, and no more than the allowance for all. */
static __always_inline int unknown(struct xdp_md *packet, const struct voice_steer_settings *set, __u32 ssrc, __u64 now) {
    __u64 *when = bpf_map_lookup_elem(&asked, &ssrc);
    if (when && now - *when < NS_PER_S) {
        return count(VOICE_STEER_UNKNOWN_SESSION, XDP_DROP);
    }
    __u32 zero = 0;
    struct bucket *bucket = bpf_map_lookup_elem(&admission_bucket, &zero);
    if (!bucket || !allow(&bucket->refilled_ns, &bucket->tokens, now, set->admissions_per_s, set->admissions_per_s)) {
        return count(VOICE_STEER_ADMISSION_FULL, XDP_DROP);
    }
    struct voice_steer_admission *request = bpf_ringbuf_reserve(&admissions, sizeof(*request), 0);
    if (!request) {
        return count(VOICE_STEER_ADMISSION_FULL, XDP_DROP);
    }
    request->ssrc = ssrc;
    request->queue = packet->rx_queue_index;
    bpf_ringbuf_submit(request, 0);
    bpf_map_update_elem(&asked, &ssrc, &now, BPF_ANY);
    return count(VOICE_STEER_UNKNOWN_SESSION, XDP_DROP);
}

SEC("xdp")
int steer(struct xdp_md *packet) {
    struct cursor cursor = {.at = (void *)(long)packet->data, .end = (void *)(long)packet->data_end};
    __u32 zero = 0;
    const struct voice_steer_settings *set = bpf_map_lookup_elem(&settings, &zero);
    if (!set || !at_udp(&cursor)) {
        return count(VOICE_STEER_PASSED, XDP_PASS);
    }
    struct udphdr *udp = TAKE(&cursor, struct udphdr);
    if (!udp || bpf_ntohs(udp->dest) != set->rtp_port) {
        return count(VOICE_STEER_PASSED, XDP_PASS);
    }
    __u32 ssrc = 0;
    __u32 udp_bytes = bpf_ntohs(udp->len);
    if (udp_bytes < sizeof(*udp) || !parse_rtp(&cursor, udp_bytes - sizeof(*udp), &ssrc)) {
        return count(VOICE_STEER_NOT_RTP, XDP_DROP);
    }
    __u64 now = bpf_ktime_get_ns();
    struct voice_steer_session *session = bpf_map_lookup_elem(&sessions, &ssrc);
    if (!session) {
        return unknown(packet, set, ssrc, now);
    }
    if (session->blocked) {
        return count(VOICE_STEER_BLOCKED, XDP_DROP);
    }
    if (!allow(&session->refilled_ns, &session->tokens, now, set->packets_per_s, set->burst_packets)) {
        return count(VOICE_STEER_RATE_LIMITED, XDP_DROP);
    }
    session->seen_ns = now;
    /* The flags are the verdict where the queue has no socket: newer kernels allow it, and nothing leaks. */
    int verdict = (int)bpf_redirect_map(&xsks_map, packet->rx_queue_index, XDP_DROP);
    return count(verdict == XDP_REDIRECT ? VOICE_STEER_REDIRECTED : VOICE_STEER_NO_SOCKET, verdict);
}

char _license[] SEC("license") = "Dual BSD/GPL";
