// The receiver against the library's own senders.
#include "srtp/receiver.hpp"

#include <gtest/gtest.h>
#include <srtp2/srtp.h>

#include <algorithm>
#include <string>
#include <vector>

#include "rtp/packet.hpp"

namespace {

using voice::srtp::Key;
using voice::srtp::Receiver;
using voice::srtp::Suite;
using voice::srtp::Verdict;
using Bytes = std::vector<std::uint8_t>;

constexpr std::uint32_t kSsrc = 0x0a0b0c0d;
constexpr std::size_t kAudioBytes = 640;

// AES-GCM's is two bytes shorter.
Key key(std::uint8_t seed = 1) {
    Key key{};
    std::generate_n(key.begin(), voice::srtp::kGcmKeyBytes, [&] { return seed++; });
    return key;
}

void set(srtp_crypto_policy_t& policy, Suite suite) {
    if (suite == Suite::kAeadAes128Gcm) {
        srtp_crypto_policy_set_aes_gcm_128_16_auth(&policy);
    } else {
        srtp_crypto_policy_set_aes_cm_128_hmac_sha1_80(&policy);
    }
}

class Sender {
public:
    explicit Sender(Suite suite, Key key, std::uint32_t ssrc = kSsrc) : ssrc_(ssrc) {
        static const auto ready = srtp_init();
        EXPECT_EQ(ready, srtp_err_status_ok);
        srtp_policy_t policy{};
        set(policy.rtp, suite);
        set(policy.rtcp, suite);
        policy.ssrc = {.type = ssrc_specific, .value = ssrc};
        policy.key = key.data();
        EXPECT_EQ(srtp_create(&session_, &policy), srtp_err_status_ok);
    }
    Sender(const Sender&) = delete;
    Sender& operator=(const Sender&) = delete;
    ~Sender() { srtp_dealloc(session_); }

    Bytes send(std::uint16_t sequence, std::uint8_t fill = 7, std::size_t sources = 0, std::size_t extension = 0) {
        const auto first = static_cast<std::uint8_t>(0x80 | sources | (extension != 0 ? 0x10 : 0));
        Bytes packet{first, 96, static_cast<std::uint8_t>(sequence >> 8), static_cast<std::uint8_t>(sequence)};
        packet.resize(8);
        for (int shift = 24; shift >= 0; shift -= 8) {
            packet.push_back(static_cast<std::uint8_t>(ssrc_ >> shift));
        }
        packet.resize(packet.size() + 4 * sources, 3);
        if (extension != 0) {
            packet.insert(packet.end(), {0xbe, 0xde, 0, static_cast<std::uint8_t>(extension / 4 - 1)});
            packet.resize(packet.size() + extension - 4, 5);
        }
        packet.resize(packet.size() + kAudioBytes, fill);
        int bytes = static_cast<int>(packet.size());
        packet.resize(packet.size() + SRTP_MAX_TRAILER_LEN);
        EXPECT_EQ(srtp_protect(session_, packet.data(), &bytes), srtp_err_status_ok);
        packet.resize(static_cast<std::size_t>(bytes));
        return packet;
    }

    // RTCP with BYE.
    Bytes report() {
        Bytes packet{0x81, 203, 0, 1};
        for (int shift = 24; shift >= 0; shift -= 8) {
            packet.push_back(static_cast<std::uint8_t>(ssrc_ >> shift));
        }
        packet.insert(packet.end(), {0x81, 203, 0, 1, 0xa, 0xb, 0xc, 0xd});
        int bytes = static_cast<int>(packet.size());
        packet.resize(packet.size() + SRTP_MAX_TRAILER_LEN + 4);
        EXPECT_EQ(srtp_protect_rtcp(session_, packet.data(), &bytes), srtp_err_status_ok);
        packet.resize(static_cast<std::size_t>(bytes));
        return packet;
    }

