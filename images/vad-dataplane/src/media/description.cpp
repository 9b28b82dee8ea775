#include "media/description.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "media/transcoder.hpp"

namespace voice::media {
namespace {

constexpr std::array<std::pair<std::string_view, Codec>, 4> kNames{
    {{"L16", Codec::kL16}, {"PCMU", Codec::kPcmu}, {"PCMA", Codec::kPcma}, {"opus", Codec::kOpus}}};

// Removes the text before `end`, and returns it.
std::string_view take(std::string_view& text, char end) noexcept {
    const auto at = text.find(end);
    const auto word = text.substr(0, at);
    text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
    return word;
}

// 0 if it is not a number; only the payload type may be 0.
std::uint32_t number(std::string_view word) noexcept {
    std::uint32_t value = 0;
    const auto [at, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    return error == std::errc{} && at == word.data() + word.size() ? value : 0;
}

// With the marker bit, packets of these types look like RTCP on the same port (RFC 5761, section 4).
bool looks_like_rtcp(std::uint32_t payload_type) noexcept { return payload_type >= 64 && payload_type <= 95; }

bool is_taken(const Description& media) noexcept {
    if (looks_like_rtcp(media.payload_type) || media.without_audio.test(media.payload_type) || media.packet_ms < 10 ||
        media.packet_ms > kMostPacketMs) {
        return false;
    }
    switch (media.codec) {
        case Codec::kL16:
            return media.rate >= 8'000 && media.rate <= 48'000 && (media.channels == 1 || media.channels == 2) &&
                   media.rate * media.packet_ms % 1000 == 0 && media.payload_bytes() <= kMostPayloadBytes;
        case Codec::kOpus:
            return media.rate == 48'000 && media.channels == 2;  // regardless of its content (RFC 7587)
        default:
            return media.rate == 8'000 && media.channels == 1;
    }
}

// False: not a list of dynamic payload types.
bool read_events(std::string_view text, PayloadTypes& without_audio) noexcept {
    without_audio = PayloadTypes().set(kComfortNoise);
    if (text.ends_with(',')) {
        return false;
    }
    do {
        const std::uint32_t type = number(take(text, ','));
        if (type < 96 || type > 127) {
            return false;
        }
        without_audio.set(type);
    } while (!text.empty());
    return true;
}

}  // namespace

std::optional<Description> read_description(std::string_view text) noexcept {
    const auto type = take(text, ' ');
    const auto name = take(text, '/');
    Description media;
    media.payload_type = static_cast<std::uint8_t>(std::min(number(type), 127U));
    media.rate = number(take(text, '/'));
    media.channels = number(take(text, ' '));
    const bool names_events = text.find(' ') != std::string_view::npos;
    media.packet_ms = number(take(text, ' '));
    if (names_events && !read_events(text, media.without_audio)) {
        return std::nullopt;
    }
    for (const auto& [known, codec] : kNames) {
        media.codec = codec;
        if (name == known && number(type) < 128 && (media.payload_type != 0 || type == "0") && is_taken(media)) {
            return media;
        }
    }
    return std::nullopt;
}

}  // namespace voice::media
