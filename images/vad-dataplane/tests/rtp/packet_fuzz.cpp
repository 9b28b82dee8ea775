// libFuzzer: whatever arrives, the parser stays inside it.
#include <cstdint>
#include <cstdlib>

#include "rtp/packet.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::span bytes(data, size);
    if (const auto packet = voice::rtp::parse(bytes)) {
        const auto* begin = packet->payload.data();
        if (begin < data + voice::rtp::kHeaderBytes || begin + packet->payload.size() > data + size) {
            std::abort();
        }
    }
    return 0;
}
