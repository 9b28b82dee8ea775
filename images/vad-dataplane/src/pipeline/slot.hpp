// What one session keeps, in memory that is made at the start and reused.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "media/transcoder.hpp"
#include "rtp/jitter_buffer.hpp"
#include "session/utterances.hpp"
#include "srtp/receiver.hpp"
#include "support/count.hpp"
#include "support/prefetch.hpp"
#include "xdp/steer.h"

namespace voice::pipeline {

inline constexpr int kNobody = -1;

// The admission thread fills a slot while no poller knows it. Then every poller is told; the one that gets the first
// packet owns it, and alone touches what is not atomic, until all have been told to forget it. Packets that come to
// others, since their sender's address has changed, are handed to the owner.
struct alignas(kCacheLine) Slot {
    // What every packet needs stands first, its audio last.
    std::uint32_t ssrc = 0;
    std::uint8_t payload_type = 0;
    std::atomic<int> owner{kNobody};       // index of a poller
    std::atomic<unsigned> known_to{0};     // pollers that know it; a free slot is known to none
    std::atomic<bool> speaking{false};
    std::atomic<bool> ended{false};     // its sender has said goodbye
    std::atomic<bool> disputed{false};  // plain RTP has come from elsewhere than from its gateway
    std::atomic<std::uint32_t> gateway{0};  // IPv4 address that plain RTP has to come from, in network order
    std::unique_ptr<srtp::Receiver> srtp;   // null: plain RTP
    std::unique_ptr<media::Transcoder> transcoder;  // null: packets are as the jitter buffer takes them
    std::atomic<std::uint64_t> source{0};   // of its last authenticated packet
    __u64 others_paid_ns = 0;               // voice_allow() of packets from elsewhere
    std::atomic<std::int64_t> seen_ns{0};   // steady clock, of its last authenticated packet
    Count packets;                          // authenticated ones
    Count concealed;
    std::atomic<std::uint64_t> chunks{0};
    std::atomic<std::uint32_t> host{0};  // IPv4 address that its chunks go to, in network order; 0: none yet
    std::optional<std::uint32_t> begins_at;  // timestamp of the session's first frame, until a packet has come
    session::Utterances utterances{0, VOICE_CHUNK_LOG_MEL};
    rtp::JitterBuffer jitter;

    // Has what every packet needs fetched, but for the audio: that follows once the jitter buffer's state is here.
    void expect() const noexcept {
        prefetch(this, 3 * kCacheLine);
        prefetch(&jitter, 2 * kCacheLine);
    }
};

}  // namespace voice::pipeline
