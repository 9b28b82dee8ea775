// One receive queue's thread: packets in, chunks of speech into its ring.
//
// After its start it allocates nothing, takes no lock and makes no system call while packets come. Sessions come and go
// by commands from the admission thread, through a ring of its own.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "control/drop_reason.hpp"
#include "pipeline/live_state.hpp"
#include "pipeline/session_map.hpp"
#include "pipeline/slot.hpp"
#include "receive/burst.hpp"
#include "ring/spsc_ring.hpp"
#include "rtp/packet.hpp"
#include "ship/chunk_source.hpp"
#include "support/cycles.hpp"
#include "vad/host.hpp"

namespace voice::pipeline {

using ChunkRing = SpscRing<voice_audio_chunk, 1024>;  // 3.3 MB: at 4,000 streams a fortieth of a second of speech

struct Command {
    enum class Kind : std::uint8_t { kOpen, kClose } kind;
    std::uint32_t ssrc;
    std::uint32_t slot;
};
using CommandRing = SpscRing<Command, 4096>;

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

enum class Stage : std::uint8_t { kUnprotect, kReorder, kVad, kFeatures };
inline constexpr std::size_t kStages = 4;

struct StageCounters {
    Count cycles;
    Count items;
};

// Written by the poller, read by any thread.
struct PollerCounters {
    Count packets;
    Count duplicates;
    Count restarts;
    Count elsewhere;  // packets of a session that another queue's poller owns
    std::array<Count, control::kDropReasonNames.size()> drops;
    session::Counters audio;
    std::array<StageCounters, kStages> stages;
    std::atomic<std::uint32_t> backlog{0};  // most packets that waited at once since it was last read
};

// Told of packets whose session the poller does not know; without XDP this is where admission starts. Returns why the
// packet is dropped.
class UnknownSenders {
public:
    virtual ~UnknownSenders() = default;
    virtual control::DropReason on_packet(std::uint32_t ssrc) noexcept = 0;
};

// What a poller owns or writes, whatever its source of packets.
struct PollerParts {
    int index;
    std::unique_ptr<vad::Instance> vad;
    state::SessionTable& table;
    std::chrono::nanoseconds keep;  // how long a session's row lives without a packet
};

// All of a poller but its source of packets.
class Poller {
public:
    Poller(PollerParts parts, std::span<Slot> slots, UnknownSenders& unknown)
        : index_(parts.index), slots_(slots), sessions_(slots.size()), vad_(std::move(parts.vad)), unknown_(unknown),
          live_(parts.table, parts.keep) {}
    Poller(const Poller&) = delete;
    Poller& operator=(const Poller&) = delete;
    virtual ~Poller() = default;

    // Works off the commands and one batch of packets; returns the number of packets.
    virtual std::size_t pass() noexcept = 0;
    // Descriptors of its receive ring, where it has one.
    [[nodiscard]] virtual std::uint32_t ring_size() const noexcept = 0;

    CommandRing& commands() noexcept { return commands_; }
    ChunkRing& chunks() noexcept { return chunks_; }
    HostNotes& host_notes() noexcept { return host_notes_; }
    vad::Vad& vad() noexcept { return vad_; }
    PollerCounters& counters() noexcept { return counters_; }

protected:
    void obey() noexcept;
    void begin(std::int64_t now_ns) noexcept {
        now_ns_ = now_ns;
        live_.sweep(now_ns);
    }
    void take(std::span<const receive::Datagram> burst) noexcept;
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
    // Authenticates, decrypts and parses; nothing when the packet is dropped.
    std::optional<rtp::Packet> open(Slot& slot, receive::Datagram datagram) noexcept;
    void hear(Slot& slot, std::uint32_t stream, const rtp::Packet& packet) noexcept;
    // The VAD's, and of a frame that is made up the last one's, until it has faded: lost packets cost less than those
    // that come, so that an overload does not feed itself.
    vad::Decision decide(const Slot& slot, std::uint32_t stream, const rtp::Frame& frame) noexcept;
    void drop(control::DropReason reason) noexcept { ++counters_.drops[static_cast<std::size_t>(reason)]; }
    StageCounters& stage(Stage which) noexcept { return counters_.stages[static_cast<std::size_t>(which)]; }

    int index_;
    std::span<Slot> slots_;
    SessionMap sessions_;
    vad::Vad vad_;
    UnknownSenders& unknown_;
    LiveState live_;
    std::int64_t now_ns_ = 0;
    std::uint32_t run_ = 0;
    CommandRing commands_;
    ChunkRing chunks_;
    HostNotes host_notes_;
    PollerCounters counters_;
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
        return received;
    }

    [[nodiscard]] std::uint32_t ring_size() const noexcept override { return ring_size_; }

private:
    std::uint32_t ring_size_;
    Queue& queue_;
};

}  // namespace voice::pipeline
