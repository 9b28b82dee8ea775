// State of one session, in memory that is allocated at the start and reused.
#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>

#include "media/transcoder.hpp"
#include "rtp/jitter_buffer.hpp"
#include "session/utterances.hpp"
#include "srtp/receiver.hpp"
#include "support/count.hpp"
#include "support/mailbox.hpp"
#include "support/prefetch.hpp"
#include "vad/host.hpp"
#include "xdp/steer.h"

namespace voice::pipeline {

inline constexpr int kNobody = -1;
// added to the owner: it keeps the session until it receives the close command
inline constexpr int kClosing = 1 << 30;

// Changes of a session's record during the call, as after a re-INVITE. The admission thread creates it, the owner swaps
// in its parts, and the admission thread frees the old ones.
struct Renewal {
    bool has_key = false;
    std::unique_ptr<srtp::Receiver> srtp;
    bool has_media = false;
    media::Description media;
    std::unique_ptr<media::Transcoder> transcoder;
};

// The admission thread fills a slot while no poller knows it. Then every poller is notified; the one that receives the
// first packet owns it, and alone accesses the non-atomic members, until all have been told to forget it. Other pollers
// that receive packets, because the sender's address has changed, pass them to the owner, which hands the session to
// the poller that they come from. A thread that loads `owner` with acquire and finds itself there sees the writes of
// the previous owner.
struct alignas(kCacheLine) Slot {
    // Members that every packet needs come first, its audio last.
    std::uint32_t ssrc = 0;
    media::Description media;              // of its packets
    std::atomic<int> owner{kNobody};       // index of a poller; with kClosing, the last
    std::atomic<unsigned> known_to{0};     // pollers that know it; a free slot has none
    std::atomic<bool> speaking{false};
    std::atomic<bool> ended{false};     // its sender has ended it
    std::atomic<bool> disputed{false};  // packets that the last read record does not allow have arrived
    std::atomic<bool> encrypted{false};
    std::atomic<std::uint32_t> gateway{0};  // IPv4 address that plain RTP must come from, in network order
    Mailbox<Renewal> renewals;
    std::unique_ptr<srtp::Receiver> srtp;   // null: plain RTP
    std::unique_ptr<media::Transcoder> transcoder;  // null: packets are already in the jitter buffer's format
    // Sources of its last authenticated audio packets, the latest first; 0: none.
    std::array<std::atomic<std::uint64_t>, VOICE_STEER_SOURCES> sources{};
    // voice_allow() of packets from these sources, before they are authenticated
    __u64 known_paid_ns = 0;
    __u64 others_paid_ns = 0;               // of packets from other sources
    __u64 paid_ns = 0;                      // of authenticated packets
    bool arrives = false;                   // another poller has handed it over, and vad_state must be restored
    int elsewhere = kNobody;                // poller whose queue received its last packets, if it is not the owner's
    unsigned elsewhere_packets = 0;         // how many, without one in between to the owner's queue
    std::atomic<std::int64_t> seen_ns{0};   // steady clock, of its last authenticated packet
    Count packets;                          // authenticated ones
    Count concealed;
    Count wrong_payload;                    // authenticated ones that do not match its record
    std::atomic<std::uint64_t> chunks{0};
    std::atomic<std::uint32_t> host{0};  // destination IPv4 address of its chunks, in network order; 0: none yet
    std::optional<std::uint32_t> begins_at;  // timestamp of the session's first frame, until a packet has arrived
    // position of its first frame on this host, until that frame has been made
    std::optional<std::uint64_t> first_place;
    session::Utterances utterances{0, VOICE_CHUNK_LOG_MEL};
    rtp::JitterBuffer jitter;
    vad::StreamState vad_state;  // while it moves between pollers

    // Whether an unauthenticated packet from there is attributed to its sender.
    [[nodiscard]] bool knows(std::uint64_t source) const noexcept {
        return sources[0].load(std::memory_order_relaxed) == source || sources[1].load(std::memory_order_relaxed) == source;
    }

    [[nodiscard]] bool is_owned_by(int poller) const noexcept {
        const int found = owner.load(std::memory_order_acquire);
        return found == poller || found == (poller | kClosing);
    }

    // Whether it holds packets that wait for earlier ones.
    [[nodiscard]] bool waits() const noexcept {
        return jitter.waits() || (transcoder != nullptr && transcoder->waits());
    }

    // Timestamp of its position 0, by the current packet; only for a session that has received one.
    [[nodiscard]] std::uint32_t origin() const noexcept {
        const std::uint64_t heard = utterances.heard() * rtp::kFrameSamples;
        if (transcoder == nullptr) {
            return jitter.expected() - static_cast<std::uint32_t>(heard);
        }
        const auto [timestamp, samples] = transcoder->clock();
        const auto waiting = static_cast<std::int32_t>(samples - jitter.expected());
        const auto place = static_cast<std::int64_t>(heard) + waiting;
        return timestamp - static_cast<std::uint32_t>(place * media.rate / media::kRate);
    }

    // Prefetches what every packet needs except the audio, which follows once the jitter buffer's state is loaded.
    void expect() const noexcept {
        prefetch(this, 5 * kCacheLine);
        prefetch(&jitter, 2 * kCacheLine);
    }
};

}  // namespace voice::pipeline
