// libFuzzer: any packets of any codec yield complete frames in order.
#include <array>
#include <cstdint>
#include <cstdlib>

#include "media/transcoder.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace voice;
    static constexpr std::array kMedia{"0 PCMU/8000/1 30",    "8 PCMA/8000/1 20",      "96 L16/8000/2 40",
                                       "96 L16/16000/1 10",   "96 L16/44100/1 10",     "96 L16/48000/1 15",
                                       "111 opus/48000/2 20", "111 opus/48000/2 60"};
    // The codec, then packets: a step of the sequence, one of the time, the type, the size, the payload.
    if (size == 0) {
        return 0;
    }
    const auto media = media::read_description(kMedia[data[0] % kMedia.size()]);
    const auto transcoder = media::Transcoder::create(*media);
    std::span<const std::uint8_t> left(data + 1, size - 1);
    rtp::Packet packet;
    while (left.size() > 4) {
        packet.sequence = static_cast<std::uint16_t>(packet.sequence + static_cast<std::int8_t>(left[0]));
        packet.timestamp += static_cast<std::uint32_t>(static_cast<std::int8_t>(left[1])) * 80;
        packet.is_audio = left[2] >= 8;
        const std::size_t bytes = std::min<std::size_t>(left.size() - 4, left[3] == 255 ? media->payload_bytes() : left[3]);
        packet.payload = left.subspan(4, bytes);
        left = left.subspan(4 + bytes);
        if (transcoder->insert(packet) == media::Transcoder::Arrival::kBeyond) {
            while (transcoder->run_out()) {
            }
            transcoder->skip_to(packet);
            static_cast<void>(transcoder->insert(packet));
        }
        while (const auto made = transcoder->next()) {
            if (made->is_audio && made->payload.size() != rtp::kFrameBytes) {
                std::abort();
            }
        }
    }
    return 0;
}
