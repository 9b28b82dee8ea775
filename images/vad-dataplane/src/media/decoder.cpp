#include "media/decoder.hpp"

#include <opus/opus.h>
#include <speex/speex_resampler.h>

#include <algorithm>

#include "wire/packet.h"

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
            sum += static_cast<std::int16_t>(voice_read16(&payload[2 * at]));
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

bool Decoder::has_previous(std::span<const std::uint8_t> payload) const noexcept {
    constexpr std::uint8_t kCeltOnly = 0x80;  // RFC 6716, section 3.1: such packets contain no copy
    if (media_.codec != Codec::kOpus || payload.empty() || (payload[0] & kCeltOnly) != 0) {
        return false;
    }
    std::array<const unsigned char*, 48> frames{};
    std::array<opus_int16, 48> sizes{};
    unsigned char toc = 0;
    int offset = 0;
    const int count = opus_packet_parse(payload.data(), static_cast<int>(payload.size()), &toc, frames.data(), sizes.data(),
                                        &offset);
    if (count <= 0 || sizes[0] == 0) {
        return false;
    }
    // The first bits of a frame (sections 4.2.3 and 4.2.4): a speech flag for each 20 ms, then that of the copy; the
    // second channel has the same.
    const int spoken = std::max(1, opus_packet_get_samples_per_frame(payload.data(), 48'000) / 960);
    const unsigned bits = *frames[0];
    const bool is_stereo = opus_packet_get_nb_channels(payload.data()) == 2;
    return (bits >> (7 - spoken) & 1) != 0 || (is_stereo && (bits >> (6 - 2 * spoken) & 1) != 0);
}

std::span<const std::int16_t> Decoder::recover(std::span<const std::uint8_t> payload, std::uint32_t ticks) noexcept {
    return conceal(payload, ticks);
}

void Decoder::lose(std::uint32_t ticks) noexcept { conceal({}, ticks); }

std::span<const std::int16_t> Decoder::conceal(std::span<const std::uint8_t> next, std::uint32_t ticks) noexcept {
    const std::size_t samples = std::size_t{ticks} * kRate / media_.rate;
    if (opus_ == nullptr || samples > decoded_.size()) {
        return {};
    }
    const int made = opus_decode(opus_.get(), next.empty() ? nullptr : next.data(), static_cast<int>(next.size()),
                                 decoded_.data(), static_cast<int>(samples), next.empty() ? 0 : 1);
    return std::span(decoded_).first(made > 0 ? static_cast<std::size_t>(made) : 0);
}

}  // namespace voice::media
