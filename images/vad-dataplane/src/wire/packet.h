/* Readers of packets, for the XDP program and the data plane: both decide by the same rules what is audio. C, without
 * loops over a packet's bytes, so that the kernel's verifier accepts it. */
#ifndef VOICE_WIRE_PACKET_H
#define VOICE_WIRE_PACKET_H

#include <linux/types.h>

enum voice_wire {
    VOICE_ETHERTYPE_IPV4 = 0x0800,
    VOICE_ETHERTYPE_VLAN = 0x8100,
    VOICE_ETHERTYPE_PROVIDER_VLAN = 0x88a8,
    VOICE_VLAN_TAGS = 2, /* at most */
    VOICE_ETHERNET_ADDRESSES_BYTES = 12,
    VOICE_IPV4_HEADER_BYTES = 20, /* without options */
    VOICE_IPV4_FRAGMENT = 0x3fff, /* offset, or more fragments */
    VOICE_PROTOCOL_UDP = 17,
    VOICE_UDP_HEADER_BYTES = 8,
    VOICE_RTP_VERSION = 2,
    VOICE_RTP_HEADER_BYTES = 12,
    VOICE_RTCP_HEADER_BYTES = 8,
    VOICE_RTCP_FIRST = 192, /* RFC 5761: packet types 192 to 223 on the RTP port are RTCP */
    VOICE_RTCP_LAST = 223,
};

/* Big-endian, as networks have it. */
static inline __attribute__((always_inline)) __u16 voice_read16(const __u8 *at) { return (__u16)(at[0] << 8 | at[1]); }

static inline __attribute__((always_inline)) __u32 voice_read32(const __u8 *at) {
    return (__u32)at[0] << 24 | (__u32)at[1] << 16 | (__u32)at[2] << 8 | at[3];
}

struct voice_cursor {
    const __u8 *at;
    const __u8 *end;
};

/* The next bytes of the packet; 0 where it ends before them. */
static inline __attribute__((always_inline)) const __u8 *voice_take(struct voice_cursor *cursor, __u32 bytes) {
    const __u8 *at = cursor->at;
    if (at + bytes > cursor->end) {
        return 0;
    }
    cursor->at = at + bytes;
    return at;
}

/* Where a packet comes from, as one number, which is not 0: IPv4 address and UDP port, both in network order. */
static inline __attribute__((always_inline)) __u64 voice_source_of_ipv4(__u32 address, __u16 port) {
    return (__u64)address << 16 | port;
}

/* Takes an Ethernet frame up to its UDP header, which is returned, and names the datagram's source. 0 for anything but an
 * unfragmented IPv4 datagram: fragments and IPv6 are the kernel's. */
static inline __attribute__((always_inline)) const __u8 *voice_take_udp(struct voice_cursor *cursor, __u64 *source) {
    const __u8 *type = voice_take(cursor, VOICE_ETHERNET_ADDRESSES_BYTES) ? voice_take(cursor, 2) : 0;
    for (int tags = 0; type && tags < VOICE_VLAN_TAGS; ++tags) {
        const __u16 protocol = voice_read16(type);
        if (protocol != VOICE_ETHERTYPE_VLAN && protocol != VOICE_ETHERTYPE_PROVIDER_VLAN) {
            break;
        }
        type = voice_take(cursor, 2) ? voice_take(cursor, 2) : 0;
    }
    if (!type || voice_read16(type) != VOICE_ETHERTYPE_IPV4) {
        return 0;
    }
    const __u8 *ip = voice_take(cursor, VOICE_IPV4_HEADER_BYTES);
    if (!ip || ip[0] >> 4 != 4 || ip[9] != VOICE_PROTOCOL_UDP || (voice_read16(ip + 6) & VOICE_IPV4_FRAGMENT)) {
        return 0;
    }
    const __u32 words = ip[0] & 0x0f;
    if (words < 5 || !voice_take(cursor, (words - 5) * 4)) {
        return 0;
    }
    const __u8 *udp = voice_take(cursor, VOICE_UDP_HEADER_BYTES);
    if (udp) {
        __u32 address;
        __u16 port;
        __builtin_memcpy(&address, ip + 12, sizeof(address));
        __builtin_memcpy(&port, udp, sizeof(port));
        *source = voice_source_of_ipv4(address, port);
    }
    return udp;
}

enum voice_kind { VOICE_NEITHER, VOICE_RTP, VOICE_RTCP };

/* What the next `bytes` bytes begin as, and the SSRC of its sender. */
static inline __attribute__((always_inline)) enum voice_kind voice_take_sender(struct voice_cursor *cursor, __u32 bytes,
                                                                               __u32 *ssrc) {
    const __u8 *header = voice_take(cursor, VOICE_RTCP_HEADER_BYTES);
    if (!header || bytes < VOICE_RTCP_HEADER_BYTES || header[0] >> 6 != VOICE_RTP_VERSION) {
        return VOICE_NEITHER;
    }
    if (header[1] >= VOICE_RTCP_FIRST && header[1] <= VOICE_RTCP_LAST) {
        *ssrc = voice_read32(header + 4);
        return VOICE_RTCP;
    }
    const __u8 *rest = voice_take(cursor, VOICE_RTP_HEADER_BYTES - VOICE_RTCP_HEADER_BYTES);
    const __u32 contributors = header[0] & 0x0f;
    if (!rest || bytes < VOICE_RTP_HEADER_BYTES + 4 * contributors) {
        return VOICE_NEITHER;
    }
    *ssrc = voice_read32(rest);
    return VOICE_RTP;
}

#endif
