// The processor's clock, which takes a few nanoseconds to read, without the kernel.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "support/count.hpp"

namespace voice {

inline std::uint64_t cycles() noexcept {
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    std::uint64_t ticks;
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
#error "no cycle counter is known here"
#endif
}

// Adds the cycles of its scope to a stage's counters.
template <typename Counters>
class Stopwatch {
public:
    explicit Stopwatch(Counters& into) noexcept : into_(into), start_(cycles()) {}
    ~Stopwatch() {
        into_.cycles += cycles() - start_;
        ++into_.items;
    }
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;

private:
    Counters& into_;
    std::uint64_t start_;
};

}  // namespace voice
