#include "rtp/packet.hpp"

namespace voice::rtp {
namespace {

constexpr std::uint8_t kVersion = 2;
constexpr std::uint8_t kPadding = 0x20;
constexpr std::uint8_t kExtension = 0x10;
constexpr std::uint8_t kMarker = 0x80;
constexpr std::size_t kWordBytes = 4;

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

}  // namespace voice::rtp
