#include "receive/probe.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "receive/dpdk.hpp"
#include "support/descriptor.hpp"
#include "support/veth.hpp"

namespace {

using voice::receive::answer_probe;
using voice::receive::Dpdk;

constexpr std::uint16_t kHealth = 8081;

// A real kernel's TCP acts as the load balancer; DPDK has the other end of the wire, where the kernel has no address.
class ProbeTest : public ::testing::Test {
protected:
    static void SetUpTestSuite() {
        ASSERT_NO_FATAL_FAILURE(voice::test::enter_own_network());
        const std::string near = voice::test::kNear;
        const std::string far = voice::test::kFar;
        const std::string mac = "02:00:00:00:00:02";
        const std::string command = "ip link set " + near + " address " + mac + " && ip address add 10.7.0.1/24 dev " + far +
                                    " && ip neigh add 10.7.0.2 dev " + far + " lladdr " + mac;
        ASSERT_EQ(std::system(command.c_str()), 0);
        voice::receive::DpdkOptions options;
        options.driver = voice::receive::Driver::kAfPacket;
        options.interface = near;
        options.huge_pages = false;
        options.health_port = kHealth;
        dpdk_ = new Dpdk(options);
    }
    static void TearDownTestSuite() { delete dpdk_; }

    void SetUp() override {
        polls_ = std::thread([this] {
            auto queue = dpdk_->queue(0);
            while (!over_) {
                queue.poll([](const auto&) {});
            }
        });
    }
    void TearDown() override {
        over_ = true;
        polls_.join();
    }

    // Connects, sends text, closes, and returns errno of a failed step.
    static int probe(const std::string& says = "") {
        const voice::Descriptor connection(socket(AF_INET, SOCK_STREAM, 0));
        const timeval limit{.tv_sec = 10, .tv_usec = 0};
        setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(kHealth);
        inet_pton(AF_INET, "10.7.0.2", &to.sin_addr);
        char rest = 0;
        if (connect(connection.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0 ||
            send(connection.get(), says.data(), says.size(), MSG_NOSIGNAL) < 0 ||
            shutdown(connection.get(), SHUT_WR) != 0) {
            return errno;
        }
        return recv(connection.get(), &rest, 1, 0) == 0 ? 0 : errno;  // the peer has closed too
    }

    static Dpdk* dpdk_;
    std::thread polls_;
    std::atomic<bool> over_ = false;
};

Dpdk* ProbeTest::dpdk_ = nullptr;

TEST_F(ProbeTest, AConnectionIsOpenedAndClosedWhileWeAreWell) {
    dpdk_->set_healthy(true);
    EXPECT_EQ(probe(), 0);
    EXPECT_EQ(probe("GET / HTTP/1.1\r\n\r\n"), 0) << "what a check says is taken, and not answered";
    for (int i = 0; i < 100; ++i) {
        ASSERT_EQ(probe(), 0) << i;
    }
}

TEST_F(ProbeTest, AConnectionIsRefusedWhileWeAreNot) {
    dpdk_->set_healthy(false);
    EXPECT_EQ(probe(), ECONNREFUSED);
    dpdk_->set_healthy(true);
    EXPECT_EQ(probe(), 0);
}

TEST_F(ProbeTest, CountersOfThePortAreFoundByHowTheirNamesEnd) {
    dpdk_->set_healthy(true);
    const auto before = dpdk_->counters("_good_packets");
    EXPECT_EQ(probe(), 0);
    const auto after = dpdk_->counters("_good_packets");
    ASSERT_EQ(before.size(), 2U);
    ASSERT_EQ(after.size(), 2U);
    for (const std::size_t each : {0U, 1U}) {
        EXPECT_EQ(after[each].first, each == 0 ? "rx_good_packets" : "tx_good_packets");
        EXPECT_GT(after[each].second, before[each].second) << after[each].first;
    }
    EXPECT_TRUE(dpdk_->counters("_allowance_exceeded").empty()) << "only ENA has them";
}

TEST(Probe, IsNothingElse) {
    std::vector<std::uint8_t> syn{
        2,    0, 0,  0,    0, 1, 2, 0, 0,  0, 0, 2, 8,  0,                       // Ethernet
        0x45, 0, 0,  40,   0, 0, 0, 0, 64, 6, 0, 0, 10, 7, 0, 1, 10, 7, 0, 2,    // IPv4
        0x9c, 0x40, 0x1f, 0x91, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 1, 0, 0, 0, 0, 0};  // TCP
    const auto answered = [](std::vector<std::uint8_t> frame) { return answer_probe(frame, kHealth, true); };
    const auto with = [&](std::size_t at, std::uint8_t value) {
        auto frame = syn;
        frame[at] = value;
        return frame;
    };
    EXPECT_EQ(answered(syn), 54U);
    EXPECT_EQ(answered(with(12, 0x86)), 0U) << "IPv6";
    EXPECT_EQ(answered(with(20, 0x20)), 0U) << "a fragment";
    EXPECT_EQ(answered(with(23, 17)), 0U) << "UDP";
    EXPECT_EQ(answered(with(37, 0x90)), 0U) << "another port";
    EXPECT_EQ(answered(with(47, 4)), 0U) << "a reset";
    EXPECT_EQ(answered(with(47, 0x10)), 0U) << "an acknowledgement of nothing new";
    EXPECT_EQ(answered(with(14, 0x4f)), 0U) << "a header that is longer than the packet";
    EXPECT_EQ(answered(with(46, 0xf0)), 0U) << "options that are longer than the packet";
    EXPECT_EQ(answered(with(17, 41)), 0U) << "a packet that is longer than the frame";
    for (std::size_t bytes = 0; bytes < syn.size(); ++bytes) {
        EXPECT_EQ(answered({syn.begin(), syn.begin() + static_cast<std::ptrdiff_t>(bytes)}), 0U) << bytes;
    }
}

}  // namespace
