#include "admission/steer_gate.hpp"

#include <algorithm>
#include <ctime>

namespace voice::admission {

std::size_t SteerGate::wait(std::span<std::uint32_t> ssrcs, std::chrono::milliseconds limit) {
    std::size_t count = 0;
    steer_.poll_requests(limit, [&](const voice_steer_admission& request) {
        ssrcs[count++] = request.ssrc;
        return count < ssrcs.size();
    });
    return count;
}

void SteerGate::each(const std::function<void(const Session&)>& callback) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    const auto now_ns = std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
    steer_.each([&](std::uint32_t ssrc, const voice_steer_session& session) {
        const std::chrono::nanoseconds silent = now_ns - std::chrono::nanoseconds(session.seen_ns);
        // A packet may have come since the clock was read.
        callback({ssrc, session.blocked != 0, std::max(silent, std::chrono::nanoseconds::zero())});
    });
}

}  // namespace voice::admission
