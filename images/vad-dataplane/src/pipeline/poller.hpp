// Thread of one receive queue: takes packets, and puts chunks of speech into its ring.
//
// After its start it allocates nothing, takes no lock and makes no system call while packets arrive. Commands from the
// admission thread open and close sessions, through a separate ring. A session belongs to one poller: if its sender's
// address changes and packets arrive at another queue, they reach the owner through a ring between the two, until it
// hands the session to that poller.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "control/drop_reason.hpp"
#include "pipeline/live_state.hpp"
#include "pipeline/session_map.hpp"
#include "pipeline/silence_timer.hpp"
#include "pipeline/slot.hpp"
#include "receive/burst.hpp"
#include "ring/spsc_ring.hpp"
#include "rtp/packet.hpp"
#include "ship/chunk_source.hpp"
#include "support/cycles.hpp"
#include "support/huge_pages.hpp"
#include "vad/host.hpp"
#include "xdp/steer_maps.hpp"

namespace voice::pipeline {

using ChunkRing = SpscRing<voice_audio_chunk, 1024>;  // 3.3 MB: at 4,000 streams a fortieth of a second of speech

struct Command {
    enum class Kind : std::uint8_t { kOpen, kClose } kind;
    std::uint32_t ssrc;
    std::uint32_t slot;
};
using CommandRing = SpscRing<Command, 4096>;

// A packet on its way to the poller that owns its session. Without bytes: the session in slot `source` now belongs to
// that poller.
struct HandedOver {
    std::uint64_t source;
    std::size_t bytes;
    std::array<std::uint8_t, receive::kDatagramBytes> packet;
};
using HandOver = SpscRing<HandedOver>;  // as long as the receive ring, so that it can hold all of its packets

// Destination of a session's chunks, from the shipper. Lost if the ring is full: the next start of speech sends it
// again.
struct HostNote {
    std::uint32_t ssrc;
    std::uint32_t address;  // IPv4, in network order
};
using HostNotes = SpscRing<HostNote, 4096>;

// The shipper's side of a poller.
class PollerChunks final : public ship::RingSource<ChunkRing> {
public:
    PollerChunks(ChunkRing& chunks, HostNotes& notes) noexcept : RingSource(chunks), notes_(notes) {}

    void on_host(std::uint64_t session, const sockaddr_in& host) override {
        if (HostNote* note = notes_.claim()) {
            *note = {static_cast<std::uint32_t>(session), host.sin_addr.s_addr};
            notes_.commit();
        }
    }

private:
    HostNotes& notes_;
};

enum class Stage : std::uint8_t { kUnprotect, kDecode, kReorder, kVad, kFeatures };
inline constexpr std::size_t kStages = 5;

struct StageCounters {
    Count cycles;
    Count items;
};

// Written by the poller, read by any thread.
struct PollerCounters {
    Count packets;
    Count duplicates;
    Count restarts;
    Count handed_over;  // packets of sessions that another queue's poller owns
    Count followed;     // sessions handed to the poller whose queue receives their packets
    std::array<Count, control::kDropReasonNames.size()> drops;
    session::Counters audio;
    std::array<StageCounters, kStages> stages;
    std::atomic<std::uint32_t> backlog{0};  // most packets that waited at once since the last reading
};

// The stage before the pollers: the XDP program, or its replacement.
class Senders {
public:
    virtual ~Senders() = default;
    // Handles a packet whose session the poller does not know; without XDP, admission starts here. Returns why the
    // packet is dropped.
    virtual control::DropReason on_unknown(std::uint32_t ssrc, std::uint64_t source, std::int64_t now_ns) noexcept = 0;
    // The sources of the session in this slot have changed.
    virtual void on_sources(std::uint32_t /*slot*/, const xdp::Sources& /*sources*/) noexcept {}
    // A packet from an unknown source was authenticated: it does not count against strangers.
    virtual void on_authentic_stranger(std::uint32_t /*slot*/) noexcept {}
};

// What a poller owns or writes, independent of its packet source.
struct PollerParts {
    int index;
    std::unique_ptr<vad::Instance> vad;
    state::SessionTable& table;
    std::chrono::nanoseconds keep;  // how long a session's row lives without a packet
    std::uint32_t packets_per_s;    // limit per session
    std::uint32_t ring_size;        // of packets handed over by another poller; a power of two
};

// A poller without its packet source.
class Poller : public OnHugePages {
public:
    Poller(PollerParts parts, std::span<Slot> slots, Senders& senders)
        : index_(parts.index), packets_per_s_(parts.packets_per_s), ring_size_(parts.ring_size), slots_(slots),
          sessions_(slots.size()), vad_(std::move(parts.vad)), senders_(senders), live_(parts.table, parts.keep),
          silence_(slots.size()), strangers_paid_ns_(slots.size()) {}
    Poller(const Poller&) = delete;
    Poller& operator=(const Poller&) = delete;
    virtual ~Poller() = default;

