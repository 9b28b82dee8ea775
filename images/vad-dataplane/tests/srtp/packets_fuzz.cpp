// libFuzzer: no packet made without the key is accepted, read beyond its end, or changed.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "srtp/receiver.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace voice::srtp;
    constexpr std::uint8_t kSsrcByte = 7;
    constexpr std::uint32_t kSsrc = 0x07070707;
    static const auto counter_mode = Receiver::create(kSsrc, Key{1, 2, 3}, Suite::kAesCm128HmacSha1_80);
    static const auto galois = Receiver::create(kSsrc, Key{1, 2, 3}, Suite::kAeadAes128Gcm);
    std::vector<std::uint8_t> packet(data, data + size);
    for (std::size_t i = 4; i < std::min<std::size_t>(size, 12); ++i) {
        packet[i] = kSsrcByte;  // of a report, and of audio: others are refused at once
    }
    const auto before = packet;
    for (Receiver* receiver : {counter_mode.get(), galois.get()}) {
        if (receiver->unprotect(packet).verdict == Verdict::kOk || receiver->unprotect_report(packet).verdict == Verdict::kOk ||
            packet != before) {
            std::abort();
        }
    }
    return 0;
}
