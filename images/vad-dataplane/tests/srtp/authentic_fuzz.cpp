// libFuzzer: a sender with the key may encrypt anything. Authentic packets are returned unchanged, and their parsers
// (RTP, RTCP, codecs, the jitter buffer) never read outside them.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "media/transcoder.hpp"
#include "rtp/jitter_buffer.hpp"
#include "rtp/packet.hpp"
#include "srtp/sealing.hpp"

namespace {

using namespace voice;

constexpr std::uint32_t kSsrc = 0x0a0b0c0d;
constexpr srtp::Key kKey{1, 2, 3};

void check(bool holds) {
    if (!holds) {
        std::abort();
    }
}

// Sets its first bytes to those of a packet of the session; otherwise none of it would be parsed.
std::vector<std::uint8_t> as_packet(std::span<const std::uint8_t> bytes, bool is_report) {
    std::vector<std::uint8_t> packet(bytes.begin(), bytes.end());
    packet.resize(std::max<std::size_t>(packet.size(), rtp::kHeaderBytes));
    packet[0] = static_cast<std::uint8_t>(0x80 | (packet[0] & 0x3f));
    packet[1] = is_report ? static_cast<std::uint8_t>(200 + packet[1] % 8) : packet[1];
    for (std::size_t i = 0; i < 4; ++i) {
        packet[(is_report ? 4 : 8) + i] = static_cast<std::uint8_t>(kSsrc >> (24 - 8 * i));
    }
    return packet;
}

void hear(media::Transcoder& transcoder, rtp::JitterBuffer& jitter, const rtp::Packet& packet) {
    if (transcoder.insert(packet) == media::Transcoder::Arrival::kBeyond) {
        while (transcoder.run_out()) {
        }
        transcoder.skip_to(packet);
        static_cast<void>(transcoder.insert(packet));
    }
    while (const auto made = transcoder.next()) {
        check(!made->is_audio || made->payload.size() == rtp::kFrameBytes);
        if (!made->is_audio) {
            jitter.pass(*made);
        } else if (jitter.insert(*made) == rtp::JitterBuffer::Arrival::kBeyond) {
            while (jitter.run_out()) {
            }
            jitter.skip_to(*made);
            static_cast<void>(jitter.insert(*made));
        }
        while (jitter.next()) {
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const test::Sealer sealer(kKey);
    static constexpr std::array kMedia{"0 PCMU/8000/1 20", "96 L16/48000/1 15", "111 opus/48000/2 20 110,126"};
    if (size < 2) {
        return 0;
    }
    const auto receiver = srtp::Receiver::create(kSsrc, kKey);
    const auto media = media::read_description(kMedia[data[0] % kMedia.size()]);
    const auto transcoder = media::Transcoder::create(*media);
    rtp::JitterBuffer jitter;
    std::uint32_t reports = 0;
    // Packets: a byte for the kind, one for the length, and the content.
    for (std::span<const std::uint8_t> left(data + 1, size - 1); left.size() > 2;) {
        const bool is_report = (left[0] & 1) != 0;
        const auto plain = as_packet(left.subspan(2, std::min<std::size_t>(left.size() - 2, left[1])), is_report);
        left = left.subspan(std::min<std::size_t>(left.size(), 2U + left[1]));
        auto sealed = plain;
        if (is_report) {
            sealer.seal_report(sealed, kSsrc, reports++);
            const auto opened = receiver->unprotect_report(sealed);
            check(opened.verdict == srtp::Verdict::kOk && std::ranges::equal(opened.packet, plain));
            static_cast<void>(rtp::notice_of(opened.packet, kSsrc));
            continue;
        }
        std::size_t header = rtp::kHeaderBytes + 4 * (plain[0] & 0x0fU);
        if ((plain[0] & 0x10) != 0 && plain.size() >= header + 4) {
            header += 4U + 4U * (plain[header + 2] << 8 | plain[header + 3]);
        }
        if (header > plain.size()) {
            continue;  // no sender could leave this header unencrypted
        }
        sealer.seal(sealed, header, kSsrc, static_cast<std::uint64_t>(plain[2]) << 8 | plain[3]);
        const auto opened = receiver->unprotect(sealed);
        // A number may be a repeat, or be taken for one of the previous wrap.
        if (opened.verdict == srtp::Verdict::kOk) {
            check(std::ranges::equal(opened.packet, plain));
            if (auto parsed = rtp::parse(opened.packet)) {
                parsed->is_audio = !media->without_audio.test(parsed->payload_type);
                hear(*transcoder, jitter, *parsed);
            }
        }
    }
    return 0;
}
