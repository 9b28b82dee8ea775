// Registers this host once a second as ready for sessions, for gateways: the hash `host:vad:<id>`, and its id in the
// set `host:vad`. The fields are those of every host (ship/host.hpp); the kind is `vad`.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "valkey/client.hpp"

namespace voice::admission {

inline constexpr std::string_view kVadHostsKey = "host:vad";
inline constexpr std::string_view kVadHostKeyPrefix = "host:vad:";
inline constexpr std::string_view kKindVad = "vad";

class Presence {
public:
    static constexpr std::chrono::seconds kEvery{1};
    static constexpr std::string_view kExpiresAfterSeconds = "10";

    struct Report {
        bool can_flow = false;  // when false, no heartbeat is sent, and the host soon expires
        bool draining = false;
        std::size_t free_slots = 0;
    };

    struct Identity {
        std::string host;
        std::string address;
    };

    // `report` is called on a separate thread.
    Presence(Identity identity, valkey::Endpoint store, std::function<Report()> report);
    Presence(const Presence&) = delete;
    Presence& operator=(const Presence&) = delete;
    ~Presence() { stop(); }

    void start();
    // Takes the host out of the registry.
    void stop();

    // One heartbeat. start() repeats it.
    void beat();

    [[nodiscard]] std::uint64_t unanswered() const noexcept { return unanswered_.load(std::memory_order_relaxed); }

private:
    void run();
    void leave();

    Identity identity_;
    std::string key_;
    valkey::Client store_;
    std::function<Report()> report_;
    std::mutex mutex_;
    std::condition_variable wake_;
    bool stopping_ = false;
    std::thread thread_;
    std::atomic<std::uint64_t> unanswered_{0};
};

}  // namespace voice::admission