    // Called before they start: creates the rings for handing over packets. `pollers`: all of them, including this one.
    void meet(std::span<const std::unique_ptr<Poller>> pollers);

    // Processes the commands and one batch of packets; returns the number of packets.
    virtual std::size_t pass() noexcept = 0;
    // Descriptors of its receive ring, if it has one.
    [[nodiscard]] virtual std::uint32_t ring_size() const noexcept = 0;

    CommandRing& commands() noexcept { return commands_; }
    ChunkRing& chunks() noexcept { return chunks_; }
    HostNotes& host_notes() noexcept { return host_notes_; }
    vad::Vad& vad() noexcept { return vad_; }
    PollerCounters& counters() noexcept { return counters_; }
    // Start of its last pass by the steady clock; 0 before the first. Any thread.
    [[nodiscard]] std::int64_t passed_ns() const noexcept { return passed_ns_.load(std::memory_order_relaxed); }

protected:
    void obey() noexcept;
    void set_now(std::int64_t now_ns) noexcept { now_ns_ = now_ns; }
    void begin(std::int64_t now_ns) noexcept {
        set_now(now_ns);
        passed_ns_.store(now_ns, std::memory_order_relaxed);
        live_.sweep(now_ns);
    }
    // Called when no packet waits any more: a delayed thread must not take its own pause for silence.
    void look_for_silence() noexcept {
        silence_.pass(now_ns_, [this](std::uint32_t stream) {
            fall_silent(slots_[stream], stream);
            live_.follow(slots_[stream], now_ns_);
        });
    }
    void take(std::span<const receive::Datagram> burst) noexcept { take(burst, index_); }
    // Processes packets that other pollers have handed over; returns their number.
    std::size_t take_handed_over() noexcept;
    // Packets of consecutive full batches were queued together, or arrived while we were late: this estimates the
    // receive ring's occupancy, which drivers do not report.
    void measure_backlog(std::size_t received, std::size_t batch) noexcept;

private:
    // Number of packets by which prefetching runs ahead.
    static constexpr std::size_t kLookAhead = 2;
    // A sender that was silent for this long may start over with its existing key. Longer than the 400 ms between two
    // packets of Opus in a pause.
    static constexpr std::chrono::nanoseconds kRestartAfter = std::chrono::seconds(1);
    // After this many packets in a row from another queue, its sender's address has changed and does not alternate.
    static constexpr unsigned kFollowAfter = 8;

    // `queue`: index of the poller that received them.
    void take(std::span<const receive::Datagram> burst, int queue) noexcept;

