#include "receive/udp.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "../xdp/packets.hpp"
#include "wire/packet.h"

namespace {

using namespace voice::test;
using voice::receive::udp_payload;

constexpr std::uint16_t kIpv6 = 0x86dd;
const Bytes kRtp = Rtp{}.bytes();

Bytes payload(Bytes frame) {
    const auto found = udp_payload(frame, kRtpPort);
    return found ? Bytes(found->bytes.begin(), found->bytes.end()) : Bytes{};
}

TEST(UdpPayload, IsFoundBehindEveryHeader) {
    EXPECT_EQ(payload(ethernet(Ipv4{}(udp(kRtp)))), kRtp);
    EXPECT_EQ(payload(ethernet(Ipv4{}(udp(kRtp)), 0x0800, {0x8100})), kRtp);
    EXPECT_EQ(payload(ethernet(Ipv4{}(udp(kRtp)), 0x0800, {0x88a8, 0x8100})), kRtp);
    EXPECT_EQ(payload(ethernet(Ipv4{.header_words = 15, .option_bytes = 40}(udp(kRtp)))), kRtp);
    EXPECT_EQ(payload(ethernet(Ipv4{}(udp(kRtp))) + Bytes(20, 0)), kRtp) << "without the padding";
}

TEST(UdpPayload, ComesFromItsSource) {
    const auto source = [](Bytes frame) { return udp_payload(frame, kRtpPort)->source; };
    EXPECT_EQ(source(ethernet(Ipv4{}(udp(kRtp)))), voice_source_of_ipv4(htonl(0x0a000001), htons(40000)));
    EXPECT_NE(source(ethernet(Ipv4{}(udp(kRtp, kRtpPort, -1, 40001)))), source(ethernet(Ipv4{}(udp(kRtp)))));
}

TEST(UdpPayload, IsNotFoundInAnythingElse) {
    EXPECT_TRUE(payload(ethernet(Ipv4{}(udp(kRtp, 53)))).empty());
    EXPECT_TRUE(payload(ethernet(Ipv4{.protocol = 6}(udp(kRtp)))).empty());
    EXPECT_TRUE(payload(ethernet(Ipv4{.fragment = 0x2000}(udp(kRtp)))).empty());
    EXPECT_TRUE(payload(ethernet(Ipv4{.header_words = 4}(udp(kRtp)))).empty());
    EXPECT_TRUE(payload(ethernet(ipv6(udp(kRtp)), kIpv6)).empty());
    EXPECT_TRUE(payload(ethernet(Ipv4{}(udp(kRtp)), 0x0800, {0x88a8, 0x8100, 0x8100})).empty());
    EXPECT_TRUE(payload(ethernet(Ipv4{}(udp(kRtp, kRtpPort, 7)))).empty());
    EXPECT_TRUE(payload(ethernet(Ipv4{}(udp(kRtp, kRtpPort, 2000)))).empty()) << "longer than the frame";
}

TEST(UdpPayload, IsNeverFoundInACutFrame) {
    const Bytes whole = ethernet(Ipv4{}(udp(kRtp)), 0x0800, {0x8100});
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
        EXPECT_TRUE(payload(cut(whole, bytes)).empty()) << bytes;
    }
}

}  // namespace
