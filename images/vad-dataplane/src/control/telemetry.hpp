// The data plane's telemetry and its JSON form.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "control/drop_reason.hpp"

namespace voice::control {

enum class State : std::uint8_t {
    kStarting,
    kReady,     // packets can flow
    kStalled,   // was ready, but packets cannot flow now
    kDraining,
};

struct Status {
    State state = State::kStarting;
    std::string host;
    std::string data_path;
    std::string interface;
    std::string vad_module;
    std::uint64_t sessions = 0;
    std::chrono::seconds uptime{0};
};

// Load of each receive queue.
struct QueueLoad {
    std::uint64_t rx_used = 0;  // descriptors of its receive ring
    std::uint64_t rx_size = 0;
    std::uint64_t chunks_used = 0;  // slots of its ring of chunks
    std::uint64_t chunks_size = 0;
};

struct Stage {
    std::string name;
    std::uint64_t cycles = 0;
    std::uint64_t items = 0;
};

using Group = std::vector<std::pair<std::string, std::uint64_t>>;

// Counters start with the process.
struct Telemetry {
    std::uint64_t sessions = 0;
    std::uint64_t max_sessions = 0;
    std::vector<QueueLoad> queues;
    Drops drops{};
    std::uint64_t vad_frames = 0;
    std::uint64_t vad_silent_frames = 0;
    std::uint64_t vad_stopped = 0;  // receive queues whose VAD module was stopped: everything counts as speech
    std::uint64_t asr_hosts = 0;    // alive
    std::vector<Stage> stages;
    std::vector<std::pair<std::string, Group>> groups;  // events, by part of the program
};

struct Session {
    std::uint32_t ssrc = 0;
    bool encrypted = false;
    std::uint64_t packets = 0;
    std::uint64_t concealed = 0;
    std::uint64_t wrong_payload = 0;
    std::uint64_t chunks = 0;
    bool speaking = false;
};

nlohmann::json to_json(const Status& status);

// Occupancy is reported per queue and, as `rx_ring_percent`, of the fullest queue, which scaling uses.
nlohmann::json to_json(const Telemetry& telemetry);

nlohmann::json to_json(const Session& session);

}  // namespace voice::control
