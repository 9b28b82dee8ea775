// Reads the registry of ASR hosts every second. While the state store is unreachable the last reading stays: audio
// continues to hosts that were alive. When the store is back, each has the full time for its next heartbeat, since none
// could be read meanwhile; then those that died are detected.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "ship/host.hpp"

namespace voice::ship {

class HostRegistry final : public HostSource {
public:
    struct Settings {
        std::chrono::milliseconds refresh{1'000};
        // without a new heartbeat, by this host's clock; from the contract
        std::chrono::milliseconds dead_after{3'000};
        std::uint16_t chunk_port = 5006;
    };

    // Written by the registry's thread, read by any.
    struct Counters {
        std::atomic<std::uint64_t> refreshes{0};
        std::atomic<std::uint64_t> unanswered{0};  // refreshes that the state store did not answer
        std::atomic<std::uint64_t> malformed{0};   // invalid host records
        std::atomic<std::uint64_t> hosts{0};       // alive now
    };

    HostRegistry(Settings settings, valkey::Endpoint store)
        : settings_(settings), store_(std::move(store)) {}
    HostRegistry(const HostRegistry&) = delete;
    HostRegistry& operator=(const HostRegistry&) = delete;
    ~HostRegistry() override;

    void start();
    void stop();

    [[nodiscard]] Hosts take() noexcept override;
    [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
    [[nodiscard]] const valkey::Client::Counters& store() const noexcept { return store_.counters(); }

private:
    using Clock = std::chrono::steady_clock;
    struct Beat {
        std::string value;
        Clock::time_point since;
    };

    void run();
    void refresh();
    void read(const std::vector<std::string>& ids);
    // Removes ids without a record from the list.
    void remove_expired(std::vector<std::string> empty);
    bool is_alive(const Host& host);
    // The first reading after an outage.
    void forgive_outage(Clock::time_point now);

    Settings settings_;
    valkey::Client store_;
    std::unordered_map<std::string, Beat> beats_;
    std::vector<std::string> empty_;  // ids without a record in the last reading
    bool missed_ = false;  // a reading, since the last one that the store answered
    Hosts last_ = std::make_shared<const std::vector<Host>>();
    // Alive before an outage in which their records were lost, and not seen since.
    std::vector<Host> missing_;
    Clock::time_point missing_until_;
    std::mutex mutex_;
    std::condition_variable wake_;
    bool stopping_ = false;
    // Acquire when taken and release when published: the receiving thread sees the hosts.
    std::atomic<Hosts*> reading_{nullptr};
    std::thread thread_;
    Counters counters_;
};

}  // namespace voice::ship
