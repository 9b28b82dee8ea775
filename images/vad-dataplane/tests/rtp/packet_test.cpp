#include "rtp/packet.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

using voice::rtp::parse;
using Bytes = std::vector<std::uint8_t>;

Bytes packet(std::uint8_t first = 0x80, const Bytes& rest = {}) {
    Bytes bytes{first, 0xe0, 0x12, 0x34, 1, 2, 3, 4, 0xa, 0xb, 0xc, 0xd};
    for (const auto byte : rest) {  // insert() of a range trips a false -Warray-bounds in GCC 12
        bytes.push_back(byte);
    }
    return bytes;
}

TEST(RtpPacket, ReadsItsHeader) {
    const auto bytes = packet(0x80, {5, 6});
    const auto found = parse(bytes);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->payload_type, 0x60);
    EXPECT_TRUE(found->marker);
    EXPECT_EQ(found->sequence, 0x1234);
    EXPECT_EQ(found->timestamp, 0x01020304U);
    EXPECT_EQ(found->ssrc, 0x0a0b0c0dU);
    EXPECT_EQ(Bytes(found->payload.begin(), found->payload.end()), (Bytes{5, 6}));
}

TEST(RtpPacket, SkipsContributorsExtensionAndPadding) {
    // Two contributors, an extension of one word, three bytes of audio, two of padding.
    const auto bytes = packet(0xb2, {1, 1, 1, 1, 2, 2, 2, 2, 0xbe, 0xde, 0, 1, 9, 9, 9, 9, 7, 8, 9, 0, 2});
    const auto found = parse(bytes);
    ASSERT_TRUE(found);
    EXPECT_EQ(Bytes(found->payload.begin(), found->payload.end()), (Bytes{7, 8, 9}));
}

TEST(RtpPacket, MayBeEmpty) {
    const auto bytes = packet();
    EXPECT_TRUE(parse(bytes)->payload.empty());
}

TEST(RtcpPacket, TellsTheNoticesOfItsSource) {
    using voice::rtp::Notice;
    using voice::rtp::notice_of;
    const Bytes report{0x80, 201, 0, 1, 0, 0, 0, 7};
    const auto with = [&report](const Bytes& more) {
        Bytes all = report;
        for (const auto byte : more) {  // as above
            all.push_back(byte);
        }
        return all;
    };
    const Bytes commit{0x80, 204, 0, 2, 0, 0, 0, 7, 'c', 'm', 'i', 't'};
    const Bytes bye{0x81, 203, 0, 1, 0, 0, 0, 7};
    EXPECT_EQ(notice_of(report, 7), Notice::kNone);
    EXPECT_EQ(notice_of(with(commit), 7), Notice::kCommit);
    EXPECT_EQ(notice_of(with(commit), 8), Notice::kNone) << "of another source";
    EXPECT_EQ(notice_of(with({0x80, 204, 0, 2, 0, 0, 0, 7, 'n', 'a', 'm', 'e'}), 7), Notice::kNone);
    EXPECT_EQ(notice_of(with({0x80, 204, 0, 1, 0, 0, 0, 7}), 7), Notice::kNone) << "without a name";
    EXPECT_EQ(notice_of(with(bye), 7), Notice::kBye);
    EXPECT_EQ(notice_of(with(bye), 8), Notice::kNone);
}

struct Bad {
    const char* name;
    Bytes bytes;
};

class BadRtpPacket : public ::testing::TestWithParam<Bad> {};

TEST_P(BadRtpPacket, IsRefused) { EXPECT_FALSE(parse(GetParam().bytes)); }

INSTANTIATE_TEST_SUITE_P(Each, BadRtpPacket, ::testing::Values(
    Bad{"Nothing", {}},
    Bad{"ElevenBytes", Bytes(11, 0x80)},
    Bad{"Version0", packet(0x00)},
    Bad{"Version3", packet(0xc0)},
    Bad{"ContributorsPastTheEnd", packet(0x81, {1, 2, 3})},
    Bad{"ExtensionWithoutItsHeader", packet(0x90, {0xbe, 0xde, 0})},
    Bad{"ExtensionPastTheEnd", packet(0x90, {0xbe, 0xde, 0, 2, 1, 1, 1, 1})},
    Bad{"LongestExtension", packet(0x90, {0xbe, 0xde, 0xff, 0xff})},
    Bad{"PaddingOfNothing", packet(0xa0)},
    Bad{"PaddingOfZero", packet(0xa0, {1, 0})},
    Bad{"PaddingPastItsPayload", packet(0xa0, {1, 3})}),
    [](const ::testing::TestParamInfo<Bad>& each) { return std::string(each.param.name); });

}  // namespace