    // As if it had already sent this many times 65,536 packets.
    void wrap(std::uint32_t times) { EXPECT_EQ(srtp_set_stream_roc(session_, ssrc_, times), srtp_err_status_ok); }

private:
    srtp_t session_ = nullptr;
    std::uint32_t ssrc_;
};

class Srtp : public ::testing::TestWithParam<Suite> {
protected:
    static std::unique_ptr<Receiver> receiver_of(Key key, std::uint32_t ssrc = kSsrc) {
        return Receiver::create(ssrc, key, GetParam());
    }
};

Verdict verdict(Receiver& receiver, Bytes packet) { return receiver.unprotect(packet).verdict; }

TEST_P(Srtp, ASenderThatStartsOverIsTakenOnceItHasNotBeenHeard) {
    for (const std::uint32_t wraps : {0U, 3U}) {
        Sender before(GetParam(), key());
        before.wrap(wraps);
        const auto receiver = receiver_of(key());
        for (std::uint16_t n = 30'000; n < 30'300; ++n) {
            ASSERT_EQ(verdict(*receiver, before.send(n)), Verdict::kOk);
        }
        Bytes last_report = before.report();
        EXPECT_EQ(receiver->unprotect_report(last_report).verdict, Verdict::kOk);
        Sender again(GetParam(), key());
        Bytes first = again.send(500);
        EXPECT_NE(verdict(*receiver, first), Verdict::kOk) << "its old packets could be sent again";
        EXPECT_EQ(receiver->unprotect(first, true).verdict, Verdict::kOk);
        EXPECT_EQ(verdict(*receiver, again.send(501)), Verdict::kOk);
        EXPECT_EQ(verdict(*receiver, again.send(502)), Verdict::kOk);
        Bytes report = again.report();
        EXPECT_EQ(receiver->unprotect_report(report).verdict, Verdict::kOk) << "its reports are numbered from the start";
    }
}

TEST_P(Srtp, NoOtherKeyStartsASessionOver) {
    Sender sender(GetParam(), key()), other(GetParam(), key(50));
    const auto receiver = receiver_of(key());
    ASSERT_EQ(verdict(*receiver, sender.send(1000)), Verdict::kOk);
    for (const auto n : std::initializer_list<std::uint16_t>{1, 999, 1001, 40000}) {
        Bytes forged = other.send(n);
        EXPECT_NE(receiver->unprotect(forged, true).verdict, Verdict::kOk) << n;
    }
    Bytes twice = sender.send(1001);
    EXPECT_EQ(verdict(*receiver, twice), Verdict::kOk);
    EXPECT_EQ(receiver->unprotect(twice, true).verdict, Verdict::kReplay) << "what has just come is no new beginning";
}

TEST_P(Srtp, GivesThePacketBackInPlace) {
    Sender sender(GetParam(), key());
    const auto receiver = receiver_of(key());
    auto packet = sender.send(100);
    ASSERT_EQ(packet.size(), 12 + kAudioBytes + voice::srtp::tag_bytes(GetParam()));
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

TEST_P(Srtp, AWrongKeyIsRefused) {
    Sender sender(GetParam(), key(2));
    const auto receiver = receiver_of(key());
    for (std::uint16_t sequence = 0; sequence < 200; ++sequence) {
        EXPECT_EQ(verdict(*receiver, sender.send(sequence)), Verdict::kAuthFailed);
    }
}

TEST_P(Srtp, AForgeryHarmsNobody) {
    Sender sender(GetParam(), key());
    Sender forger(GetParam(), key(2));
    const auto receiver = receiver_of(key());
    for (std::uint16_t sequence = 0; sequence < 200; ++sequence) {
        EXPECT_EQ(verdict(*receiver, forger.send(static_cast<std::uint16_t>(sequence * 311))), Verdict::kAuthFailed);
        EXPECT_EQ(verdict(*receiver, sender.send(sequence)), Verdict::kOk);
    }
}

TEST_P(Srtp, EveryBitIsAuthenticated) {
    Sender sender(GetParam(), key());
    const auto receiver = receiver_of(key());
    const auto packet = sender.send(1);
    for (std::size_t bit = 0; bit < 8 * packet.size(); bit += 5) {
        auto changed = packet;
        changed[bit / 8] = static_cast<std::uint8_t>(changed[bit / 8] ^ (1U << bit % 8));
        EXPECT_NE(verdict(*receiver, changed), Verdict::kOk) << bit;
    }
    EXPECT_EQ(verdict(*receiver, packet), Verdict::kOk);
}

TEST_P(Srtp, AReplayIsRefused) {
    Sender sender(GetParam(), key());
    const auto receiver = receiver_of(key());
    std::vector<Bytes> packets;
    for (std::uint16_t sequence = 0; sequence < 300; ++sequence) {
        packets.push_back(sender.send(sequence));
        EXPECT_EQ(verdict(*receiver, packets.back()), Verdict::kOk);
    }
    EXPECT_EQ(verdict(*receiver, packets[299]), Verdict::kReplay) << "the latest";
    EXPECT_EQ(verdict(*receiver, packets[200]), Verdict::kReplay) << "in the window";
    EXPECT_EQ(verdict(*receiver, packets[0]), Verdict::kReplay) << "before the window";
}

TEST_P(Srtp, PacketsOutOfOrderAreFine) {
    Sender sender(GetParam(), key());
    const auto receiver = receiver_of(key());
    std::vector<Bytes> packets;
    for (std::uint16_t sequence = 0; sequence < 64; ++sequence) {
        packets.push_back(sender.send(sequence));
    }
    std::reverse(packets.begin(), packets.end());
    for (const auto& packet : packets) {
        EXPECT_EQ(verdict(*receiver, packet), Verdict::kOk);
    }
}

TEST_P(Srtp, NoTruncationIsTaken) {
    Sender sender(GetParam(), key());
    const auto receiver = receiver_of(key());
    const auto packet = sender.send(1);
    for (std::size_t bytes = 0; bytes < packet.size(); ++bytes) {
        auto cut = packet;
        cut.resize(bytes);
        const auto found = verdict(*receiver, cut);
        EXPECT_NE(found, Verdict::kOk) << bytes;
        if (bytes < 12 + voice::srtp::tag_bytes(GetParam())) {
            EXPECT_EQ(found, Verdict::kMalformed) << bytes;
        }
    }
    EXPECT_EQ(verdict(*receiver, packet), Verdict::kOk);
}

TEST_P(Srtp, HeadersThatPointPastTheEndAreRefused) {
    const auto receiver = receiver_of(key());
    for (const auto first : {0x8f, 0x90, 0x9f, 0x40, 0x00}) {
        Bytes packet{static_cast<std::uint8_t>(first), 96, 0, 1, 0, 0, 0, 0, 0xa, 0xb, 0xc, 0xd};
        packet.resize(24, 0xff);
        EXPECT_NE(verdict(*receiver, packet), Verdict::kOk) << first;
    }
}

TEST_P(Srtp, PlainRtpIsRefused) {
    const auto receiver = receiver_of(key());
    Bytes packet{0x80, 96, 0, 1, 0, 0, 0, 0, 0xa, 0xb, 0xc, 0xd};
    packet.resize(12 + kAudioBytes);
    EXPECT_EQ(verdict(*receiver, packet), Verdict::kAuthFailed);
}

TEST_P(Srtp, AnotherSessionsPacketIsRefused) {
    Sender sender(GetParam(), key(), kSsrc + 1);
    const auto receiver = receiver_of(key());
    EXPECT_EQ(verdict(*receiver, sender.send(1)), Verdict::kMalformed);
}

TEST_P(Srtp, TheSequenceMayWrap) {
    Sender sender(GetParam(), key());
    const auto receiver = receiver_of(key());
    for (std::uint32_t n = 65'000; n < 66'000; ++n) {
        ASSERT_EQ(verdict(*receiver, sender.send(static_cast<std::uint16_t>(n))), Verdict::kOk) << n;
    }
}

// The host was restarted, or the load balancer moved the session.
TEST_P(Srtp, ALateReceiverFindsTheCount) {
    for (const std::uint32_t wraps : {1U, 2U, 5U, static_cast<std::uint32_t>(Receiver::kWrapsTried)}) {
        Sender sender(GetParam(), key());
        sender.wrap(wraps);
        const auto receiver = receiver_of(key());
        for (std::uint32_t n = 65'400; n < 65'700; ++n) {
            ASSERT_EQ(verdict(*receiver, sender.send(static_cast<std::uint16_t>(n))), Verdict::kOk) << wraps << ", " << n;
        }
    }
}

// An attacker replays an old packet first: for a second nothing is decrypted, then the sender is found again.
TEST_P(Srtp, ARecordedPacketDelaysALateReceiverByASecond) {
    Sender sender(GetParam(), key());
    sender.wrap(3);
    const auto recorded = sender.send(10);
    sender.wrap(5);
    const auto receiver = receiver_of(key());
    EXPECT_EQ(verdict(*receiver, recorded), Verdict::kOk);
    std::uint32_t refused = 0;
    for (std::uint16_t sequence = 100; sequence < 400; ++sequence) {
        refused += verdict(*receiver, sender.send(sequence)) == Verdict::kOk ? 0 : 1;
    }
    EXPECT_LE(refused, Receiver::kFailuresPerSearch);
    EXPECT_NE(verdict(*receiver, recorded), Verdict::kOk) << "and not again";
}

TEST_P(Srtp, SessionsAreApart) {
    Sender one(GetParam(), key(1), 1);
    Sender two(GetParam(), key(2), 2);
    const auto receiver_one = receiver_of(key(1), 1);
    const auto receiver_two = receiver_of(key(2), 2);
    EXPECT_EQ(verdict(*receiver_one, one.send(9)), Verdict::kOk);
    EXPECT_EQ(verdict(*receiver_two, two.send(9)), Verdict::kOk);
}

TEST_P(Srtp, HeadersOfEveryLengthAreTaken) {
    Sender sender(GetParam(), key());
    const auto receiver = receiver_of(key());
    std::uint16_t sequence = 1;
    for (const std::size_t sources : {0U, 1U, 15U}) {
        for (const std::size_t extension : {0U, 4U, 12U}) {
            auto packet = sender.send(sequence++, 9, sources, extension);
            const auto found = receiver->unprotect(packet);
            ASSERT_EQ(found.verdict, Verdict::kOk) << sources << ", " << extension;
            EXPECT_EQ(std::count(found.packet.end() - kAudioBytes, found.packet.end(), 9), kAudioBytes);
        }
    }
}

TEST_P(Srtp, ReportsAreOpenedOnce) {
    Sender sender(GetParam(), key());
    const auto receiver = receiver_of(key());
    for (int n = 0; n < 200; ++n) {
        const auto report = sender.report();
        auto packet = report;
        const auto found = receiver->unprotect_report(packet);
        ASSERT_EQ(found.verdict, Verdict::kOk) << n;
        EXPECT_EQ(voice::rtp::notice_of(found.packet, kSsrc), voice::rtp::Notice::kBye);
        packet = report;
        EXPECT_EQ(receiver->unprotect_report(packet).verdict, Verdict::kReplay);
    }
}

TEST_P(Srtp, EveryBitOfAReportIsAuthenticated) {
    Sender sender(GetParam(), key());
    const auto receiver = receiver_of(key());
    const auto report = sender.report();
    for (std::size_t bit = 0; bit < 8 * report.size(); ++bit) {
        auto packet = report;
        packet[bit / 8] = static_cast<std::uint8_t>(packet[bit / 8] ^ (1U << bit % 8));
        EXPECT_NE(receiver->unprotect_report(packet).verdict, Verdict::kOk) << bit;
    }
    for (std::size_t bytes = 0; bytes < report.size(); ++bytes) {
        auto packet = report;
        packet.resize(bytes);
        EXPECT_NE(receiver->unprotect_report(packet).verdict, Verdict::kOk) << bytes;
    }
    auto packet = report;
    EXPECT_EQ(receiver->unprotect_report(packet).verdict, Verdict::kOk);
}

TEST_P(Srtp, AKeyIsOfItsSuiteAlone) {
    Sender sender(GetParam(), key());
    const auto other = GetParam() == Suite::kAeadAes128Gcm ? Suite::kAesCm128HmacSha1_80 : Suite::kAeadAes128Gcm;
    const auto receiver = Receiver::create(kSsrc, key(), other);
    EXPECT_EQ(verdict(*receiver, sender.send(1)), Verdict::kAuthFailed);
}

INSTANTIATE_TEST_SUITE_P(Of, Srtp, ::testing::Values(Suite::kAesCm128HmacSha1_80, Suite::kAeadAes128Gcm));

}  // namespace