    // Prefetches and returns the session's slot; kNoSlot if there is none.
    [[nodiscard]] std::uint32_t look_up(const receive::Datagram& datagram) const noexcept;
    void expect(const receive::Datagram& datagram, std::uint32_t at) noexcept;
    void take(const receive::Datagram& datagram, std::uint32_t at, int queue) noexcept;
    bool owns(Slot& slot, std::uint32_t at) noexcept;
    // Applies changes of the session's record.
    void renew(Slot& slot, std::uint32_t at) noexcept;
    // Another poller has handed over the session, which may have stopped sending: its silence must be noticed.
    void arrive(std::uint32_t at) noexcept;
    // False: the session was handed to this poller meanwhile.
    bool hand_over(const Slot& slot, std::uint32_t at, const receive::Datagram& datagram) noexcept;
    // Authenticates and decrypts; nothing if the packet is dropped. It is the only place that limits the packet rate of
    // a session; the XDP program applies the same limits to unauthenticated packets.
    std::optional<std::span<const std::uint8_t>> open(Slot& slot, std::uint32_t at,
                                                      const receive::Datagram& datagram) noexcept;
    std::optional<std::span<const std::uint8_t>> authenticate(Slot& slot, const receive::Datagram& datagram,
                                                              bool is_known) noexcept;
    // Called for an authenticated packet.
    void follow_source(Slot& slot, std::uint32_t at, std::uint64_t source) noexcept;
    // Hands the session to the poller whose queue receives its packets.
    void follow_queue(Slot& slot, std::uint32_t at, int queue) noexcept;
    void hear(Slot& slot, std::uint32_t stream, const rtp::Packet& packet) noexcept;
    // Processes a packet of 20 ms of L16 at 16 kHz, or one without audio.
    void hear_plain(Slot& slot, std::uint32_t stream, const rtp::Packet& packet) noexcept;
    // Processes the output of the session's transcoder, by next() or run_out().
    void transcode(Slot& slot, std::uint32_t stream,
                   std::optional<rtp::Packet> (media::Transcoder::*next)() noexcept) noexcept;
    void note(Slot& slot, rtp::JitterBuffer::Arrival arrival) noexcept;
    // Drops a packet that does not match its session's record, or no longer does: the record is read again soon.
    void drop_wrong_payload(Slot& slot) noexcept;
    // Processes the buffered frames without waiting for missing ones.
    void run_out(Slot& slot, std::uint32_t stream) noexcept;
    // Processes the jitter buffer's content, and ends the utterance; `torn`: because packets were lost.
    void quieten(Slot& slot, std::uint32_t stream, bool torn) noexcept;
    // Processes the frame that the jitter buffer has reached.
    void hear_frame(Slot& slot, std::uint32_t stream) noexcept;
    // Called when packets have stopped for now: processes the buffered frames, and ends the utterance.
    void fall_silent(Slot& slot, std::uint32_t stream) noexcept;
    // Ends the utterance, and reports the commit to its ASR host.
    void commit(Slot& slot, std::uint32_t stream) noexcept;
    // Called when no more packets are expected.
    void end(Slot& slot, std::uint32_t stream, unsigned mark = 0) noexcept;
    // The VAD's decision; for a concealed frame the last one's until it has faded: lost packets cost less than received
    // ones, so that an overload does not reinforce itself.
    vad::Decision decide(const Slot& slot, std::uint32_t stream, const rtp::Frame& frame) noexcept;
    void drop(control::DropReason reason) noexcept { ++counters_.drops[static_cast<std::size_t>(reason)]; }
    StageCounters& stage(Stage which) noexcept { return counters_.stages[static_cast<std::size_t>(which)]; }

    int index_;
    std::uint32_t packets_per_s_;
    std::uint32_t ring_size_;
    std::span<Slot> slots_;
    SessionMap sessions_;
    vad::Vad vad_;
    Senders& senders_;
    LiveState live_;
    SilenceTimer silence_;
    std::vector<__u64> strangers_paid_ns_;  // by slot, voice_allow() of packets handed over from unknown sources
    std::int64_t now_ns_ = 0;
    std::uint32_t run_ = 0;
    struct Inbox {
        int from;  // index of a poller
        std::unique_ptr<HandOver> ring;
    };
    std::vector<Inbox> inboxes_;       // from each other poller
    std::vector<HandOver*> outboxes_;  // by the index of the receiving poller; none for itself
    CommandRing commands_;
    ChunkRing chunks_;
    HostNotes host_notes_;
    PollerCounters counters_;
    alignas(kCacheLine) std::atomic<std::int64_t> passed_ns_{0};
};

template <typename Queue>
class QueuePoller final : public Poller {
public:
    template <typename... Arguments>
    QueuePoller(std::uint32_t descriptors, Queue& queue, Arguments&&... arguments)
        : Poller(std::forward<Arguments>(arguments)...), descriptors_(descriptors), queue_(queue) {}

    std::size_t pass() noexcept override {
        begin(now());
        obey();
        const std::size_t received = queue_.poll([this](std::span<const receive::Datagram> burst) {
            // Not before they were received: after a pause in between, the thread would take them for old, and the next
            // pass, with an empty queue, for silence.
            set_now(now());
            take(burst);
        });
        measure_backlog(received, Queue::kBatch);
        const std::size_t taken = received + take_handed_over();
        if (received < Queue::kBatch) {
            look_for_silence();
        }
        return taken;
    }

    [[nodiscard]] std::uint32_t ring_size() const noexcept override { return descriptors_; }

private:
    static std::int64_t now() noexcept { return std::chrono::steady_clock::now().time_since_epoch().count(); }

    std::uint32_t descriptors_;
    Queue& queue_;
};

}  // namespace voice::pipeline
