#include "admission/steer_gate.hpp"

namespace voice::admission {

std::size_t SteerGate::wait(std::span<std::uint32_t> ssrcs, std::chrono::milliseconds limit) {
    std::size_t count = 0;
    steer_.poll_requests(limit, [&](const voice_steer_admission& request) {
        ssrcs[count++] = request.ssrc;
        return count < ssrcs.size();
    });
    return count;
}

}  // namespace voice::admission
