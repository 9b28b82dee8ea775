#include "admission/session_record.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <string>

namespace {

using namespace voice::admission;
using voice::valkey::Fields;

constexpr std::int64_t kNow = 1'700'000'000;
const std::string kLater = std::to_string(kNow + 1);
// The bytes 0 to 29.
const std::string kKey = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwd";
// Fields are views: their text must outlive them.
const std::string kShort = kKey.substr(1);
const std::string kLong = kKey + "AAAA";
const std::string kPadded = kKey.substr(1) + "=";
const std::string kGcmKey = kKey.substr(0, 37) + "w==";
const std::string kNoBase64 = kKey.substr(1) + "-";

Fields record(std::string_view kind, std::string_view key, std::string_view state = "open",
              std::string_view expires = kLater) {
    return {{"state", state}, {"kind", kind},          {"srtp_key", key}, {"expires_at", expires},
            {"language", "en"}, {"gateway", "10.0.0.9"}};
}

TEST(SessionRecord, KeyIsTheSsrcInDecimal) { EXPECT_EQ(session_key(0xffffffff), "session:4294967295"); }

TEST(SessionRecord, FromOutsideHasItsKey) {
    const auto found = read_session(record("external", kKey), kNow);
    const auto* session = std::get_if<SessionRecord>(&found);
    ASSERT_NE(session, nullptr);
    ASSERT_TRUE(session->srtp_key);
    for (std::size_t i = 0; i < voice::srtp::kKeyBytes; ++i) {
        EXPECT_EQ((*session->srtp_key)[i], i);
    }
    EXPECT_EQ(session->expires_at, kNow + 1);
}

TEST(SessionRecord, AllCharactersOfBase64AreRead) {
    const auto found = read_session(record("external", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmn"), kNow);
    EXPECT_TRUE(std::holds_alternative<SessionRecord>(found));
    const auto rest = read_session(record("external", "opqrstuvwxyz0123456789+/+/+/+/+/+/+/+/+/"), kNow);
    ASSERT_TRUE(std::holds_alternative<SessionRecord>(rest));
    EXPECT_EQ((*std::get<SessionRecord>(rest).srtp_key)[29], 0xbf);  // "+/+/" is fb ff bf
}

TEST(SessionRecord, AKeyOf28BytesIsOfAesGcm) {
    const auto found = read_session(record("external", kGcmKey), kNow);
    ASSERT_TRUE(std::holds_alternative<SessionRecord>(found));
    const auto& session = std::get<SessionRecord>(found);
    EXPECT_EQ(session.srtp_suite, voice::srtp::Suite::kAeadAes128Gcm);
    for (std::size_t i = 0; i < voice::srtp::kKeyBytes; ++i) {
        EXPECT_EQ((*session.srtp_key)[i], i < 28 ? i : 0) << i;
    }
    const auto other = read_session(record("external", kKey), kNow);
    EXPECT_EQ(std::get<SessionRecord>(other).srtp_suite, voice::srtp::Suite::kAesCm128HmacSha1_80);
}

TEST(SessionRecord, FromTheGatewayHasNone) {
    const auto found = read_session(record("gateway", ""), kNow);
    ASSERT_TRUE(std::holds_alternative<SessionRecord>(found));
    EXPECT_FALSE(std::get<SessionRecord>(found).srtp_key);
    EXPECT_EQ(std::get<SessionRecord>(found).gateway, htonl(0x0a000009));
}

TEST(SessionRecord, ANewSessionBeginsAtItsFirstFrame) {
    const auto found = read_session(record("gateway", ""), kNow);
    EXPECT_EQ(std::get<SessionRecord>(found).progress.next_frame, 0U);
    EXPECT_EQ(std::get<SessionRecord>(found).progress.chunks, 0U);
}

TEST(SessionRecord, ASessionThatWasHeardBeforeGoesOnAfterItsLastChunk) {
    Fields fields = record("gateway", "");
    const auto seen_at = std::to_string(kNow - 3);
    fields.insert(fields.end(), {{"chunks", "12"}, {"last_sequence", "400"}, {"seen_at", seen_at}});
    const auto found = read_session(fields, kNow);
    const auto& progress = std::get<SessionRecord>(found).progress;
    EXPECT_EQ(progress.next_frame, 400U + 50 * (3 + 2)) << "three seconds have passed, and the record may be two old";
    EXPECT_EQ(progress.chunks, 12U);
    EXPECT_EQ(progress.last_sequence, 400U);
}

TEST(SessionRecord, TellsWhereTheSessionsClockBegan) {
    Fields fields = record("gateway", "");
    EXPECT_FALSE(std::get<SessionRecord>(read_session(fields, kNow)).begins_at);
    fields.emplace_back("begins_at", "4294967295");
    EXPECT_EQ(std::get<SessionRecord>(read_session(fields, kNow)).begins_at, 4294967295U);
}

TEST(SessionRecord, SaysWhatItsPacketsHold) {
    Fields fields = record("gateway", "");
    EXPECT_EQ(std::get<SessionRecord>(read_session(fields, kNow)).media, voice::media::Description{});
    fields.emplace_back("media", "8 PCMA/8000/1 30");
    const auto media = std::get<SessionRecord>(read_session(fields, kNow)).media;
    EXPECT_EQ(media, (voice::media::Description{8, voice::media::Codec::kPcma, 8000, 1, 30}));
}

struct Refused {
    const char* name;
    Fields fields;
    Refusal refusal;
};

class RefusedRecord : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedRecord, IsRefused) {
    const auto found = read_session(GetParam().fields, kNow);
    ASSERT_TRUE(std::holds_alternative<Refusal>(found));
    EXPECT_EQ(std::get<Refusal>(found), GetParam().refusal);
}

INSTANTIATE_TEST_SUITE_P(Each, RefusedRecord, ::testing::Values(
    Refused{"NoSuchSession", {}, Refusal::kUnknown},
    Refused{"Closed", record("gateway", "", "closed"), Refusal::kClosed},
    Refused{"WithoutAState", {{"kind", "gateway"}, {"expires_at", kLater}}, Refusal::kClosed},
    Refused{"Expired", record("gateway", "", "open", "1700000000"), Refusal::kExpired},
    Refused{"WithoutAnExpiry", record("gateway", "", "open", ""), Refusal::kMalformed},
    Refused{"ExpiryIsNoNumber", record("gateway", "", "open", "1800000000.5"), Refusal::kMalformed},
    Refused{"ExpiryIsTooLarge", record("gateway", "", "open", "99999999999999999999"), Refusal::kMalformed},
    Refused{"WithoutAGateway", {{"state", "open"}, {"kind", "gateway"}, {"expires_at", kLater}}, Refusal::kNotYet},
    Refused{"GatewayIsNoAddress",
            {{"state", "open"}, {"kind", "gateway"}, {"expires_at", kLater}, {"gateway", "gw"}}, Refusal::kMalformed},
    Refused{"MediaThatIsNotTaken",
            {{"state", "open"}, {"kind", "gateway"}, {"expires_at", kLater}, {"gateway", "10.0.0.9"}, {"media", "9 G722/8000/1 20"}},
            Refusal::kMalformed},
    Refused{"UnknownKind", record("internal", ""), Refusal::kMalformed},
    Refused{"WithoutAKind", {{"state", "open"}, {"expires_at", kLater}}, Refusal::kMalformed},
    Refused{"ExternalWithoutAKey", record("external", ""), Refusal::kMalformed},
    Refused{"GatewayWithAKey", record("gateway", kKey), Refusal::kMalformed},
    Refused{"GatewayWithABrokenKey", record("gateway", "x"), Refusal::kMalformed},
    Refused{"KeyIsTooShort", record("external", kShort), Refusal::kMalformed},
    Refused{"KeyIsTooLong", record("external", kLong), Refusal::kMalformed},
    Refused{"KeyIsPadded", record("external", kPadded), Refusal::kMalformed},
    Refused{"KeyIsNoBase64", record("external", kNoBase64), Refusal::kMalformed}),
    [](const ::testing::TestParamInfo<Refused>& each) { return std::string(each.param.name); });

}  // namespace
