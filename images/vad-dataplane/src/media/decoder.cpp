#include "media/decoder.hpp"

#include <opus/opus.h>
#include <speex/speex_resampler.h>

namespace voice::media {
namespace {

using Table = std::array<std::int16_t, 256>;

// ITU-T G.711: a sign, an exponent of three bits and a mantissa of four; a segment is a power of two.
constexpr std::int16_t from_mu_law(unsigned code) noexcept {
    const unsigned bits = ~code;
    const int level = ((static_cast<int>(bits & 0x0fU) << 3) + 0x84) << (bits >> 4 & 7U);
    return static_cast<std::int16_t>((bits & 0x80U) != 0 ? 0x84 - level : level - 0x84);
}

constexpr std::int16_t from_a_law(unsigned code) noexcept {
    const unsigned bits = code ^ 0x55U;
    const unsigned exponent = bits >> 4 & 7U;
    const int mantissa = static_cast<int>(bits & 0x0fU) << 4;
    const int level = exponent == 0 ? mantissa + 8 : (mantissa + 0x108) << (exponent - 1);
    return static_cast<std::int16_t>((bits & 0x80U) != 0 ? level : -level);
}

template <typename Law>
constexpr Table table_of(Law law) noexcept {
    Table table{};
    for (unsigned code = 0; code < table.size(); ++code) {
        table[code] = law(code);
    }
    return table;
}

constexpr Table kMuLaw = table_of(from_mu_law);
constexpr Table kALaw = table_of(from_a_law);

// The mean of all channels. L16 is big-endian (RFC 3551).
std::size_t mix(std::span<const std::uint8_t> payload, std::size_t channels, std::int16_t* into) noexcept {
    const std::size_t count = payload.size() / 2 / channels;
    for (std::size_t i = 0; i < count; ++i) {
        int sum = 0;
        for (std::size_t at = i * channels; at < (i + 1) * channels; ++at) {
            sum += static_cast<std::int16_t>(payload[2 * at] << 8 | payload[2 * at + 1]);
        }
        into[i] = static_cast<std::int16_t>(sum / static_cast<int>(channels));
    }
    return count;
}

}  // namespace

void Decoder::Free::operator()(OpusDecoder* decoder) const noexcept { opus_decoder_destroy(decoder); }

void Decoder::Free::operator()(SpeexResamplerState_* resampler) const noexcept { speex_resampler_destroy(resampler); }

std::unique_ptr<Decoder> Decoder::create(const Description& media) {
    std::unique_ptr<Decoder> made(new Decoder(media));
    int error = 0;
    if (media.codec == Codec::kOpus) {
        made->opus_.reset(opus_decoder_create(kRate, 1, &error));
    } else if (media.rate != kRate) {
        made->resampler_.reset(
            speex_resampler_init(1, media.rate, kRate, SPEEX_RESAMPLER_QUALITY_VOIP, &error));
    }
    return error == 0 ? std::move(made) : nullptr;
}

std::uint32_t Decoder::ticks(std::span<const std::uint8_t> payload) const noexcept {
    if (media_.codec != Codec::kOpus) {
        return payload.size() == media_.payload_bytes() ? media_.rate * media_.packet_ms / 1000 : 0;
    }
    const int samples = opus_packet_get_nb_samples(payload.data(), static_cast<int>(payload.size()),
                                                   static_cast<int>(media_.rate));
    return samples > 0 && static_cast<std::size_t>(samples) <= kMostSamples ? static_cast<std::uint32_t>(samples) : 0;
}

std::span<const std::int16_t> Decoder::decode(std::span<const std::uint8_t> payload) noexcept {
    std::size_t count = 0;
    switch (media_.codec) {
        case Codec::kOpus: {
            const int made = opus_decode(opus_.get(), payload.data(), static_cast<int>(payload.size()), decoded_.data(),
                                         static_cast<int>(decoded_.size()), 0);
            return std::span(decoded_).first(made > 0 ? static_cast<std::size_t>(made) : 0);
        }
        case Codec::kL16:
            count = mix(payload, media_.channels, decoded_.data());
            break;
        default: {
            const Table& table = media_.codec == Codec::kPcmu ? kMuLaw : kALaw;
            for (const std::uint8_t code : payload) {
                decoded_[count++] = table[code];
            }
        }
    }
    if (resampler_ == nullptr) {
        return std::span(decoded_).first(count);
    }
    auto taken = static_cast<std::uint32_t>(count);
    auto made = static_cast<std::uint32_t>(resampled_.size());
    speex_resampler_process_int(resampler_.get(), 0, decoded_.data(), &taken, resampled_.data(), &made);
    return std::span(resampled_).first(made);
}

}  // namespace voice::media
