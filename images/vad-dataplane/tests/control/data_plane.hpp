// A data plane for tests of its control socket.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "control/commands.hpp"

namespace voice::test {

class FakeDataPlane final : public control::DataPlane {
public:
    control::Status status() override {
        control::Status status;
        status.state = draining ? control::State::kDraining : control::State::kReady;
        status.host = "i-1";
        status.data_path = "af_xdp";
        status.interface = "eth0";
        status.vad_module = vad_module;
        status.sessions = 3;
        status.uptime = std::chrono::seconds(9);
        return status;
    }

    control::Telemetry telemetry() override {
        control::Telemetry telemetry;
        telemetry.sessions = 3;
        telemetry.max_sessions = 8;
        telemetry.queues = {{.rx_used = 10, .rx_size = 100, .chunks_used = 1, .chunks_size = 4},
                            {.rx_used = 55, .rx_size = 100, .chunks_used = 0, .chunks_size = 4}};
        control::drops_of(telemetry.drops, control::DropReason::kLate) = 7;
        telemetry.vad_frames = 200;
        telemetry.vad_silent_frames = 50;
        telemetry.stages = {{"vad", 1000, 4}, {"idle", 0, 0}};
        telemetry.groups = {{"ship", {{"sent", 12}, {"stalls", 1}}}, {"admission", {}}};
        return telemetry;
    }

    void set_healthy(bool well) override { healthy = well; }

    std::vector<control::Session> sessions(std::size_t first, std::size_t limit) override {
        std::vector<control::Session> page;
        for (std::size_t n = first; n < 2500 && page.size() < limit; ++n) {
            page.push_back({.ssrc = static_cast<std::uint32_t>(n), .encrypted = true, .packets = n});
        }
        return page;
    }

    std::string swap_vad(const std::string& module) override {
        if (module == "/bad.so") {
            return "/bad.so is no VAD module";
        }
        vad_module = module;
        return "";
    }

    bool can_flow() override { return flows; }
    void begin_drain() override { draining = true; }
    bool is_drained() override { return drained; }

    std::string vad_module = "/vad.so";
    std::atomic<bool> flows{true};
    std::atomic<bool> healthy{false};
    std::atomic<bool> draining{false};
    std::atomic<bool> drained{false};
};

}  // namespace voice::test
