#include "receive/udp.hpp"

#include "wire/packet.h"

namespace voice::receive {

std::optional<Datagram> udp_payload(std::span<std::uint8_t> frame, std::uint16_t port) noexcept {
    if (frame.empty()) {
        return std::nullopt;
    }
    voice_cursor cursor{.at = frame.data(), .end = frame.data() + frame.size()};
    __u64 source = 0;
    const __u8* udp = voice_take_udp(&cursor, &source);
    if (udp == nullptr || voice_read16(udp + 2) != port) {
        return std::nullopt;
    }
    const std::size_t length = voice_read16(udp + 4);
    const auto at = static_cast<std::size_t>(udp - frame.data());
    if (length < VOICE_UDP_HEADER_BYTES || at + length > frame.size()) {
        return std::nullopt;
    }
    return Datagram{frame.subspan(at, length).subspan(VOICE_UDP_HEADER_BYTES), source};
}

}  // namespace voice::receive
