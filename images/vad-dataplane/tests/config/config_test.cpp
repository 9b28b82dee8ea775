#include "config/config.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

namespace {

using namespace voice::config;
using Variables = std::map<std::string, std::string, std::less<>>;

// As user data sets them.
Variables complete() {
    return {{"VOICE_HOST", "i-0123456789abcdef0"},
            {"VOICE_HOST_ADDRESS", "10.0.1.2"},
            {"VOICE_ZONE", "us-east-1b"},
            {"VOICE_VALKEY_HOST_FILE", "/run/state/host"},
            {"VOICE_VALKEY_PORT", "6379"},
            {"VOICE_VALKEY_USER", "vad"},
            {"VOICE_VALKEY_PASSWORD_FILE", "/run/secrets/valkey-password"},
            {"VOICE_DATA_PATH", "af_xdp"},
            {"VOICE_INTERFACE", "ens5"},
            {"VOICE_RX_QUEUES", "4"},
            {"VOICE_RX_RING_SIZE", "256"},
            {"VOICE_HUGE_PAGE_SIZE_MIB", "2"},
            {"VOICE_RTP_PORT", "5004"},
            {"VOICE_CHUNK_PORT", "5006"},
            {"VOICE_HEALTH_PORT", "8081"},
            {"VOICE_DRAIN_TIMEOUT_S", "110"},
            {"VOICE_MAX_SESSIONS", "8192"}};
}

std::variant<Config, std::vector<Problem>> load_from(const Variables& variables) {
    return load([&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    });
}

TEST(Configuration, ReadsTheContractAndFillsInTheRest) {
    const auto loaded = load_from(complete());
    ASSERT_TRUE(std::holds_alternative<Config>(loaded)) << text_of(std::get<1>(loaded).front());
    const auto& config = std::get<Config>(loaded);
    EXPECT_EQ(config.host_address, "10.0.1.2");
    EXPECT_EQ(config.zone, "us-east-1b");
    EXPECT_EQ(config.store.host_file, "/run/state/host");
    EXPECT_EQ(config.store.user, "vad");
    EXPECT_EQ(config.store.password_file, "/run/secrets/valkey-password");
    EXPECT_TRUE(config.store.tls) << "the state store is reached over TLS unless somebody says otherwise";
    EXPECT_EQ(config.data_path, DataPath::kAfXdp);
    EXPECT_EQ(config.rx_queues, 4U);
    EXPECT_EQ(config.rx_ring_size, 256U);
    EXPECT_EQ(config.drain_timeout, std::chrono::seconds(110));
    EXPECT_EQ(config.control_socket, "/run/voice/dataplane/control.sock");
    EXPECT_EQ(std::filesystem::path(config.state_file).parent_path(),
              std::filesystem::path(config.control_socket).parent_path())
        << "the folder of the host that outlives the container";
    EXPECT_TRUE(config.log_mel);
    EXPECT_EQ(config.packets_per_s, 200U);
}

TEST(Configuration, OwnVariablesCanBeSet) {
    auto variables = complete();
    variables.insert({{"VOICE_VALKEY_TLS", "off"}, {"VOICE_CHUNK_KIND", "pcm16"}, {"VOICE_CONTROL_SOCKET", "/tmp/x"}});
    variables["VOICE_MAX_SESSIONS"] = "65536";
    variables["VOICE_DATA_PATH"] = "socket";
    const auto config = std::get<Config>(load_from(variables));
    EXPECT_FALSE(config.store.tls);
    EXPECT_FALSE(config.log_mel);
    EXPECT_EQ(config.max_sessions, 65536U);
    EXPECT_EQ(config.data_path, DataPath::kSocket);
}

TEST(Configuration, EveryVariableOfTheContractThatIsMissingIsToldAtOnce) {
    const auto loaded = load_from({});
    const auto& problems = std::get<1>(loaded);
    EXPECT_EQ(problems.size(), contract_variables().size() - 3) << "huge pages are for those who reserve them, zones "
                                                                "for those who have some; chunks are log-mel";
    for (const auto& problem : problems) {
        EXPECT_EQ(text_of(problem), problem.variable + " is not set, limit: has to be set; set it in the launcher "
                                                       "(user data, task definition or manifest)");
    }
}

class BadValue : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(BadValue, IsRefusedByNameWithItsLimitAndARemedy) {
    auto variables = complete();
    variables[GetParam().first] = GetParam().second;
    const auto loaded = load_from(variables);
    ASSERT_TRUE((std::holds_alternative<std::vector<Problem>>(loaded)));
    const auto& problems = std::get<1>(loaded);
    ASSERT_EQ(problems.size(), 1U);
    EXPECT_EQ(problems[0].variable, GetParam().first);
    EXPECT_EQ(problems[0].value, GetParam().second);
    EXPECT_FALSE(problems[0].limit.empty());
    EXPECT_FALSE(problems[0].remedy.empty());
}

INSTANTIATE_TEST_SUITE_P(Each, BadValue, ::testing::Values(
    std::pair{"VOICE_HOST_ADDRESS", "10.0.1"}, std::pair{"VOICE_VALKEY_PORT", "0"},
    std::pair{"VOICE_VALKEY_PORT", "65536"}, std::pair{"VOICE_VALKEY_PORT", "6379 "},
    std::pair{"VOICE_VALKEY_PASSWORD_FILE", "password"}, std::pair{"VOICE_VALKEY_TLS", "maybe"},
    std::pair{"VOICE_DATA_PATH", "af-xdp"},
    std::pair{"VOICE_RX_QUEUES", "0"}, std::pair{"VOICE_RX_QUEUES", "65"}, std::pair{"VOICE_RX_QUEUES", "-1"},
    std::pair{"VOICE_RX_QUEUES", "four"}, std::pair{"VOICE_RX_RING_SIZE", "1000"},
    std::pair{"VOICE_RX_RING_SIZE", "32"}, std::pair{"VOICE_HUGE_PAGE_SIZE_MIB", "3"},
    std::pair{"VOICE_CHUNK_PORT", "5004"}, std::pair{"VOICE_HEALTH_PORT", "x"},
    std::pair{"VOICE_DRAIN_TIMEOUT_S", "0"}, std::pair{"VOICE_DRAIN_TIMEOUT_S", "1e3"},
    std::pair{"VOICE_CONTROL_SOCKET", "run/x"}, std::pair{"VOICE_CHUNK_KIND", "opus"},
    std::pair{"VOICE_MAX_SESSIONS", "65537"},
    std::pair{"VOICE_SESSION_PACKETS_PER_S", "49"}, std::pair{"VOICE_ADMISSIONS_PER_S", "0"},
    std::pair{"VOICE_SILENT_AFTER_S", "0"},
    std::pair{"VOICE_STATE_FILE", "sessions"}, std::pair{"VOICE_RESEND_WINDOW_S", "0"},
    std::pair{"VOICE_RESEND_MIB", "0"}));

}  // namespace
