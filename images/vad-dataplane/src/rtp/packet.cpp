#include "rtp/packet.hpp"

namespace voice::rtp {
namespace {

constexpr std::uint8_t kVersion = 2;
constexpr std::uint8_t kPadding = 0x20;
constexpr std::uint8_t kExtension = 0x10;
constexpr std::uint8_t kMarker = 0x80;
constexpr std::size_t kWordBytes = 4;
constexpr std::size_t kReportHeaderBytes = 8;
constexpr std::uint8_t kFirstReport = 192;
constexpr std::uint8_t kLastReport = 223;
constexpr std::uint8_t kBye = 203;
constexpr std::uint8_t kApplication = 204;
constexpr std::uint32_t kCommitName = 0x636d6974;  // "cmit"

std::uint16_t read16(std::span<const std::uint8_t> bytes, std::size_t at) noexcept {
    return static_cast<std::uint16_t>(bytes[at] << 8 | bytes[at + 1]);
}

std::uint32_t read32(std::span<const std::uint8_t> bytes, std::size_t at) noexcept {
    return static_cast<std::uint32_t>(read16(bytes, at)) << 16 | read16(bytes, at + 2);
}

}  // namespace

std::optional<Packet> parse(std::span<const std::uint8_t> bytes) noexcept {
    if (bytes.size() < kHeaderBytes || bytes[0] >> 6 != kVersion) {
        return std::nullopt;
    }
    std::size_t header = kHeaderBytes + kWordBytes * (bytes[0] & 0x0fU);
    if ((bytes[0] & kExtension) != 0) {
        if (bytes.size() < header + kWordBytes) {
            return std::nullopt;
        }
        header += kWordBytes + kWordBytes * read16(bytes, header + 2);
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
        .sequence = read16(bytes, 2),
        .timestamp = read32(bytes, 4),
        .ssrc = read32(bytes, 8),
        .payload = bytes.subspan(header, payload),
    };
}

std::uint32_t timestamp_of(std::span<const std::uint8_t> bytes) noexcept { return read32(bytes, 4); }

bool is_rtcp(std::span<const std::uint8_t> bytes) noexcept {
    return bytes.size() >= kReportHeaderBytes && bytes[1] >= kFirstReport && bytes[1] <= kLastReport;
}

std::optional<std::uint32_t> sender_of(std::span<const std::uint8_t> bytes) noexcept {
    const bool report = is_rtcp(bytes);
    if (bytes.size() < (report ? kReportHeaderBytes : kHeaderBytes) || bytes[0] >> 6 != kVersion) {
        return std::nullopt;
    }
    return read32(bytes, report ? 4 : 8);
}

Notice notice_of(std::span<const std::uint8_t> bytes, std::uint32_t ssrc) noexcept {
    Notice found = Notice::kNone;
    while (bytes.size() >= kWordBytes && bytes[0] >> 6 == kVersion) {
        const std::size_t size = kWordBytes * (read16(bytes, 2) + 1U);
        const std::size_t sources = bytes[0] & 0x1fU;
        if (size > bytes.size()) {
            break;
        }
        for (std::size_t i = 0; bytes[1] == kBye && i < sources && kWordBytes * (i + 2) <= size; ++i) {
            if (read32(bytes, kWordBytes * (i + 1)) == ssrc) {
                return Notice::kBye;
            }
        }
        if (bytes[1] == kApplication && size >= 3 * kWordBytes && read32(bytes, kWordBytes) == ssrc &&
            read32(bytes, 2 * kWordBytes) == kCommitName) {
            found = Notice::kCommit;
        }
        bytes = bytes.subspan(size);
    }
    return found;
}

}  // namespace voice::rtp
