// libFuzzer: the parsers of RTP and RTCP and the jitter buffer never read outside the input.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "receive/udp.hpp"
#include "rtp/jitter_buffer.hpp"
#include "rtp/packet.hpp"

namespace {

void check(bool holds) {
    if (!holds) {
        std::abort();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace voice;
    static rtp::JitterBuffer jitter;
    const std::span bytes(data, size);
    if (const auto packet = rtp::parse(bytes)) {
        const auto* begin = packet->payload.data();
        check(begin >= data + rtp::kHeaderBytes && begin + packet->payload.size() <= data + size);
        check(rtp::sender_of(bytes) || rtp::is_rtcp(bytes));
        static std::array<std::uint8_t, rtp::kFrameBytes> audio;
        rtp::Packet whole = *packet;
        whole.payload = audio;
        if (whole.payload_type == 13) {
            jitter.pass(whole);
        } else if (jitter.insert(whole) == rtp::JitterBuffer::Arrival::kBeyond) {
            while (jitter.run_out()) {
            }
            jitter.skip_to(whole);
            check(jitter.insert(whole) == rtp::JitterBuffer::Arrival::kHeld);
        }
        int heard = 0;
        while (jitter.next()) {
            check(++heard <= static_cast<int>(rtp::JitterBuffer::kSlots));
        }
    }
    if (rtp::is_rtcp(bytes)) {
        static_cast<void>(rtp::notice_of(bytes, rtp::sender_of(bytes).value_or(0)));
    }
    // The same bytes as a network frame.
    std::vector<std::uint8_t> frame(bytes.begin(), bytes.end());
    if (const auto found = receive::udp_payload(frame, 5004)) {
        check(found->bytes.data() >= frame.data() &&
              found->bytes.data() + found->bytes.size() <= frame.data() + frame.size());
    }
    return 0;
}
