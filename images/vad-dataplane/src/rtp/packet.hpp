// RTP packets (RFC 3550).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace voice::rtp {

inline constexpr std::size_t kHeaderBytes = 12;

// A view of a received packet; valid as long as its bytes.
struct Packet {
    std::uint8_t payload_type = 0;
    bool is_audio = true;  // false for comfort noise and telephone events, by the session's description
    bool marker = false;
    std::uint16_t sequence = 0;
    std::uint32_t timestamp = 0;
    std::uint32_t ssrc = 0;
    std::span<const std::uint8_t> payload;
};

// Parses a packet; nothing if the bytes are not a complete RTP packet of version 2. Contributors, a header extension
// and padding are skipped.
[[nodiscard]] std::optional<Packet> parse(std::span<const std::uint8_t> bytes) noexcept;

// For packets that sender_of() takes for RTP.
[[nodiscard]] std::uint32_t timestamp_of(std::span<const std::uint8_t> bytes) noexcept;

// Whether it is RTCP, which shares the port (RFC 5761).
[[nodiscard]] bool is_rtcp(std::span<const std::uint8_t> bytes) noexcept;

// SSRC of the sender of an RTP or RTCP packet; nothing for other bytes.
[[nodiscard]] std::optional<std::uint32_t> sender_of(std::span<const std::uint8_t> bytes) noexcept;

// What a source signals besides audio.
enum class Notice {
    kNone,
    kCommit,  // APP "cmit": transcribe what was said so far now
    kBye,     // BYE: the source has ended
};

// Notices about a source in an RTCP compound packet (RFC 3550, section 6.1).
[[nodiscard]] Notice notice_of(std::span<const std::uint8_t> bytes, std::uint32_t ssrc) noexcept;

}  // namespace voice::rtp
