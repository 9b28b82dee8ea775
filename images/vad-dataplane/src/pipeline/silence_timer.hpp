// Detects that a session's sender has stopped: muted, hung up, or unreachable.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace voice::pipeline {

// Used by one thread. A check costs one word of memory, read sequentially: a timer per session would need sorting, and
// an update with every packet.
class SilenceTimer {
public:
    static constexpr std::chrono::nanoseconds kAfter = std::chrono::milliseconds(350);
    // the time in which all are checked
    static constexpr std::chrono::nanoseconds kRound = std::chrono::milliseconds(100);

    explicit SilenceTimer(std::size_t slots) : heard_ns_(slots) {}

    // Audio has arrived.
    void start(std::uint32_t slot, std::int64_t now_ns) noexcept { heard_ns_[slot] = now_ns; }
    void stop(std::uint32_t slot) noexcept { heard_ns_[slot] = 0; }

    // Calls once for each slot that has expired.
    template <typename Callback>
    void pass(std::int64_t now_ns, Callback&& callback) noexcept {
        const auto slots = static_cast<std::int64_t>(heard_ns_.size());
        const std::int64_t looks = std::min(slots, slots * std::min(now_ns - passed_ns_, kRound.count()) / kRound.count());
        passed_ns_ = looks > 0 ? now_ns : passed_ns_;
        for (std::int64_t i = 0; i < looks; ++i) {
            at_ = at_ + 1 < heard_ns_.size() ? at_ + 1 : 0;
            if (heard_ns_[at_] != 0 && now_ns - heard_ns_[at_] >= kAfter.count()) {
                heard_ns_[at_] = 0;
                callback(static_cast<std::uint32_t>(at_));
            }
        }
    }

private:
    std::vector<std::int64_t> heard_ns_;  // 0: not running
    std::size_t at_ = 0;
    std::int64_t passed_ns_ = 0;
};

}  // namespace voice::pipeline
