// Configuration of the data plane: the environment variables of the contract (voice_blueprint/contract/), and optional
// ones of its own. Values that would fail later are refused here.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "valkey/link.hpp"

namespace voice::config {

enum class DataPath : std::uint8_t {
    kAfXdp,
    kVfio,
    kAfPacket,  // machines without XDP
    kSocket,    // machines without either: development, tests
};

struct Config {
    std::string host;
    std::string host_address;
    std::string zone;  // availability zone; empty where there are none
    valkey::Endpoint store;

    DataPath data_path = DataPath::kAfXdp;
    std::string interface;  // its name; for vfio its PCI address
    unsigned rx_queues = 1;
    unsigned rx_ring_size = 1024;
    unsigned huge_page_size_mib = 2;
    std::uint16_t rtp_port = 5004;
    std::uint16_t chunk_port = 5006;
    std::uint16_t health_port = 8081;
    std::chrono::seconds drain_timeout{0};

    // Not part of the contract.
    std::string control_socket;
    std::string state_file;  // each receive queue adds its number
    std::string vad_module;
    bool log_mel = true;        // content of chunks; otherwise PCM16
    unsigned max_sessions = 0;
    unsigned packets_per_s = 0;     // per session
    unsigned admissions_per_s = 0;  // look-ups of unknown senders
    std::chrono::seconds silent_after{0};
    // Chunks kept in case their ASR host dies.
    std::chrono::seconds resend_window{0};
    unsigned resend_mib = 0;  // at most
};

struct Problem {
    std::string variable;
    std::string value;
    std::string limit;
    std::string remedy;
};

// A variable's value; null if it is not set.
using Environment = std::function<const char*(const char*)>;

// Returns all problems at once, so that a launcher needs one correction.
std::variant<Config, std::vector<Problem>> load(const Environment& environment);

// One line for the log.
std::string text_of(const Problem& problem);

// For the test that compares them with the contract.
std::vector<std::string_view> contract_variables();
std::vector<std::string_view> own_variables();

}  // namespace voice::config
