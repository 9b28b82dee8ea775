// The receiver against the library's own senders.
#include "srtp/receiver.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "rtp/packet.hpp"

namespace {

using voice::srtp::Key;
using voice::srtp::Receiver;
using voice::srtp::Verdict;
using Bytes = std::vector<std::uint8_t>;

constexpr std::uint32_t kSsrc = 0x0a0b0c0d;
constexpr std::size_t kAudioBytes = 640;

Key key(std::uint8_t seed = 1) {
    Key key{};
    std::generate(key.begin(), key.end(), [&] { return seed++; });
    return key;
}

class Sender {
public:
    explicit Sender(Key key, std::uint32_t ssrc = kSsrc) : ssrc_(ssrc) {
        EXPECT_NE(Receiver::create(ssrc, key), nullptr);  // makes the library ready, which has to be done once
        srtp_policy_t policy{};
        srtp_crypto_policy_set_aes_cm_128_hmac_sha1_80(&policy.rtp);
        srtp_crypto_policy_set_aes_cm_128_hmac_sha1_80(&policy.rtcp);
        policy.ssrc = {.type = ssrc_specific, .value = ssrc};
        policy.key = key.data();
        EXPECT_EQ(srtp_create(&session_, &policy), srtp_err_status_ok);
    }
    Sender(const Sender&) = delete;
    Sender& operator=(const Sender&) = delete;
    ~Sender() { srtp_dealloc(session_); }

    Bytes send(std::uint16_t sequence, std::uint8_t fill = 7) {
        Bytes packet{0x80, 96, static_cast<std::uint8_t>(sequence >> 8), static_cast<std::uint8_t>(sequence)};
        packet.resize(8);
        for (int shift = 24; shift >= 0; shift -= 8) {
            packet.push_back(static_cast<std::uint8_t>(ssrc_ >> shift));
        }
        packet.resize(packet.size() + kAudioBytes, fill);
        int bytes = static_cast<int>(packet.size());
        packet.resize(packet.size() + SRTP_MAX_TRAILER_LEN);
        EXPECT_EQ(srtp_protect(session_, packet.data(), &bytes), srtp_err_status_ok);
        packet.resize(static_cast<std::size_t>(bytes));
        return packet;
    }

