// One receive queue's thread: packets in, chunks of speech into its ring.
//
// After its start it allocates nothing, takes no lock and makes no system call while packets come. Sessions come and go
// by commands from the admission thread, through a ring of its own. A session is one poller's: packets that come to
// another's queue, since their sender's address has changed, reach it through a ring between the two.
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

namespace voice::pipeline {

using ChunkRing = SpscRing<voice_audio_chunk, 1024>;  // 3.3 MB: at 4,000 streams a fortieth of a second of speech

struct Command {
    enum class Kind : std::uint8_t { kOpen, kClose } kind;
    std::uint32_t ssrc;
    std::uint32_t slot;
};
using CommandRing = SpscRing<Command, 4096>;

// A packet on its way to the poller that owns its session.
struct HandedOver {
    std::uint64_t source;
    std::size_t bytes;
    std::array<std::uint8_t, receive::kDatagramBytes> packet;
};
using HandOver = SpscRing<HandedOver, 128>;

// Where a session's chunks go, from the shipper. Lost where the ring is full: the next start of speech tells it again.
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
    std::array<Count, control::kDropReasonNames.size()> drops;
    session::Counters audio;
    std::array<StageCounters, kStages> stages;
    std::atomic<std::uint32_t> backlog{0};  // most packets that waited at once since it was last read
};

// What stands in front of the pollers: the XDP program, or what does its work.
class Senders {
public:
    virtual ~Senders() = default;
    // A packet whose session the poller does not know; without XDP this is where admission starts. Returns why the packet
    // is dropped.
    virtual control::DropReason on_unknown(std::uint32_t ssrc, std::int64_t now_ns) noexcept = 0;
    // The session in this slot is heard from another source than before.
    virtual void on_source(std::uint32_t /*slot*/, std::uint64_t /*source*/) noexcept {}
};

// What a poller owns or writes, whatever its source of packets.
struct PollerParts {
    int index;
    std::unique_ptr<vad::Instance> vad;
    state::SessionTable& table;
    std::chrono::nanoseconds keep;  // how long a session's row lives without a packet
};

// All of a poller but its source of packets.
class Poller : public OnHugePages {
public:
    Poller(PollerParts parts, std::span<Slot> slots, Senders& senders)
        : index_(parts.index), slots_(slots), sessions_(slots.size()), vad_(std::move(parts.vad)), senders_(senders),
          live_(parts.table, parts.keep), silence_(slots.size()) {}
    Poller(const Poller&) = delete;
    Poller& operator=(const Poller&) = delete;
    virtual ~Poller() = default;

    // Before they start: makes the rings that others hand packets over by. `pollers`: all of them, this one included.
    void meet(std::span<const std::unique_ptr<Poller>> pollers);

    // Works off the commands and one batch of packets; returns the number of packets.
    virtual std::size_t pass() noexcept = 0;
    // Descriptors of its receive ring, where it has one.
    [[nodiscard]] virtual std::uint32_t ring_size() const noexcept = 0;

    CommandRing& commands() noexcept { return commands_; }
    ChunkRing& chunks() noexcept { return chunks_; }
    HostNotes& host_notes() noexcept { return host_notes_; }
    vad::Vad& vad() noexcept { return vad_; }
    PollerCounters& counters() noexcept { return counters_; }
    // When its last pass began, by the steady clock; 0 before the first. Any thread.
    [[nodiscard]] std::int64_t passed_ns() const noexcept { return passed_ns_.load(std::memory_order_relaxed); }

protected:
    void obey() noexcept;
    void begin(std::int64_t now_ns) noexcept {
        now_ns_ = now_ns;
        passed_ns_.store(now_ns, std::memory_order_relaxed);
        live_.sweep(now_ns);
    }
    // Where no packet waits any more: a thread that was away must not take that for silence.
    void look_for_silence() noexcept {
        silence_.pass(now_ns_, [this](std::uint32_t stream) {
            fall_silent(slots_[stream], stream);
            live_.follow(slots_[stream], now_ns_);
        });
    }
    void take(std::span<const receive::Datagram> burst) noexcept;
    // Takes what other pollers have handed over; returns how many.
    std::size_t take_handed_over() noexcept;
    // Packets that a run of full batches took were there together, or came while we were late: the receive ring's
    // occupancy, which drivers do not tell.
    void measure_backlog(std::size_t received, std::size_t batch) noexcept;

private:
    // How many packets before its turn a packet's memory is fetched.
    static constexpr std::size_t kLookAhead = 2;

