#include "receive/udp.hpp"

#include <array>
#include <cstring>

#include "xdp/steer.h"

namespace voice::receive {
namespace {

constexpr std::uint16_t kIpv4 = 0x0800;
constexpr std::uint16_t kIpv6 = 0x86dd;
constexpr std::uint16_t kVlan = 0x8100;
constexpr std::uint16_t kProviderVlan = 0x88a8;
constexpr std::uint8_t kUdp = 17;
constexpr int kMaxVlanTags = 2;

std::uint16_t read16(std::span<const std::uint8_t> bytes, std::size_t at) noexcept {
    return static_cast<std::uint16_t>(bytes[at] << 8 | bytes[at + 1]);
}

// Returns where the IP payload starts, when it is a whole UDP datagram; 0 otherwise.
std::size_t after_ipv4(std::span<const std::uint8_t> frame, std::size_t at) noexcept {
    if (frame.size() < at + 20 || frame[at] >> 4 != 4 || frame[at + 9] != kUdp) {
        return 0;
    }
    const std::size_t header = 4U * (frame[at] & 0x0fU);
    const bool fragment = (read16(frame, at + 6) & 0x3fff) != 0;
    return header < 20 || fragment ? 0 : at + header;
}

std::size_t after_ipv6(std::span<const std::uint8_t> frame, std::size_t at) noexcept {
    return frame.size() < at + 40 || frame[at] >> 4 != 6 || frame[at + 6] != kUdp ? 0 : at + 40;
}

template <typename T>
T copy(std::span<const std::uint8_t> frame, std::size_t at) noexcept {
    T value;
    std::memcpy(&value, &frame[at], sizeof value);
    return value;
}

}  // namespace

std::optional<Datagram> udp_payload(std::span<std::uint8_t> frame, std::uint16_t port) noexcept {
    std::size_t at = 12;
    for (int tags = 0; tags < kMaxVlanTags && frame.size() >= at + 2; ++tags) {
        const std::uint16_t protocol = read16(frame, at);
        if (protocol != kVlan && protocol != kProviderVlan) {
            break;
        }
        at += 4;
    }
    if (frame.size() < at + 2) {
        return std::nullopt;
    }
    const std::uint16_t protocol = read16(frame, at);
    at += 2;
    const std::size_t ip = at;
    at = protocol == kIpv4 ? after_ipv4(frame, at) : protocol == kIpv6 ? after_ipv6(frame, at) : 0;
    if (at == 0 || frame.size() < at + 8 || read16(frame, at + 2) != port) {
        return std::nullopt;
    }
    const std::size_t length = read16(frame, at + 4);
    if (length < 8 || at + length > frame.size()) {
        return std::nullopt;
    }
    const auto port_of_sender = copy<std::uint16_t>(frame, at);
    const std::uint64_t source =
        protocol == kIpv4 ? voice_source_of_ipv4(copy<std::uint32_t>(frame, ip + 12), port_of_sender)
                          : voice_source_of_ipv6(copy<std::array<std::uint32_t, 4>>(frame, ip + 8).data(), port_of_sender);
    return Datagram{frame.subspan(at + 8, length - 8), source};
}

}  // namespace voice::receive