    // As if it had sent so many times 65,536 packets already.
    void wrap(std::uint32_t times) { EXPECT_EQ(srtp_set_stream_roc(session_, ssrc_, times), srtp_err_status_ok); }

private:
    srtp_t session_ = nullptr;
    std::uint32_t ssrc_;
};

Verdict verdict(Receiver& receiver, Bytes packet) { return receiver.unprotect(packet).verdict; }

TEST(Srtp, GivesThePacketBackInPlace) {
    Sender sender(key());
    const auto receiver = Receiver::create(kSsrc, key());
    auto packet = sender.send(100);
    ASSERT_EQ(packet.size(), 12 + kAudioBytes + voice::srtp::kTagBytes);
    ASSERT_NE(packet[20], 7) << "the sender did not encrypt";
    const auto found = receiver->unprotect(packet);
    ASSERT_EQ(found.verdict, Verdict::kOk);
    EXPECT_EQ(found.packet.data(), packet.data());
    const auto rtp = voice::rtp::parse(found.packet);
    ASSERT_TRUE(rtp);
    EXPECT_EQ(rtp->sequence, 100);
    EXPECT_EQ(rtp->payload.size(), kAudioBytes);
    EXPECT_TRUE(std::all_of(rtp->payload.begin(), rtp->payload.end(), [](auto byte) { return byte == 7; }));
}

TEST(Srtp, AWrongKeyIsRefused) {
    Sender sender(key(2));
    const auto receiver = Receiver::create(kSsrc, key());
    for (std::uint16_t sequence = 0; sequence < 200; ++sequence) {
        EXPECT_EQ(verdict(*receiver, sender.send(sequence)), Verdict::kAuthFailed);
    }
}

TEST(Srtp, AForgeryHarmsNobody) {
    Sender sender(key());
    Sender forger(key(2));
    const auto receiver = Receiver::create(kSsrc, key());
    for (std::uint16_t sequence = 0; sequence < 200; ++sequence) {
        EXPECT_EQ(verdict(*receiver, forger.send(static_cast<std::uint16_t>(sequence * 311))), Verdict::kAuthFailed);
        EXPECT_EQ(verdict(*receiver, sender.send(sequence)), Verdict::kOk);
    }
}

TEST(Srtp, EveryBitIsAuthenticated) {
    Sender sender(key());
    const auto receiver = Receiver::create(kSsrc, key());
    const auto packet = sender.send(1);
    for (std::size_t bit = 0; bit < 8 * packet.size(); bit += 5) {
        auto changed = packet;
        changed[bit / 8] = static_cast<std::uint8_t>(changed[bit / 8] ^ (1U << bit % 8));
        EXPECT_NE(verdict(*receiver, changed), Verdict::kOk) << bit;
    }
    EXPECT_EQ(verdict(*receiver, packet), Verdict::kOk);
}

TEST(Srtp, AReplayIsRefused) {
    Sender sender(key());
    const auto receiver = Receiver::create(kSsrc, key());
    std::vector<Bytes> packets;
    for (std::uint16_t sequence = 0; sequence < 300; ++sequence) {
        packets.push_back(sender.send(sequence));
        EXPECT_EQ(verdict(*receiver, packets.back()), Verdict::kOk);
    }
    EXPECT_EQ(verdict(*receiver, packets[299]), Verdict::kReplay) << "the latest";
    EXPECT_EQ(verdict(*receiver, packets[200]), Verdict::kReplay) << "in the window";
    EXPECT_EQ(verdict(*receiver, packets[0]), Verdict::kReplay) << "before the window";
}

TEST(Srtp, PacketsOutOfOrderAreFine) {
    Sender sender(key());
    const auto receiver = Receiver::create(kSsrc, key());
    std::vector<Bytes> packets;
    for (std::uint16_t sequence = 0; sequence < 64; ++sequence) {
        packets.push_back(sender.send(sequence));
    }
    std::reverse(packets.begin(), packets.end());
    for (const auto& packet : packets) {
        EXPECT_EQ(verdict(*receiver, packet), Verdict::kOk);
    }
}

TEST(Srtp, NoTruncationIsTaken) {
    Sender sender(key());
    const auto receiver = Receiver::create(kSsrc, key());
    const auto packet = sender.send(1);
    for (std::size_t bytes = 0; bytes < packet.size(); ++bytes) {
        auto cut = packet;
        cut.resize(bytes);
        const auto found = verdict(*receiver, cut);
        EXPECT_NE(found, Verdict::kOk) << bytes;
        if (bytes < 12 + voice::srtp::kTagBytes) {
            EXPECT_EQ(found, Verdict::kMalformed) << bytes;
        }
    }
    EXPECT_EQ(verdict(*receiver, packet), Verdict::kOk);
}

TEST(Srtp, HeadersThatPointPastTheEndAreRefused) {
    const auto receiver = Receiver::create(kSsrc, key());
    for (const auto first : {0x8f, 0x90, 0x9f, 0x40, 0x00}) {
        Bytes packet{static_cast<std::uint8_t>(first), 96, 0, 1, 0, 0, 0, 0, 0xa, 0xb, 0xc, 0xd};
        packet.resize(24, 0xff);
        EXPECT_NE(verdict(*receiver, packet), Verdict::kOk) << first;
    }
}

TEST(Srtp, PlainRtpIsRefused) {
    const auto receiver = Receiver::create(kSsrc, key());
    Bytes packet{0x80, 96, 0, 1, 0, 0, 0, 0, 0xa, 0xb, 0xc, 0xd};
    packet.resize(12 + kAudioBytes);
    EXPECT_EQ(verdict(*receiver, packet), Verdict::kAuthFailed);
}

TEST(Srtp, AnotherSessionsPacketIsRefused) {
    Sender sender(key(), kSsrc + 1);
    const auto receiver = Receiver::create(kSsrc, key());
    EXPECT_EQ(verdict(*receiver, sender.send(1)), Verdict::kMalformed);
}

TEST(Srtp, TheSequenceMayWrap) {
    Sender sender(key());
    const auto receiver = Receiver::create(kSsrc, key());
    for (std::uint32_t n = 65'000; n < 66'000; ++n) {
        ASSERT_EQ(verdict(*receiver, sender.send(static_cast<std::uint16_t>(n))), Verdict::kOk) << n;
    }
}

class StartsLate : public ::testing::TestWithParam<std::uint32_t> {};

// The host was restarted, or the load balancer moved the session.
TEST_P(StartsLate, AndFindsTheCount) {
    Sender sender(key());
    sender.wrap(GetParam());
    const auto receiver = Receiver::create(kSsrc, key());
    for (std::uint32_t n = 65'400; n < 65'700; ++n) {
        ASSERT_EQ(verdict(*receiver, sender.send(static_cast<std::uint16_t>(n))), Verdict::kOk) << n;
    }
}

INSTANTIATE_TEST_SUITE_P(After, StartsLate, ::testing::Values(1, 2, 5, Receiver::kWrapsTried));

// Somebody replays an old packet first: for a second nothing is understood, then the sender is found again.
TEST(Srtp, ARecordedPacketDelaysALateReceiverByASecond) {
    Sender sender(key());
    sender.wrap(3);
    const auto recorded = sender.send(10);
    sender.wrap(5);
    const auto receiver = Receiver::create(kSsrc, key());
    EXPECT_EQ(verdict(*receiver, recorded), Verdict::kOk);
    std::uint32_t refused = 0;
    for (std::uint16_t sequence = 100; sequence < 400; ++sequence) {
        refused += verdict(*receiver, sender.send(sequence)) == Verdict::kOk ? 0 : 1;
    }
    EXPECT_LE(refused, Receiver::kFailuresPerSearch);
    EXPECT_NE(verdict(*receiver, recorded), Verdict::kOk) << "and not again";
}

TEST(Srtp, SessionsAreApart) {
    Sender one(key(1), 1);
    Sender two(key(2), 2);
    const auto receiver_one = Receiver::create(1, key(1));
    const auto receiver_two = Receiver::create(2, key(2));
    EXPECT_EQ(verdict(*receiver_one, one.send(9)), Verdict::kOk);
    EXPECT_EQ(verdict(*receiver_two, two.send(9)), Verdict::kOk);
}

}  // namespace
