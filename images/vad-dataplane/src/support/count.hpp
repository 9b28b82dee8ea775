// A counter with one writer and any number of readers, without locks or locked instructions: relaxed loads and stores
// of a word are plain ones on all supported machines.
#pragma once

#include <atomic>
#include <cstdint>

namespace voice {

class Count {
public:
    Count& operator+=(std::uint64_t more) noexcept {
        value_.store(value_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
        return *this;
    }
    void reset() noexcept { value_.store(0, std::memory_order_relaxed); }
    Count& operator++() noexcept { return *this += 1; }
    operator std::uint64_t() const noexcept { return value_.load(std::memory_order_relaxed); }  // NOLINT: reads as one

private:
    std::atomic<std::uint64_t> value_{0};
};

}  // namespace voice