    // The session's slot, which is fetched; kNoSlot where there is none.
    [[nodiscard]] std::uint32_t look_up(const receive::Datagram& datagram) const noexcept;
    void expect(const receive::Datagram& datagram, std::uint32_t at) noexcept;
    void take(const receive::Datagram& datagram, std::uint32_t at) noexcept;
    bool owns(Slot& slot) noexcept;
    void hand_over(const Slot& slot, const receive::Datagram& datagram) noexcept;
    // Authenticates and decrypts; nothing when the packet is dropped.
    std::optional<std::span<const std::uint8_t>> open(Slot& slot, const receive::Datagram& datagram) noexcept;
    // The packet is its sender's.
    void follow_source(Slot& slot, std::uint32_t at, std::uint64_t source) noexcept;
    void hear(Slot& slot, std::uint32_t stream, const rtp::Packet& packet) noexcept;
    // A packet of 20 ms of L16 at 16 kHz, or of no audio.
    void hear_plain(Slot& slot, std::uint32_t stream, const rtp::Packet& packet) noexcept;
    // Hears what the session's transcoder makes, by its next() or its run_out().
    void transcode(Slot& slot, std::uint32_t stream,
                   std::optional<rtp::Packet> (media::Transcoder::*next)() noexcept) noexcept;
    void note(rtp::JitterBuffer::Arrival arrival) noexcept;
    // Hears what is held, without waiting for what is missing.
    void run_out(Slot& slot, std::uint32_t stream) noexcept;
    // Hears what the jitter buffer holds, and ends what is being said.
    void quieten(Slot& slot, std::uint32_t stream) noexcept;
    // The frame that the jitter buffer has moved to.
    void hear_frame(Slot& slot, std::uint32_t stream) noexcept;
    // Nothing comes any more, for now: hears what is held, and ends what is being said.
    void fall_silent(Slot& slot, std::uint32_t stream) noexcept;
    // Ends what is being said, and says so to who transcribes it.
    void commit(Slot& slot, std::uint32_t stream) noexcept;
    // Nothing will come any more.
    void end(Slot& slot, std::uint32_t stream, unsigned mark = 0) noexcept;
    // The VAD's, and of a frame that is made up the last one's, until it has faded: lost packets cost less than those
    // that come, so that an overload does not feed itself.
    vad::Decision decide(const Slot& slot, std::uint32_t stream, const rtp::Frame& frame) noexcept;
    void drop(control::DropReason reason) noexcept { ++counters_.drops[static_cast<std::size_t>(reason)]; }
    StageCounters& stage(Stage which) noexcept { return counters_.stages[static_cast<std::size_t>(which)]; }

    int index_;
    std::span<Slot> slots_;
    SessionMap sessions_;
    vad::Vad vad_;
    Senders& senders_;
    LiveState live_;
    SilenceTimer silence_;
    std::int64_t now_ns_ = 0;
    std::uint32_t run_ = 0;
    std::vector<std::unique_ptr<HandOver>> inboxes_;  // from each other poller
    std::vector<HandOver*> outboxes_;                 // by the index of the poller that they lead to; none to itself
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
    QueuePoller(std::uint32_t ring_size, Queue& queue, Arguments&&... arguments)
        : Poller(std::forward<Arguments>(arguments)...), ring_size_(ring_size), queue_(queue) {}

    std::size_t pass() noexcept override {
        begin(std::chrono::steady_clock::now().time_since_epoch().count());
        obey();
        const std::size_t received = queue_.poll([this](std::span<const receive::Datagram> burst) { take(burst); });
        measure_backlog(received, Queue::kBatch);
        const std::size_t taken = received + take_handed_over();
        if (received < Queue::kBatch) {
            look_for_silence();
        }
        return taken;
    }

    [[nodiscard]] std::uint32_t ring_size() const noexcept override { return ring_size_; }

private:
    std::uint32_t ring_size_;
    Queue& queue_;
};

}  // namespace voice::pipeline
