// RTP packets (RFC 3550).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace voice::rtp {

inline constexpr std::size_t kHeaderBytes = 12;

// Payload types that hold no audio.
inline constexpr std::uint8_t kComfortNoise = 13;     // RFC 3389
inline constexpr std::uint8_t kTelephoneEvent = 101;  // RFC 4733: dynamic, and 101 by custom

// A view into a received packet; valid as long as its bytes are.
struct Packet {
    std::uint8_t payload_type = 0;
    bool marker = false;
    std::uint16_t sequence = 0;
    std::uint32_t timestamp = 0;
    std::uint32_t ssrc = 0;
    std::span<const std::uint8_t> payload;
};

[[nodiscard]] inline bool holds_no_audio(const Packet& packet) noexcept {
    return packet.payload_type == kComfortNoise || packet.payload_type == kTelephoneEvent;
}

// Reads a packet; nothing when the bytes are no whole RTP packet of version 2. Contributors, a header extension and
// padding are skipped.
[[nodiscard]] std::optional<Packet> parse(std::span<const std::uint8_t> bytes) noexcept;

// Of what sender_of() takes for RTP.
[[nodiscard]] std::uint32_t timestamp_of(std::span<const std::uint8_t> bytes) noexcept;

// Whether it is RTCP, which shares the port (RFC 5761).
[[nodiscard]] bool is_rtcp(std::span<const std::uint8_t> bytes) noexcept;

// SSRC of the sender of an RTP or RTCP packet; nothing when the bytes begin neither.
[[nodiscard]] std::optional<std::uint32_t> sender_of(std::span<const std::uint8_t> bytes) noexcept;

// What a source says beside its audio.
enum class Notice {
    kNone,
    kCommit,  // APP "cmit": what was said up to here is wanted now
    kBye,     // BYE: nothing more comes
};

// What an RTCP compound packet (RFC 3550, section 6.1) holds of a source.
[[nodiscard]] Notice notice_of(std::span<const std::uint8_t> bytes, std::uint32_t ssrc) noexcept;

}  // namespace voice::rtp
