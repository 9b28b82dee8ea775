#include "rtp/packet.hpp"

#include "wire/packet.h"

namespace voice::rtp {
namespace {

constexpr std::uint8_t kPadding = 0x20;
constexpr std::uint8_t kExtension = 0x10;
constexpr std::uint8_t kMarker = 0x80;
constexpr std::size_t kWordBytes = 4;
constexpr std::uint8_t kBye = 203;
constexpr std::uint8_t kApplication = 204;
constexpr std::uint32_t kCommitName = 0x636d6974;  // "cmit"

}  // namespace

std::optional<Packet> parse(std::span<const std::uint8_t> bytes) noexcept {
    if (bytes.size() < kHeaderBytes || bytes[0] >> 6 != VOICE_RTP_VERSION) {
        return std::nullopt;
    }
    std::size_t header = kHeaderBytes + kWordBytes * (bytes[0] & 0x0fU);
    if ((bytes[0] & kExtension) != 0) {
        if (bytes.size() < header + kWordBytes) {
            return std::nullopt;
        }
        header += kWordBytes + kWordBytes * voice_read16(&bytes[header + 2]);
    }
    if (bytes.size() < header) {
        return std::nullopt;
    }
    std::size_t payload = bytes.size() - header;
    if ((bytes[0] & kPadding) != 0) {
        const std::size_t padding = payload == 0 ? 0 : bytes.back();
        if (padding == 0 || padding > payload) {
            return std::nullopt;
        }
        payload -= padding;
    }
    return Packet{
        .payload_type = static_cast<std::uint8_t>(bytes[1] & 0x7f),
        .marker = (bytes[1] & kMarker) != 0,
        .sequence = voice_read16(&bytes[2]),
        .timestamp = voice_read32(&bytes[4]),
        .ssrc = voice_read32(&bytes[8]),
        .payload = bytes.subspan(header, payload),
    };
}

std::uint32_t timestamp_of(std::span<const std::uint8_t> bytes) noexcept { return voice_read32(&bytes[4]); }

bool is_rtcp(std::span<const std::uint8_t> bytes) noexcept {
    return bytes.size() >= VOICE_RTCP_HEADER_BYTES && bytes[1] >= VOICE_RTCP_FIRST && bytes[1] <= VOICE_RTCP_LAST;
}

std::optional<std::uint32_t> sender_of(std::span<const std::uint8_t> bytes) noexcept {
    if (bytes.empty()) {
        return std::nullopt;
    }
    voice_cursor cursor{.at = bytes.data(), .end = bytes.data() + bytes.size()};
    __u32 ssrc = 0;
    const auto kind = voice_take_sender(&cursor, static_cast<__u32>(bytes.size()), &ssrc);
    return kind == VOICE_NEITHER ? std::nullopt : std::optional<std::uint32_t>(ssrc);
}

Notice notice_of(std::span<const std::uint8_t> bytes, std::uint32_t ssrc) noexcept {
    Notice found = Notice::kNone;
    while (bytes.size() >= kWordBytes && bytes[0] >> 6 == VOICE_RTP_VERSION) {
        const std::size_t size = kWordBytes * (voice_read16(&bytes[2]) + 1U);
        const std::size_t sources = bytes[0] & 0x1fU;
        if (size > bytes.size()) {
            break;
        }
        for (std::size_t i = 0; bytes[1] == kBye && i < sources && kWordBytes * (i + 2) <= size; ++i) {
            if (voice_read32(&bytes[kWordBytes * (i + 1)]) == ssrc) {
                return Notice::kBye;
            }
        }
        if (bytes[1] == kApplication && size >= 3 * kWordBytes && voice_read32(&bytes[kWordBytes]) == ssrc &&
            voice_read32(&bytes[2 * kWordBytes]) == kCommitName) {
            found = Notice::kCommit;
        }
        bytes = bytes.subspan(size);
    }
    return found;
}

}  // namespace voice::rtp
