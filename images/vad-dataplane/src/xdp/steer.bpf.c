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
#define MAX_VLAN_TAGS 2
#define RTP_HEADER_BYTES 12
#define RTCP_HEADER_BYTES 8
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

/* Of each receive queue, its share of the allowance: one CPU at a time works on a queue. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, VOICE_STEER_QUEUES);
    __type(key, __u32);
    __type(value, __u64);
} admissions_paid_ns SEC(".maps");

/* By the session's slot, the source that it was last heard from: the data plane writes it where a packet was
 * authenticated, without a system call. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, VOICE_STEER_SESSIONS);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, __u64);
} sources SEC(".maps");

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

/* Leaves the cursor behind the UDP header, and says where the datagram comes from; null for anything else, which the
 * kernel gets. */
static __always_inline struct udphdr *take_udp(struct cursor *cursor, __u64 *source) {
    struct ethhdr *ethernet = TAKE(cursor, struct ethhdr);
    if (!ethernet) {
        return 0;
    }
    __be16 protocol = ethernet->h_proto;
    for (int tags = 0; tags < MAX_VLAN_TAGS; ++tags) {
        if (protocol != bpf_htons(ETH_P_8021Q) && protocol != bpf_htons(ETH_P_8021AD)) {
            break;
        }
        struct vlan_tag *tag = TAKE(cursor, struct vlan_tag);
        if (!tag) {
            return 0;
        }
        protocol = tag->protocol;
    }
    if (protocol == bpf_htons(ETH_P_IP)) {
        struct iphdr *ip = TAKE(cursor, struct iphdr);
        if (!ip || ip->version != 4 || ip->ihl < 5 || ip->protocol != IPPROTO_UDP) {
            return 0;
        }
        if (ip->frag_off & bpf_htons(0x3fff)) { /* offset, or more fragments */
            return 0;
        }
        struct udphdr *udp = take(cursor, (ip->ihl - 5) * 4U) ? TAKE(cursor, struct udphdr) : 0;
        *source = udp ? voice_source_of_ipv4(ip->saddr, udp->source) : 0;
        return udp;
    }
    if (protocol == bpf_htons(ETH_P_IPV6)) {
        struct ipv6hdr *ip = TAKE(cursor, struct ipv6hdr);
        /* Extension headers are the kernel's: no sender of audio needs one. */
        if (!ip || ip->version != 6 || ip->nexthdr != IPPROTO_UDP) {
            return 0;
        }
        struct udphdr *udp = TAKE(cursor, struct udphdr);
        *source = udp ? voice_source_of_ipv6(ip->saddr.in6_u.u6_addr32, udp->source) : 0;
        return udp;
    }
    return 0;
}

static __always_inline __u32 read32(const __u8 *at) {
    return (__u32)at[0] << 24 | (__u32)at[1] << 16 | (__u32)at[2] << 8 | at[3];
}

enum kind { NEITHER, RTP, RTCP };

/* Reads the SSRC of the packet's sender. */
static __always_inline enum kind parse(struct cursor *cursor, __u32 bytes, __u32 *ssrc) {
    __u8 *header = take(cursor, RTCP_HEADER_BYTES);
    if (!header || bytes < RTCP_HEADER_BYTES || header[0] >> 6 != 2) {
        return NEITHER;
    }
    if (header[1] >= RTCP_FIRST && header[1] <= RTCP_LAST) {
        *ssrc = read32(header + 4);
        return RTCP;
    }
    __u8 *rest = take(cursor, RTP_HEADER_BYTES - RTCP_HEADER_BYTES);
    __u32 contributors = header[0] & 0x0f;
    if (!rest || bytes < RTP_HEADER_BYTES + 4 * contributors) {
        return NEITHER;
    }
    *ssrc = read32(rest);
    return RTP;
}

/* Asks the data plane about an unknown SSRC: once a second for each, and no more than the allowance for all. */
static __always_inline int unknown(struct xdp_md *packet, const struct voice_steer_settings *set, __u32 ssrc, __u64 now) {
    __u64 *when = bpf_map_lookup_elem(&asked, &ssrc);
    if (when && now - *when < NS_PER_S) {
        return count(VOICE_STEER_UNKNOWN_SESSION, XDP_DROP);
    }
    __u32 queue = packet->rx_queue_index;
    __u64 *paid_ns = bpf_map_lookup_elem(&admissions_paid_ns, &queue);
    if (!paid_ns || !voice_allow(paid_ns, now, set->admissions_per_s)) {
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
    struct cursor cursor = {.at = (void *)(long)packet->data, .end = (void *)(long)packet->data_end};
    __u32 zero = 0;
    __u64 source = 0;
    const struct voice_steer_settings *set = bpf_map_lookup_elem(&settings, &zero);
    struct udphdr *udp = set ? take_udp(&cursor, &source) : 0;
    if (!udp || bpf_ntohs(udp->dest) != set->rtp_port) {
        return count(VOICE_STEER_PASSED, XDP_PASS);
    }
    __u32 ssrc = 0;
    __u32 udp_bytes = bpf_ntohs(udp->len);
    enum kind kind = udp_bytes < sizeof(*udp) ? NEITHER : parse(&cursor, udp_bytes - sizeof(*udp), &ssrc);
    struct voice_steer_session *session = kind == NEITHER ? 0 : bpf_map_lookup_elem(&sessions, &ssrc);
    /* Reports of a session that is not there are no reason to ask for it. */
    if (kind == NEITHER || (kind == RTCP && !session)) {
        return count(VOICE_STEER_NOT_RTP, XDP_DROP);
    }
    __u64 now = bpf_ktime_get_ns();
    if (!session) {
        return unknown(packet, set, ssrc, now);
    }
    if (session->blocked) {
        return count(VOICE_STEER_BLOCKED, XDP_DROP);
    }
    __u32 slot = session->slot;
    const __u64 *heard_from = bpf_map_lookup_elem(&sources, &slot);
    bool allowed = heard_from && *heard_from == source
                       ? voice_allow(&session->sender_paid_ns, now, set->packets_per_s)
                       : voice_allow(&session->others_paid_ns, now, VOICE_STRANGERS_PER_S);
    if (!allowed) {
        return count(VOICE_STEER_RATE_LIMITED, XDP_DROP);
    }
    /* The flags are the verdict where the queue has no socket: newer kernels allow it, and nothing leaks. */
    int verdict = (int)bpf_redirect_map(&xsks_map, packet->rx_queue_index, XDP_DROP);
    return count(verdict == XDP_REDIRECT ? VOICE_STEER_REDIRECTED : VOICE_STEER_NO_SOCKET, verdict);
}

char _license[] SEC("license") = "Dual BSD/GPL";
