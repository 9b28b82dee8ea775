// The whole program except its control socket: sources, pollers, admission, shipper.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "admission/admission.hpp"
#include "admission/presence.hpp"
#include "config/config.hpp"
#include "control/commands.hpp"
#include "pipeline/poller.hpp"
#include "pipeline/session_slots.hpp"
#include "pipeline/source.hpp"
#include "pipeline/state_file.hpp"
#include "ship/host_registry.hpp"
#include "ship/shipper.hpp"
#include "state/write_behind.hpp"

namespace voice::pipeline {

class DataPlane final : public control::DataPlane {
public:
    // Opens everything; throws std::runtime_error with the cause and the remedy.
    explicit DataPlane(const config::Config& config);
    ~DataPlane() override;

    // Starts the threads.
    void start();
    // Stops them in the order of the data: packets, admission, then the rings.
    void stop();

    control::Status status() override;
    control::Telemetry telemetry() override;
    std::vector<control::Session> sessions(std::size_t first, std::size_t limit) override;
    std::string swap_vad(const std::string& module) override;
    bool can_flow() override;
    void set_healthy(bool healthy) override;
    void begin_drain() override;
    bool is_drained() override;

private:
    static constexpr std::chrono::seconds kStalledAfter{2};

    void poll(Poller& poller, int core);
    // Start of the last pass of the poller that is furthest behind; 0: one has not started.
    [[nodiscard]] std::int64_t oldest_pass_ns() const noexcept;
    admission::Presence::Report presence();
    control::QueueLoad load_of(Poller& poller);
    void add(control::Telemetry& telemetry, Poller& poller);

    const config::Config& config_;
    std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
    std::string vad_module_;
    SessionSlots slots_;
    std::unique_ptr<Source> source_;
    // Pollers spin on cores of their own, unless that would leave no core for the other threads.
    bool naps_;
    std::vector<std::unique_ptr<StateFile>> tables_;
    std::vector<std::unique_ptr<Poller>> pollers_;
    std::vector<std::unique_ptr<ship::ChunkSource>> rings_;
    ship::HostRegistry registry_;
    std::unique_ptr<ship::Shipper> shipper_;
    std::unique_ptr<state::WriteBehind> write_behind_;
    std::unique_ptr<admission::Admission> admission_;
    std::unique_ptr<admission::Presence> presence_;
    std::vector<std::thread> threads_;
    std::atomic<bool> stopping_{false};
    std::atomic<bool> draining_{false};
};

}  // namespace voice::pipeline
