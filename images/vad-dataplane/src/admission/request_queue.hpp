// Admission requests of receivers without XDP: any thread adds, the admission thread waits.
#pragma once

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>

#include "admission/gate.hpp"

namespace voice::admission {

class RequestQueue final : public Requests {
public:
    static constexpr std::size_t kMax = 1024;

    // False when the queue is full: the packet counts as dropped for `admission-full`.
    bool offer(std::uint32_t ssrc) {
        {
            const std::scoped_lock lock(mutex_);
            if (count_ == kMax) {
                return false;
            }
            ssrcs_[(first_ + count_++) % kMax] = ssrc;
        }
        added_.notify_one();
        return true;
    }

    std::size_t wait(std::span<std::uint32_t> ssrcs, std::chrono::milliseconds limit) override {
        std::unique_lock lock(mutex_);
        added_.wait_for(lock, limit, [&] { return count_ != 0; });
        const auto taken = std::min(count_, ssrcs.size());
        for (std::size_t i = 0; i < taken; ++i) {
            ssrcs[i] = ssrcs_[(first_ + i) % kMax];
        }
        first_ = (first_ + taken) % kMax;
        count_ -= taken;
        return taken;
    }

private:
    std::mutex mutex_;
    std::condition_variable added_;
    std::array<std::uint32_t, kMax> ssrcs_{};
    std::size_t first_ = 0;
    std::size_t count_ = 0;
};

}  // namespace voice::admission
