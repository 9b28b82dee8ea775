// Packets for tests, built layer by layer.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace voice::test {

using Bytes = std::vector<std::uint8_t>;

inline constexpr std::uint16_t kRtpPort = 5004;
inline constexpr std::uint32_t kSsrc = 0x0a0b0c0d;

inline void put16(Bytes& bytes, std::size_t value) {
    bytes.push_back(static_cast<std::uint8_t>(value >> 8));
    bytes.push_back(static_cast<std::uint8_t>(value));
}

inline Bytes operator+(Bytes left, const Bytes& right) {
    left.insert(left.end(), right.begin(), right.end());
    return left;
}

struct Rtp {
    std::uint32_t ssrc = kSsrc;
    std::uint8_t version = 2;
    std::uint8_t contributors = 0; // as the header says
    std::uint8_t payload_type = 96;
    std::size_t audio_bytes = 640;

    [[nodiscard]] Bytes bytes() const {
        Bytes out{static_cast<std::uint8_t>(version << 6 | contributors), payload_type, 0, 1, 0, 0, 0, 0};
        put16(out, ssrc >> 16);
        put16(out, ssrc & 0xffff);
        out.resize(out.size() + audio_bytes);
        return out;
    }
};

// A datagram; `length` overrides the length in its header.
inline Bytes udp(const Bytes& payload, std::uint16_t port = kRtpPort, int length = -1, std::uint16_t from = 40000) {
    Bytes out;
    put16(out, from);
    put16(out, port);
    put16(out, length < 0 ? payload.size() + 8 : static_cast<std::size_t>(length));
    put16(out, 0);
    return out + payload;
}

struct Ipv4 {
    std::uint8_t version = 4;
    std::uint8_t header_words = 5; // as the header says
    std::uint8_t protocol = 17;
    std::uint16_t fragment = 0x4000; // "do not fragment"
    std::size_t option_bytes = 0;

    [[nodiscard]] Bytes operator()(const Bytes& payload) const {
        Bytes out{static_cast<std::uint8_t>(version << 4 | header_words), 0};
        put16(out, 20 + option_bytes + payload.size());
        put16(out, 1);
        put16(out, fragment);
        out = out + Bytes{64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2};
        out.resize(out.size() + option_bytes, 1);
        return out + payload;
    }
};

inline Bytes ipv6(const Bytes& payload) {
    Bytes out{6 << 4, 0, 0, 0};
    put16(out, payload.size());
    out.push_back(17);
    out.push_back(64);
    out.resize(out.size() + 32, 0x20);
    return out + payload;
}

// A frame; each tag is the protocol of one VLAN tag in front of `protocol`.
inline Bytes ethernet(const Bytes& payload, std::uint16_t protocol = 0x0800,
                      std::initializer_list<std::uint16_t> tags = {}) {
    Bytes out(12, 2);
    for (const auto tag : tags) {
        put16(out, tag);
        put16(out, 100);
    }
    put16(out, protocol);
    return out + payload;
}

inline Bytes cut(Bytes frame, std::size_t bytes) {
    frame.resize(bytes);
    return frame;
}

}  // namespace voice::test
