// Empties the rings: every chunk goes to its session's ASR host as one UDP datagram, straight from its slot.
//
// The shipper never makes a poller wait. When the network or the hosts take less than comes, chunks are shed: silence
// (pre-roll, hangover) and made-up audio as soon as a ring is half full, oldest first; everything, oldest first, before
// a ring is full, since late audio is worth less than the audio that comes. Chunks of a session that no host has a slot
// for are dropped at once: they must not hold up the sessions behind them.
//
// What was sent lately is kept. When a host is lost, what it had goes to other hosts, in its order, beside what comes;
// what comes of those sessions queues behind. A chunk may so arrive twice: receivers know it by session and sequence.
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
    std::atomic<std::uint64_t> resent{0};        // once more, to another host
    std::atomic<std::uint64_t> window_short{0};  // no longer kept though young: the window has too few bytes
    std::atomic<std::uint64_t> shed_silence{0};
    std::atomic<std::uint64_t> shed_oldest{0};
    std::atomic<std::uint64_t> no_host{0};
    std::atomic<std::uint64_t> failed{0};  // the kernel refused the datagram: no route, MTU too small
    std::atomic<std::uint64_t> stalls{0};  // the kernel's send buffer was full
    std::atomic<std::uint64_t> sessions{0};
    std::atomic<std::uint64_t> moves{0};  // sessions that had to change their host
};

class Shipper {
public:
    static constexpr std::size_t kBatch = 64;  // datagrams of one system call
    static constexpr int kResendBatches = 8;   // of one round: what comes must not wait long

    struct Settings {
        std::string zone{};  // Pinning's
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

    // Opens the socket; false and a reason when that fails.
    bool open(std::string& error);

    void start();
    // Sends what is in the rings still, for a second at most.
    void stop();

    // One round over all rings; false when they were empty or nothing could be moved. start() repeats it.
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
    bool restart_ = false;  // resending, from the first entry again
    std::uint64_t cursor_ = 0;  // the next entry to look at while resending
    Descriptor socket_;

    // One window of a ring: its chunks' verdicts, and the messages for those that are sent.
    std::array<Verdict, kBatch> verdicts_{};
    std::array<mmsghdr, kBatch> messages_{};
    std::array<iovec, kBatch> slices_{};
    std::array<sockaddr_in, kBatch> addresses_{};
    std::array<std::size_t, kBatch> places_{};  // of each message's chunk in the window
    std::array<std::uint32_t, kBatch> numbers_{};  // of each message's host
    std::size_t message_count_ = 0;

    std::atomic<bool> stopping_{false};
    std::thread thread_;
    ShipCounters counters_;
};

}  // namespace voice::ship
