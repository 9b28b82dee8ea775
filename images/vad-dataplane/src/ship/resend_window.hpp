// The chunks that were sent last, in order, in memory that is made once: what a host that dies takes with it is sent
// again from here. A chunk that cannot be sent yet, because those before it have to be sent again first, waits here too.
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
    // Instead of a host's number.
    static constexpr std::uint32_t kOwed = 0;  // has not been sent
    static constexpr std::uint32_t kGone = 1;  // was not sent in its time

    struct Entry {
        voice_audio_chunk chunk;
        std::uint32_t host;  // number of the host that has it (Pinning)
        std::uint32_t source;  // index of the ring that it came from
        Clock::time_point at;
    };

    ResendWindow(std::chrono::seconds length, std::size_t bytes)
        : length_(length), entries_(std::max<std::size_t>(1, bytes / sizeof(Entry))) {}

    // Entries are numbered from the first one on; those from begin() to end() are here.
    [[nodiscard]] std::uint64_t begin() const noexcept {
        return end_ < entries_.size() ? 0 : end_ - entries_.size();
    }
    [[nodiscard]] std::uint64_t end() const noexcept { return end_; }
    [[nodiscard]] Entry& operator[](std::uint64_t number) noexcept { return entries_[number % entries_.size()]; }

    // Whether the entry is still worth sending.
    [[nodiscard]] bool is_young(const Entry& entry, Clock::time_point now) const noexcept {
        return now - entry.at < length_;
    }

    // The entry that the next append() replaces; null where none is.
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
