// A poller's rows of the session table, where other processes read the progress of its sessions.
#pragma once

#include <chrono>

#include "pipeline/slot.hpp"
#include "state/session_state.hpp"
#include "state/session_table.hpp"

namespace voice::pipeline {

// Used by the poller's thread. A row changes when a chunk is made, when speech begins or ends, and once a second.
class LiveState {
public:
    static constexpr std::uint64_t kPacketsPerS = 50;
    // Rows of ended sessions stay for the write-behind thread.
    static constexpr std::chrono::seconds kAfterlife{3};

    // `keep`: how long a row lives without a packet.
    LiveState(state::SessionTable& table, std::chrono::nanoseconds keep) noexcept : table_(table), keep_(keep) {}

    void follow(Slot& slot, std::int64_t now_ns) noexcept {
        const std::uint64_t chunks = slot.utterances.chunks();
        const bool speaking = slot.utterances.speaking();
        if (chunks != slot.chunks.load(std::memory_order_relaxed) ||
            speaking != slot.speaking.load(std::memory_order_relaxed) || slot.packets % kPacketsPerS == 1) {
            slot.chunks.store(chunks, std::memory_order_relaxed);
            slot.speaking.store(speaking, std::memory_order_relaxed);
            put(slot, now_ns, keep_);
        }
    }

    void close(Slot& slot, std::int64_t now_ns) noexcept {
        slot.chunks.store(slot.utterances.chunks(), std::memory_order_relaxed);
        slot.speaking.store(false, std::memory_order_relaxed);
        put(slot, now_ns, kAfterlife);
    }

    // Called when the session moves to or from another poller.
    void leave(const Slot& slot) noexcept { static_cast<void>(table_.erase(slot.ssrc)); }
    void enter(const Slot& slot, std::int64_t now_ns) noexcept { put(slot, now_ns, keep_); }

    // Removes expired rows step by step: those of ended sessions, or of a previous process.
    void sweep(std::int64_t now_ns) noexcept { table_.expire(static_cast<std::uint64_t>(now_ns), 1); }

private:
    void put(const Slot& slot, std::int64_t now_ns, std::chrono::nanoseconds keep) noexcept {
        const state::SessionState row{.packets = slot.packets,
                                      .chunks = slot.utterances.chunks(),
                                      .concealed = slot.concealed,
                                      .seen_ns = slot.seen_ns.load(std::memory_order_relaxed),
                                      .last_sequence = slot.utterances.last_sequence(),
                                      .host = slot.host.load(std::memory_order_relaxed),
                                      .origin = slot.origin(),
                                      .speaking = std::uint16_t{slot.utterances.speaking()},
                                      .has_origin = std::uint16_t{slot.srtp != nullptr && slot.jitter.has_started()},
                                      .wrong_payload = slot.wrong_payload};
        // A full table holds rows that expire soon: the session is stored the next time.
        const auto expires_ns = static_cast<std::uint64_t>(now_ns + keep.count());
        static_cast<void>(table_.put(slot.ssrc, state::to_value(row), expires_ns));
    }

    state::SessionTable& table_;
    std::chrono::nanoseconds keep_;
};

}  // namespace voice::pipeline
