// Prefetches memory: of some thousand sessions, none is in the cache when its packet arrives.
#pragma once

#include <cstddef>

namespace voice {

inline constexpr std::size_t kCacheLine = 64;

inline void prefetch(const void* from, std::size_t bytes) noexcept {
    for (std::size_t at = 0; at < bytes; at += kCacheLine) {
        __builtin_prefetch(static_cast<const char*>(from) + at);
    }
}

inline void prefetch_to_write(void* to, std::size_t bytes) noexcept {
    for (std::size_t at = 0; at < bytes; at += kCacheLine) {
        __builtin_prefetch(static_cast<char*>(to) + at, 1);
    }
}

}  // namespace voice
