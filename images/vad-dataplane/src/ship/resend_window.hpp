// The latest chunks in order, in preallocated memory: the chunks of a host that dies are sent again from here. Chunks
// that must wait for those also wait here.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "wire/audio_chunk.h"

namespace voice::ship {

// Used by one thread.
class ResendWindow {
public:
    using Clock = std::chrono::steady_clock;
    // In place of a host's number.
    static constexpr std::uint32_t kOwed = 0;  // has not been sent
    static constexpr std::uint32_t kGone = 1;  // expired before it was sent

    struct Entry {
        voice_audio_chunk chunk;
        std::uint32_t host;  // number of the host that received it (Pinning)
        std::uint32_t source;  // index of the ring that it came from
        Clock::time_point at;
    };

    ResendWindow(std::chrono::seconds length, std::size_t bytes)
        : length_(length), entries_(std::max<std::size_t>(1, bytes / sizeof(Entry))) {}

    // Entries are numbered from the start; those from begin() to end() are stored.
    [[nodiscard]] std::uint64_t begin() const noexcept {
        return end_ < entries_.size() ? 0 : end_ - entries_.size();
    }
    [[nodiscard]] std::uint64_t end() const noexcept { return end_; }
    [[nodiscard]] Entry& operator[](std::uint64_t number) noexcept { return entries_[number % entries_.size()]; }

    // Whether the entry is still worth sending.
    [[nodiscard]] bool is_young(const Entry& entry, Clock::time_point now) const noexcept {
        return now - entry.at < length_;
    }

    // The entry that the next append() replaces; null if there is none.
    [[nodiscard]] const Entry* oldest() const noexcept {
        return end_ < entries_.size() ? nullptr : &entries_[end_ % entries_.size()];
    }

    void append(const voice_audio_chunk& chunk, std::uint32_t host, std::uint32_t source,
                Clock::time_point now) noexcept {
        (*this)[end_++] = {chunk, host, source, now};
    }

private:
    std::chrono::seconds length_;
    std::vector<Entry> entries_;
    std::uint64_t end_ = 0;
};

}  // namespace voice::ship
