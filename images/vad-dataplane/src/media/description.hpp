// Format of a session's packets, from its record: the words of SDP (RFC 8866), `96 L16/16000/1 20`, followed by the
// payload types of telephone events if they are not 101: `111 opus/48000/2 20 110,126`.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace voice::media {

// For every payload type, whether its packets contain no audio and are no losses: comfort noise (RFC 3389) and
// telephone events (RFC 4733).
using PayloadTypes = std::bitset<128>;

inline constexpr std::uint8_t kComfortNoise = 13;
inline constexpr std::uint8_t kTelephoneEvent = 101;  // the customary value, if a record contains none

enum class Codec : std::uint8_t { kL16, kPcmu, kPcma, kOpus };

inline constexpr unsigned kMostPacketMs = 60;

struct Description {
    std::uint8_t payload_type = 96;
    Codec codec = Codec::kL16;
    std::uint32_t rate = 16'000;  // of timestamps, too
    std::uint32_t channels = 1;
    std::uint32_t packet_ms = 20;
    PayloadTypes without_audio = PayloadTypes().set(kComfortNoise).set(kTelephoneEvent);

    bool operator==(const Description&) const = default;

    // Payload size of a packet, if its codec has a fixed one.
    [[nodiscard]] std::size_t payload_bytes() const noexcept {
        return std::size_t{rate} * packet_ms / 1000 * channels * (codec == Codec::kL16 ? 2 : 1);
    }
    // Whether its sender may stop sending in a pause without comfort noise (discontinuous transmission).
    [[nodiscard]] bool may_pause() const noexcept { return codec == Codec::kOpus; }
    // Whether packets have the native format: 20 ms of L16, one channel, 16 kHz.
    [[nodiscard]] bool is_plain() const noexcept {
        return codec == Codec::kL16 && rate == 16'000 && channels == 1 && packet_ms == 20;
    }
};

// Nothing: the format is unsupported or invalid.
[[nodiscard]] std::optional<Description> read_description(std::string_view text) noexcept;

}  // namespace voice::media
