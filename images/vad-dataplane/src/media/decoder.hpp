// From the payload of one packet to samples of one channel at 16 kHz.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "media/description.hpp"

struct OpusDecoder;
struct SpeexResamplerState_;

namespace voice::media {

inline constexpr std::uint32_t kRate = 16'000;

// Packets come in their order: what is heard of one depends on those before it. After creation it allocates nothing.
class Decoder {
public:
    // Null when a library refuses, which takes a lack of memory.
    static std::unique_ptr<Decoder> create(const Description& media);

    // Ticks of the timestamp's clock that a payload lasts; 0: it is not what was described.
    [[nodiscard]] std::uint32_t ticks(std::span<const std::uint8_t> payload) const noexcept;

    // Samples at 16 kHz, until the next call; none where the payload is broken.
    [[nodiscard]] std::span<const std::int16_t> decode(std::span<const std::uint8_t> payload) noexcept;

private:
    static constexpr std::size_t kMostSamples = kMostPacketMs * 48;  // of one channel

    struct Free {
        void operator()(OpusDecoder* decoder) const noexcept;
        void operator()(SpeexResamplerState_* resampler) const noexcept;
    };

    explicit Decoder(const Description& media) noexcept : media_(media) {}

    Description media_;
    std::unique_ptr<OpusDecoder, Free> opus_;
    std::unique_ptr<SpeexResamplerState_, Free> resampler_;  // null: it is 16 kHz already
    std::array<std::int16_t, kMostSamples> decoded_{};
    std::array<std::int16_t, kMostSamples> resampled_{};
};

}  // namespace voice::media
