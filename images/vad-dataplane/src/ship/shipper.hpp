// Empties the rings: sends every chunk to its session's ASR host as one UDP datagram, directly from its slot. Chunks to
// one host in a round pass through the kernel's network stack together, and are split into datagrams afterwards
// (UDP_SEGMENT): the stack is most of the cost of shipping. Where a path does not support that, each chunk is sent
// individually.
//
// The shipper never blocks a poller. When the network or the hosts accept less than arrives, chunks are shed: silence
// (pre-roll, hangover) and concealed audio as soon as a ring is half full, oldest first; everything, oldest first,
// before a ring is full, because late audio is worth less than current audio. Chunks of a session without a free host
// are dropped at once, so that they do not block other sessions.
//
// Recently sent chunks are kept. When a host is lost, its chunks are sent to other hosts, in order and interleaved with
// new ones; new chunks of those sessions wait behind them. A chunk may therefore arrive twice: receivers recognize it
// by session and sequence.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ship/chunk_source.hpp"
#include "ship/pinning.hpp"
#include "ship/resend_window.hpp"
#include "support/descriptor.hpp"

namespace voice::ship {

// Written by the shipper's thread, read by any.
struct ShipCounters {
    std::atomic<std::uint64_t> sent{0};
    std::atomic<std::uint64_t> resent{0};        // again, to another host
    std::atomic<std::uint64_t> window_short{0};  // discarded early: the window has too few bytes
    std::atomic<std::uint64_t> shed_silence{0};
    std::atomic<std::uint64_t> shed_oldest{0};
    std::atomic<std::uint64_t> no_host{0};
    std::atomic<std::uint64_t> failed{0};  // the kernel refused the datagram: no route, MTU too small
    std::atomic<std::uint64_t> stalls{0};  // the kernel's send buffer was full
    std::atomic<std::uint64_t> sessions{0};
    std::atomic<std::uint64_t> moves{0};  // sessions that had to change hosts
};

class Shipper {
public:
    static constexpr std::size_t kBatch = 64;  // datagrams per system call
    static constexpr std::size_t kSegments = 65'507 / sizeof(voice_audio_chunk);  // per datagram before it is split
    static constexpr int kResendBatches = 8;   // per round: new chunks must not wait long

    struct Settings {
        std::string zone{};  // for Pinning
        unsigned shed_silence_percent = 50;  // of a ring's slots
        unsigned shed_any_percent = 90;
        int send_buffer_bytes = 4 << 20;
        std::chrono::seconds resend_window{6};
        std::size_t resend_bytes = 64 << 20;
        std::chrono::microseconds idle{500};  // pause when the rings are empty: pollers make no system call
    };

    Shipper(Settings settings, std::vector<ChunkSource*> sources, HostSource& hosts)
        : settings_(std::move(settings)), sources_(std::move(sources)), source_of_hosts_(hosts),
          pinning_(settings_.zone), window_(settings_.resend_window, settings_.resend_bytes) {}
    Shipper(const Shipper&) = delete;
    Shipper& operator=(const Shipper&) = delete;
    ~Shipper() { stop(); }

    // Opens the socket; false and a reason on failure.
    bool open(std::string& error);

    void start();
    // Sends the rings' remaining chunks, for a second at most.
    void stop();

    // One round over all rings; false if they were empty or nothing could be sent. start() repeats it.
    bool pass();

    [[nodiscard]] const ShipCounters& counters() const noexcept { return counters_; }

private:
    enum class Verdict : std::uint8_t { kSend, kShedSilence, kShedOldest, kNoHost, kFailed, kOwed, kKept };
    static constexpr std::size_t kVerdicts = 7;

    void run();
    void refresh_hosts();
    bool ship(std::uint32_t source);
    std::size_t judge(ChunkSource& source);
    Verdict verdict(const voice_audio_chunk& chunk, std::size_t percent_full, Pinning::Clock::time_point now);
    bool resend();
    void begin_to_resend();
    std::size_t judge_again();
    bool add_message(const voice_audio_chunk& chunk, Pinning::Clock::time_point now);
    std::size_t send(std::size_t window);
    void group_by_host();
    std::size_t send_alone(std::size_t group, bool is_full);
    [[nodiscard]] std::size_t first_place_from(std::size_t group, std::size_t message) const;
    bool take_refusals();
    void remember(std::uint32_t source, std::size_t released);
    void count_replaced(Pinning::Clock::time_point now);
    void mark_again(std::size_t done);
    void count(std::size_t released);

    Settings settings_;
    std::vector<ChunkSource*> sources_;
    HostSource& source_of_hosts_;
    Pinning pinning_;
    ResendWindow window_;
    bool resending_ = false;
    bool restart_ = false;  // start resending from the first entry again
    std::uint64_t cursor_ = 0;  // the next entry to consider for resending
    Descriptor socket_;

    // One window of a ring: its chunks' verdicts, and a message for each chunk to send.
    std::array<Verdict, kBatch> verdicts_{};
    std::array<iovec, kBatch> slices_{};
    std::array<sockaddr_in, kBatch> addresses_{};
    std::array<std::size_t, kBatch> places_{};  // of each message's chunk in the window
    std::array<std::uint32_t, kBatch> numbers_{};  // of each message's host
    std::size_t message_count_ = 0;

    // Messages to one host, in order: `count` of `grouped_`, starting at `first`.
    struct Group {
        std::uint32_t host;
        std::size_t first;
        std::size_t count;
    };
    std::array<Group, kBatch> groups_{};
    std::array<mmsghdr, kBatch> headers_{};  // of each group
    std::array<std::size_t, kBatch> grouped_{};
    std::array<iovec, kBatch> grouped_slices_{};
    std::size_t group_count_ = 0;
    std::vector<std::uint32_t> cannot_segment_;  // numbers of hosts whose path accepts only single datagrams

    std::atomic<bool> stopping_{false};
    std::thread thread_;
    ShipCounters counters_;
};

}  // namespace voice::ship
