// What one session keeps, in memory that is made at the start and reused.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "rtp/jitter_buffer.hpp"
#include "session/utterances.hpp"
#include "srtp/receiver.hpp"
#include "support/count.hpp"
#include "support/prefetch.hpp"

namespace voice::pipeline {

inline constexpr int kNobody = -1;

// The admission thread fills a slot while no poller knows it. Then every poller is told; the one that gets the first
// packet owns it, and alone touches what is not atomic, until all have been told to forget it.
struct alignas(kCacheLine) Slot {
    // What every packet needs stands first, its audio last.
    std::uint32_t ssrc = 0;
    std::atomic<int> owner{kNobody};       // index of a poller
    std::atomic<unsigned> known_to{0};     // pollers that know it; a free slot is known to none
    std::atomic<bool> speaking{false};
    std::unique_ptr<srtp::Receiver> srtp;  // null: plain RTP, from the gateway
    std::atomic<std::int64_t> seen_ns{0};  // steady clock, of its last packet
    Count packets;
    Count concealed;
    std::atomic<std::uint64_t> chunks{0};
    std::atomic<std::uint32_t> host{0};  // IPv4 address that its chunks go to, in network order; 0: none yet
    session::Utterances utterances{0, VOICE_CHUNK_LOG_MEL};
    rtp::JitterBuffer jitter;

    // Has what every packet needs fetched, but for the audio: that follows once the jitter buffer's state is here.
    void expect() const noexcept {
        prefetch(this, 3 * kCacheLine);
        prefetch(&jitter, 2 * kCacheLine);
    }
};

}  // namespace voice::pipeline
