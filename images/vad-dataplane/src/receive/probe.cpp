#include "receive/probe.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "wire/packet.h"

namespace voice::receive {
namespace {

constexpr std::size_t kMac = 6;
constexpr std::size_t kIp = 14;
constexpr std::size_t kHeader = 20;  // of IP and of TCP, without options
constexpr std::size_t kTcp = kIp + kHeader;
constexpr std::size_t kAnswer = kTcp + kHeader;
constexpr std::size_t kLeastFrame = 60;  // of Ethernet
constexpr std::uint8_t kTcpProtocol = 6;
constexpr std::uint8_t kTimeToLive = 64;
constexpr std::uint16_t kWindow = 0xffff;

constexpr std::uint8_t kFin = 0x01;
constexpr std::uint8_t kSyn = 0x02;
constexpr std::uint8_t kRst = 0x04;
constexpr std::uint8_t kAck = 0x10;

void write16(std::uint8_t* at, std::uint32_t value) noexcept {
    at[0] = static_cast<std::uint8_t>(value >> 8);
    at[1] = static_cast<std::uint8_t>(value);
}
void write32(std::uint8_t* at, std::uint32_t value) noexcept {
    write16(at, value >> 16);
    write16(at + 2, value);
}

// The Internet checksum (RFC 1071) of an even number of bytes, added to `sum`.
std::uint16_t checksum(std::span<const std::uint8_t> bytes, std::uint32_t sum = 0) noexcept {
    for (std::size_t at = 0; at < bytes.size(); at += 2) {
        sum += voice_read16(&bytes[at]);
    }
    sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(~((sum & 0xffff) + (sum >> 16)));
}

struct Segment {
    std::uint32_t sequence;
    std::uint32_t acknowledged;
    std::uint32_t length;  // its share of the sequence space: data, SYN, FIN
    std::uint8_t flags;
};

// Whether there is a complete, unfragmented segment to `port`; parses it.
bool read(std::span<const std::uint8_t> frame, std::uint16_t port, Segment& segment) noexcept {
    if (frame.size() < kAnswer || voice_read16(&frame[12]) != VOICE_ETHERTYPE_IPV4 || frame[kIp] >> 4 != 4 || frame[kIp + 9] != kTcpProtocol ||
        (voice_read16(&frame[kIp + 6]) & VOICE_IPV4_FRAGMENT) != 0) {
        return false;
    }
    const std::size_t header = 4U * (frame[kIp] & 0x0fU);
    const std::size_t total = voice_read16(&frame[kIp + 2]);
    if (header < kHeader || total < header + kHeader || frame.size() < kIp + total) {
        return false;
    }
    const std::uint8_t* tcp = &frame[kIp + header];
    const std::size_t offset = 4U * (tcp[12] >> 4U);
    if (voice_read16(tcp + 2) != port || offset < kHeader || total < header + offset) {
        return false;
    }
    const std::uint8_t flags = tcp[13];
    segment = {.sequence = voice_read32(tcp + 4),
               .acknowledged = voice_read32(tcp + 8),
               .length = static_cast<std::uint32_t>(total - header - offset) + ((flags & kSyn) != 0) + ((flags & kFin) != 0),
               .flags = flags};
    return true;
}

}  // namespace

std::size_t answer_probe(std::span<std::uint8_t> frame, std::uint16_t port, bool open) noexcept {
    Segment got{};
    if (!read(frame, port, got) || (got.flags & kRst) != 0 || got.length == 0) {
        return 0;
    }
    const bool opens = (got.flags & kSyn) != 0;
    const std::uint8_t flags = opens ? (open ? kSyn | kAck : kRst | kAck) : (got.flags & kFin) != 0 ? kFin | kAck : kAck;
    const std::size_t header = 4U * (frame[kIp] & 0x0fU);
    std::array<std::uint8_t, 4> ports{};  // theirs, ours
    std::memcpy(ports.data(), &frame[kIp + header], ports.size());

    std::swap_ranges(&frame[0], &frame[kMac], &frame[kMac]);
    std::uint8_t* ip = &frame[kIp];
    ip[0] = 0x45;
    write16(ip + 2, 2 * kHeader);
    write32(ip + 4, 0x00004000);  // do not fragment
    ip[8] = kTimeToLive;
    write16(ip + 10, 0);
    std::swap_ranges(ip + 12, ip + 16, ip + 16);
    write16(ip + 10, checksum({ip, kHeader}));

    std::uint8_t* tcp = &frame[kTcp];
    std::memcpy(tcp, ports.data() + 2, 2);
    std::memcpy(tcp + 2, ports.data(), 2);
    write32(tcp + 4, opens ? 0 : got.acknowledged);
    write32(tcp + 8, got.sequence + got.length);
    tcp[12] = (kHeader / 4) << 4;
    tcp[13] = flags;
    write16(tcp + 14, kWindow);
    write32(tcp + 16, 0);  // checksum, urgent pointer
    // The checksum also covers a pseudo-header of addresses, protocol and length.
    const std::uint32_t pseudo = static_cast<std::uint16_t>(~checksum({ip + 12, 8})) + kTcpProtocol +
                                 static_cast<std::uint32_t>(kHeader);
    write16(tcp + 16, checksum({tcp, kHeader}, pseudo));

    const std::size_t bytes = std::max(kAnswer, std::min(kLeastFrame, frame.size()));
    std::fill(frame.begin() + kAnswer, frame.begin() + static_cast<std::ptrdiff_t>(bytes), std::uint8_t{0});
    return bytes;
}

}  // namespace voice::receive
