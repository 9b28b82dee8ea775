// What the data plane is told: the environment variables of the contract (blueprint/contract/), and some of its own
// that nobody has to set. A value that would go wrong later is refused here.
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

    // Our own.
    std::string control_socket;
    std::string state_file;  // each receive queue adds its number
    std::string vad_module;
    bool log_mel = true;        // what chunks hold; otherwise PCM16
    unsigned max_sessions = 0;
    unsigned packets_per_s = 0;     // of one session
    unsigned admissions_per_s = 0;  // unknown senders that are asked about
    std::chrono::seconds silent_after{0};
    // Chunks that are kept for the case that their ASR host dies.
    std::chrono::seconds resend_window{0};
    unsigned resend_mib = 0;  // at most
};

struct Problem {
    std::string variable;
    std::string value;
    std::string limit;
    std::string remedy;
};

// A variable's value; null where it is not set.
using Environment = std::function<const char*(const char*)>;

// All problems at once, so that a launcher is corrected once.
std::variant<Config, std::vector<Problem>> load(const Environment& environment);

// One line for the log.
std::string text_of(const Problem& problem);

// For the test that compares them with the contract.
std::vector<std::string_view> contract_variables();
std::vector<std::string_view> own_variables();

}  // namespace voice::config
