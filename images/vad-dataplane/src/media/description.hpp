// What a session's packets hold, as its record says: the words of SDP (RFC 8866), `96 L16/16000/1 20`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace voice::media {

enum class Codec : std::uint8_t { kL16, kPcmu, kPcma, kOpus };

inline constexpr unsigned kMostPacketMs = 60;

struct Description {
    std::uint8_t payload_type = 96;
    Codec codec = Codec::kL16;
    std::uint32_t rate = 16'000;  // of timestamps, too
    std::uint32_t channels = 1;
    std::uint32_t packet_ms = 20;

    bool operator==(const Description&) const = default;

    // Of a packet, where its codec has a fixed size.
    [[nodiscard]] std::size_t payload_bytes() const noexcept {
        return std::size_t{rate} * packet_ms / 1000 * channels * (codec == Codec::kL16 ? 2 : 1);
    }
    // Packets are what the data plane works with: 20 ms of L16, one channel, 16 kHz.
    [[nodiscard]] bool is_plain() const noexcept {
        return codec == Codec::kL16 && rate == 16'000 && channels == 1 && packet_ms == 20;
    }
};

// Nothing: it names what is not taken, or is no description.
[[nodiscard]] std::optional<Description> read_description(std::string_view text) noexcept;

}  // namespace voice::media
