#include "media/description.hpp"

#include <array>
#include <charconv>
#include <utility>

#include "media/transcoder.hpp"
#include "rtp/packet.hpp"

namespace voice::media {
namespace {

constexpr std::array<std::pair<std::string_view, Codec>, 4> kNames{
    {{"L16", Codec::kL16}, {"PCMU", Codec::kPcmu}, {"PCMA", Codec::kPcma}, {"opus", Codec::kOpus}}};

// Takes what stands before `end` off the text.
std::string_view take(std::string_view& text, char end) noexcept {
    const auto at = text.find(end);
    const auto word = text.substr(0, at);
    text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
    return word;
}

// 0, which no field may be but the payload type, where it is no number.
std::uint32_t number(std::string_view word) noexcept {
    std::uint32_t value = 0;
    const auto [at, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    return error == std::errc{} && at == word.data() + word.size() ? value : 0;
}

bool is_taken(const Description& media) noexcept {
    if (media.payload_type > 127 || media.payload_type == rtp::kComfortNoise ||
        media.payload_type == rtp::kTelephoneEvent || media.packet_ms < 10 || media.packet_ms > kMostPacketMs) {
        return false;
    }
    switch (media.codec) {
        case Codec::kL16:
            return media.rate >= 8'000 && media.rate <= 48'000 && (media.channels == 1 || media.channels == 2) &&
                   media.rate * media.packet_ms % 1000 == 0 && media.payload_bytes() <= kMostPayloadBytes;
        case Codec::kOpus:
            return media.rate == 48'000 && media.channels == 2;  // whatever it holds (RFC 7587)
        default:
            return media.rate == 8'000 && media.channels == 1;
    }
}

}  // namespace

std::optional<Description> read_description(std::string_view text) noexcept {
    const auto type = take(text, ' ');
    const auto name = take(text, '/');
    Description media;
    media.payload_type = static_cast<std::uint8_t>(number(type));
    media.rate = number(take(text, '/'));
    media.channels = number(take(text, ' '));
    media.packet_ms = number(text);
    for (const auto& [known, codec] : kNames) {
        media.codec = codec;
        if (name == known && number(type) < 128 && (media.payload_type != 0 || type == "0") && is_taken(media)) {
            return media;
        }
    }
    return std::nullopt;
}

}  // namespace voice::media
