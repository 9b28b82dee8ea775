// Two connected interfaces in a separate network namespace: packets sent on `kFar` arrive at `kNear`. Needs
// CAP_SYS_ADMIN and CAP_NET_ADMIN.
#pragma once

#include <gtest/gtest.h>
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/descriptor.hpp"

namespace voice::test {

inline constexpr const char* kNear = "voice0";
inline constexpr const char* kFar = "voice1";

// Applies to the calling thread and those that it starts later.
inline void enter_own_network() {
    ASSERT_EQ(unshare(CLONE_NEWNET), 0) << "a network namespace needs CAP_SYS_ADMIN";
    const std::string near = kNear;
    const std::string far = kFar;
    // IPv6 would send packets by itself, which tests would count.
    const std::string command = "ip link set lo up && ip link add " + near + " type veth peer name " + far +
                                " && sysctl -qw net.ipv6.conf." + near + ".disable_ipv6=1 net.ipv6.conf." + far +
                                ".disable_ipv6=1 && ip link set " + near + " up && ip link set " + far + " up";
    ASSERT_EQ(std::system(command.c_str()), 0);
}

// Sends and receives whole frames on an interface.
class Wire {
public:
    explicit Wire(const char* interface) : socket_(socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL))) {
        sockaddr_ll address{};
        address.sll_family = AF_PACKET;
        address.sll_protocol = htons(ETH_P_ALL);
        address.sll_ifindex = static_cast<int>(if_nametoindex(interface));
        EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    }

    void send(const std::vector<std::uint8_t>& frame) const {
        EXPECT_EQ(::send(socket_.get(), frame.data(), frame.size(), 0), static_cast<ssize_t>(frame.size()));
    }

    // Whether the frame arrives within the limit.
    [[nodiscard]] bool receives(const std::vector<std::uint8_t>& frame, std::chrono::milliseconds limit) const {
        const auto end = std::chrono::steady_clock::now() + limit;
        std::array<std::uint8_t, 4096> bytes{};
        while (std::chrono::steady_clock::now() < end) {
            pollfd ready{.fd = socket_.get(), .events = POLLIN, .revents = 0};
            poll(&ready, 1, 10);
            const auto got = recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
            if (got == static_cast<ssize_t>(frame.size()) && std::equal(frame.begin(), frame.end(), bytes.begin())) {
                return true;
            }
        }
        return false;
    }

private:
    Descriptor socket_;
};

}  // namespace voice::test
