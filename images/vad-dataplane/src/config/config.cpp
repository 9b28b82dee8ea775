#include "config/config.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <optional>

#include "xdp/steer.h"

namespace voice::config {
namespace {

struct Variable {
    const char* name;
    const char* fallback;  // null: required
};

// Variables of the contract. A launcher sets each, but some concern only one data path.
constexpr std::array kContract{
    Variable{"VOICE_HOST", nullptr},
    Variable{"VOICE_HOST_ADDRESS", nullptr},
    Variable{"VOICE_ZONE", ""},  // not set where there are no zones
    Variable{"VOICE_VALKEY_HOST_FILE", nullptr},
    Variable{"VOICE_VALKEY_PORT", nullptr},
    Variable{"VOICE_VALKEY_USER", nullptr},
    Variable{"VOICE_VALKEY_PASSWORD_FILE", nullptr},
    Variable{"VOICE_DATA_PATH", nullptr},
    Variable{"VOICE_INTERFACE", nullptr},
    Variable{"VOICE_RX_QUEUES", nullptr},
    Variable{"VOICE_RX_RING_SIZE", nullptr},
    Variable{"VOICE_HUGE_PAGE_SIZE_MIB", "2"},  // not set where a host reserves none
    Variable{"VOICE_RTP_PORT", nullptr},
    Variable{"VOICE_CHUNK_PORT", nullptr},
    Variable{"VOICE_CHUNK_KIND", "log-mel"},
    Variable{"VOICE_HEALTH_PORT", nullptr},
    Variable{"VOICE_DRAIN_TIMEOUT_S", nullptr},
    Variable{"VOICE_MAX_SESSIONS", nullptr},
};

constexpr std::array kOwn{
    Variable{"VOICE_VALKEY_TLS", "on"},
    Variable{"VOICE_VALKEY_CA_FILE", ""},
    Variable{"VOICE_CONTROL_SOCKET", "/run/voice/dataplane/control.sock"},
    Variable{"VOICE_STATE_FILE", "/run/voice/dataplane/sessions"},
    Variable{"VOICE_VAD_MODULE", "/usr/lib/voice/vad.so"},
    Variable{"VOICE_SESSION_PACKETS_PER_S", "200"},  // twice those of 10 ms
    Variable{"VOICE_ADMISSIONS_PER_S", "2000"},
    Variable{"VOICE_SILENT_AFTER_S", "60"},
    // A host's last heartbeat is read up to a second after its death, it expires three seconds later, and that is
    // detected within another second; one second is spare. 64 MiB hold the chunks of 340 people who speak all the time.
    Variable{"VOICE_RESEND_WINDOW_S", "6"},
    Variable{"VOICE_RESEND_MIB", "64"},
};

constexpr std::string_view kSetInLauncher = "set it in the launcher (user data, task definition or manifest)";

class Reader {
public:
    explicit Reader(const Environment& environment) : environment_(environment) {}

    std::string text(std::string_view name) {
        const auto& variable = find(name);
        const char* value = environment_(variable.name);
        if (value != nullptr && *value != '\0') {
            return value;
        }
        if (variable.fallback == nullptr) {
            refuse(name, "", "has to be set", std::string(kSetInLauncher));
        }
        return variable.fallback == nullptr ? "" : variable.fallback;
    }

    unsigned number(std::string_view name, unsigned least, unsigned most, std::string_view remedy = kSetInLauncher) {
        const auto value = text(name);
        unsigned number = least;
        const auto* const end = value.data() + value.size();
        const auto [at, error] = std::from_chars(value.data(), end, number);
        if (!value.empty() && (error != std::errc{} || at != end || number < least || number > most)) {
            refuse(name, value, "a whole number from " + std::to_string(least) + " to " + std::to_string(most),
                   std::string(remedy));
        }
        return number;
    }

    std::uint16_t port(std::string_view name) {
        return static_cast<std::uint16_t>(number(name, 1, 65535, "use the contract's port"));
    }

    unsigned power_of_two(std::string_view name, unsigned least, unsigned most) {
        const auto value = number(name, least, most);
        if (!std::has_single_bit(value)) {
            refuse(name, std::to_string(value), "a power of two", "use " + std::to_string(std::bit_ceil(value)));
        }
        return value;
    }

    // The index of the value among the choices.
    template <std::size_t Count>
    std::size_t choice(std::string_view name, const std::array<std::string_view, Count>& choices) {
        const auto value = text(name);
        const auto found = std::find(choices.begin(), choices.end(), value);
        if (found != choices.end()) {
            return static_cast<std::size_t>(found - choices.begin());
        }
        std::string limit = "one of";
        for (const auto each : choices) {
            limit += " " + std::string(each);
        }
        if (!value.empty()) {
            refuse(name, value, std::move(limit), std::string(kSetInLauncher));
        }
        return 0;
    }

    std::string address(std::string_view name) {
        auto value = text(name);
        in_addr parsed{};
        if (!value.empty() && inet_pton(AF_INET, value.c_str(), &parsed) != 1) {
            refuse(name, value, "an IPv4 address", std::string(kSetInLauncher));
        }
        return value;
    }

