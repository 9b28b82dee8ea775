// RTP packets (RFC 3550).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace voice::rtp {

inline constexpr std::size_t kHeaderBytes = 12;

// A view into a received packet; valid as long as its bytes are.
struct Packet {
    std::uint8_t payload_type = 0;
    bool marker = false;
    std::uint16_t sequence = 0;
    std::uint32_t timestamp = 0;
    std::uint32_t ssrc = 0;
    std::span<const std::uint8_t> payload;
};

// Reads a packet; nothing when the bytes are no whole RTP packet of version 2. Contributors, a header extension and
// padding are skipped.
[[nodiscard]] std::optional<Packet> parse(std::span<const std::uint8_t> bytes) noexcept;

}  // namespace voice::rtp
