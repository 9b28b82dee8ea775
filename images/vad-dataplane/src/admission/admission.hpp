// Admits sessions: looks up unknown SSRCs in the state store, admits or blocks them, and removes sessions that are
// silent, ended, closed, deleted or expired. While the store is unreachable, no one is admitted or blocked; admitted
// sessions stay until they expire. The sender's packets repeat the request: the XDP program forwards one every second.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <thread>
#include <unordered_map>
#include <vector>

#include "admission/gate.hpp"
#include "valkey/client.hpp"

namespace voice::admission {

struct Settings {
    std::chrono::milliseconds block_for{10'000};
    std::chrono::milliseconds silent_after{60'000};
    std::chrono::milliseconds sweep_every{250};
    int sweeps_per_review = 20;  // number of sweeps over which reading all records again is spread: five seconds
};

// Written by the admission thread, read by any.
struct Counters {
    std::atomic<std::uint64_t> requests{0};
    std::atomic<std::uint64_t> admitted{0};
    std::atomic<std::uint64_t> refused{0};     // and blocked
    std::atomic<std::uint64_t> malformed{0};   // of those refused: an invalid record
    std::atomic<std::uint64_t> unanswered{0};  // the state store was unreachable, or returned an error
    std::atomic<std::uint64_t> no_room{0};     // the session table or the gate is full, or the host drains
    std::atomic<std::uint64_t> silent{0};      // sessions removed because they fell silent
    std::atomic<std::uint64_t> expired{0};     // sessions removed because they expired
    std::atomic<std::uint64_t> closed{0};      // sessions removed because their record is closed or gone
    std::atomic<std::uint64_t> ended{0};       // sessions removed because their sender ended them
    std::atomic<std::uint64_t> sessions{0};    // admitted now
};

class Admission {
public:
    static constexpr std::size_t kBatch = 64;        // requests that share a round trip
    static constexpr std::size_t kMaxBlocked = 8192;  // of the gate's entries; beyond that, a sender is looked up again

    Admission(Settings settings, valkey::Endpoint store, Requests& requests, Gate& gate, Sessions& sessions)
        : settings_(settings), store_(std::move(store)), requests_(requests), gate_(gate), sessions_(sessions) {}
    Admission(const Admission&) = delete;
    Admission& operator=(const Admission&) = delete;
    ~Admission() { stop(); }

    void start();
    // Ends the thread; admitted sessions stay.
    void stop();

    // From now on no new session is admitted; admitted ones stay until they fall silent.
    void drain() noexcept { draining_.store(true, std::memory_order_relaxed); }

    [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
    [[nodiscard]] const valkey::Client::Counters& store() const noexcept { return store_.counters(); }

private:
    using Clock = std::chrono::steady_clock;

    void run();
    void answer(std::span<const std::uint32_t> ssrcs);
    void answer(std::uint32_t ssrc, const std::optional<valkey::Fields>& fields);
    void admit(std::uint32_t ssrc, const SessionRecord& record);
    void block(std::uint32_t ssrc);
    void unblock_due();
    void sweep();
    void review(std::span<const std::uint32_t> ssrcs);
    void review(std::uint32_t ssrc, const valkey::Fields& fields);
    void remove(std::uint32_t ssrc, std::atomic<std::uint64_t>& reason);

    struct Blocked {
        Clock::time_point until;
        std::uint32_t ssrc;
    };

    Settings settings_;
    valkey::Client store_;
    Requests& requests_;
    Gate& gate_;
    Sessions& sessions_;
    std::unordered_map<std::uint32_t, std::int64_t> expiries_;  // of admitted sessions, seconds since 1970
    std::deque<std::uint32_t> to_review_;                       // and possibly some that have been removed; in rotation
    std::deque<Blocked> blocked_;                               // in the order of expiry
    Clock::time_point next_sweep_{};
    std::atomic<bool> stopping_{false};
    std::atomic<bool> draining_{false};
    std::thread thread_;
    Counters counters_;
};

}  // namespace voice::admission
