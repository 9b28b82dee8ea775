// Decodes the payload of one packet to samples of one channel at 16 kHz.
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

// Packets must be in order: decoding one depends on the previous ones. After creation it allocates nothing.
class Decoder {
public:
    // Null if a library fails, which happens only without memory.
    static std::unique_ptr<Decoder> create(const Description& media);

    // Duration of a payload in ticks of the timestamp's clock; 0: it does not match the description.
    [[nodiscard]] std::uint32_t ticks(std::span<const std::uint8_t> payload) const noexcept;

    // Samples at 16 kHz, valid until the next call; none if the payload is invalid.
    [[nodiscard]] std::span<const std::int16_t> decode(std::span<const std::uint8_t> payload) noexcept;

    // Whether a payload contains a copy of the previous packet (in-band forward error correction of Opus).
    [[nodiscard]] bool has_previous(std::span<const std::uint8_t> payload) const noexcept;
    // Decodes that copy, which lasts `ticks`; valid until the next call. Decode the payload itself afterwards.
    [[nodiscard]] std::span<const std::int16_t> recover(std::span<const std::uint8_t> payload,
                                                        std::uint32_t ticks) noexcept;
    // Reports lost audio that is not recovered: a predicting decoder continues from its own estimate.
    void lose(std::uint32_t ticks) noexcept;

private:
    static constexpr std::size_t kMostSamples = kMostPacketMs * 48;  // of one channel

    struct Free {
        void operator()(OpusDecoder* decoder) const noexcept;
        void operator()(SpeexResamplerState_* resampler) const noexcept;
    };

    // Decodes `ticks` of lost audio, from the following packet or, without one, from the previous audio.
    std::span<const std::int16_t> conceal(std::span<const std::uint8_t> next, std::uint32_t ticks) noexcept;

    explicit Decoder(const Description& media) noexcept : media_(media) {}

    Description media_;
    std::unique_ptr<OpusDecoder, Free> opus_;
    std::unique_ptr<SpeexResamplerState_, Free> resampler_;  // null: the audio is at 16 kHz already
    std::array<std::int16_t, kMostSamples> decoded_{};
    std::array<std::int16_t, kMostSamples> resampled_{};
};

}  // namespace voice::media