    std::string path(std::string_view name) {
        auto value = text(name);
        if (!value.empty() && value.front() != '/') {
            refuse(name, value, "an absolute path", "start it with /");
        }
        return value;
    }

    void refuse(std::string_view name, std::string value, std::string limit, std::string remedy) {
        problems_.push_back({std::string(name), std::move(value), std::move(limit), std::move(remedy)});
    }

    std::vector<Problem>& problems() noexcept { return problems_; }

private:
    static const Variable& find(std::string_view name) {
        const auto is_it = [&](const Variable& variable) { return variable.name == name; };
        const auto* const found = std::find_if(kContract.begin(), kContract.end(), is_it);
        return found != kContract.end() ? *found : *std::find_if(kOwn.begin(), kOwn.end(), is_it);
    }

    const Environment& environment_;
    std::vector<Problem> problems_;
};

void read_identity(Reader& reader, Config& config) {
    config.host = reader.text("VOICE_HOST");
    config.host_address = reader.address("VOICE_HOST_ADDRESS");
    config.zone = reader.text("VOICE_ZONE");
}

void read_store(Reader& reader, Config& config) {
    config.store.host_file = reader.path("VOICE_VALKEY_HOST_FILE");
    config.store.port = reader.port("VOICE_VALKEY_PORT");
    config.store.user = reader.text("VOICE_VALKEY_USER");
    config.store.password_file = reader.path("VOICE_VALKEY_PASSWORD_FILE");
    config.store.tls = reader.choice<2>("VOICE_VALKEY_TLS", {"on", "off"}) == 0;
    config.store.ca_file = reader.path("VOICE_VALKEY_CA_FILE");
}

void read_data_path(Reader& reader, Config& config) {
    constexpr std::array<std::string_view, 4> kPaths{"af_xdp", "vfio", "af_packet", "socket"};
    config.data_path = static_cast<DataPath>(reader.choice("VOICE_DATA_PATH", kPaths));
    config.interface = reader.text("VOICE_INTERFACE");
    config.rx_queues = reader.number("VOICE_RX_QUEUES", 1, VOICE_STEER_QUEUES, "poll fewer queues: one core each");
    config.rx_ring_size = reader.power_of_two("VOICE_RX_RING_SIZE", 64, 32768);
    config.huge_page_size_mib = reader.power_of_two("VOICE_HUGE_PAGE_SIZE_MIB", 2, 16384);
    config.rtp_port = reader.port("VOICE_RTP_PORT");
    config.chunk_port = reader.port("VOICE_CHUNK_PORT");
    config.health_port = reader.port("VOICE_HEALTH_PORT");
    if (config.rtp_port == config.chunk_port && reader.problems().empty()) {
        reader.refuse("VOICE_CHUNK_PORT", std::to_string(config.chunk_port), "another port than VOICE_RTP_PORT",
                      "use the contract's port");
    }
}

void read_own(Reader& reader, Config& config) {
    config.drain_timeout = std::chrono::seconds(reader.number("VOICE_DRAIN_TIMEOUT_S", 1, 86'400));
    config.control_socket = reader.path("VOICE_CONTROL_SOCKET");
    config.state_file = reader.path("VOICE_STATE_FILE");
    config.vad_module = reader.path("VOICE_VAD_MODULE");
    config.log_mel = reader.choice<2>("VOICE_CHUNK_KIND", {"log-mel", "pcm16"}) == 0;
    config.max_sessions =
        reader.number("VOICE_MAX_SESSIONS", 1, VOICE_STEER_SESSIONS, "the XDP program's map has no more");
    // Half of what a sender of 20 ms packets needs would starve it; a million is no limit.
    config.packets_per_s = reader.number("VOICE_SESSION_PACKETS_PER_S", 50, 1'000'000);
    config.admissions_per_s = reader.number("VOICE_ADMISSIONS_PER_S", 1, 1'000'000);
    config.resend_window = std::chrono::seconds(reader.number("VOICE_RESEND_WINDOW_S", 1, 60));
    config.resend_mib = reader.number("VOICE_RESEND_MIB", 1, 65'536);
    config.silent_after = std::chrono::seconds(reader.number("VOICE_SILENT_AFTER_S", 1, 86'400));
}

template <std::size_t Count>
std::vector<std::string_view> names_of(const std::array<Variable, Count>& variables) {
    std::vector<std::string_view> names;
    for (const auto& variable : variables) {
        names.emplace_back(variable.name);
    }
    return names;
}

}  // namespace

std::variant<Config, std::vector<Problem>> load(const Environment& environment) {
    Reader reader(environment);
    Config config;
    read_identity(reader, config);
    read_store(reader, config);
    read_data_path(reader, config);
    read_own(reader, config);
    if (!reader.problems().empty()) {
        return std::move(reader.problems());
    }
    return config;
}

std::string text_of(const Problem& problem) {
    const auto value = problem.value.empty() ? std::string("is not set") : "is " + problem.value;
    return problem.variable + " " + value + ", limit: " + problem.limit + "; " + problem.remedy;
}

std::vector<std::string_view> contract_variables() { return names_of(kContract); }

std::vector<std::string_view> own_variables() { return names_of(kOwn); }

}  // namespace voice::config
