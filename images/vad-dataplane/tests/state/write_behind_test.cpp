// Rows of a session table written to a real state store, with the contract's permissions of the VAD tier's user.
#include "state/write_behind.hpp"

#include <gtest/gtest.h>

#include <ctime>
#include <map>

#include "pipeline/state_file.hpp"
#include "state/fixture.hpp"
#include "support/store.hpp"

namespace voice::state {
namespace {

using namespace std::chrono_literals;
using test::Store;

std::int64_t monotonic_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

class WriteBehindTest : public ::testing::Test {
protected:
    void SetUp() override { test::add_vad_user(store_); }

    void put(std::uint32_t ssrc, const SessionState& state, std::chrono::nanoseconds keep = 1h) {
        table_.put(ssrc, to_value(state), static_cast<std::uint64_t>(monotonic_ns() + keep.count()));
    }
    std::map<std::string, std::string> hash(const std::string& key) {
        valkey::Client client(store_.endpoint());
        client.append({"HGETALL", key});
        const auto replies = client.exchange();
        std::map<std::string, std::string> found;
        for (const auto& [name, value] : valkey::fields_of(*replies->front())) {
            found.emplace(name, value);
        }
        return found;
    }

    long long lifetime_s(const std::string& key) {
        valkey::Client client(store_.endpoint());
        client.append({"TTL", key});
        return client.exchange()->front()->integer;
    }

    Store store_;
    test::Folder folder_;
    TableFile file_;
    SessionTable table_{file_.path(), 1000};
    WriteBehind write_behind_{1s, test::vad_endpoint(store_, folder_), {&table_}};
};

TEST_F(WriteBehindTest, WritesItsOwnHashBesideTheGateways) {
    store_.run({"HSET", "session:7", "state", "open"});
    store_.run({"EXPIRE", "session:7", "3000"});
    put(7, {.chunks = 3, .seen_ns = monotonic_ns() - 5'000'000'000, .last_sequence = 40});
    const auto before = static_cast<double>(std::time(nullptr));
    write_behind_.pass();
    const auto after = static_cast<double>(std::time(nullptr));
    auto found = hash("shipped:7");
    const auto seen_at = std::stod(found["seen_at"]);
    EXPECT_TRUE(before - 7 <= seen_at && seen_at <= after - 4) << seen_at << " is not 5 s before " << before;
    found.erase("seen_at");
    EXPECT_EQ(found, (std::map<std::string, std::string>{{"chunks", "3"}, {"last_sequence", "40"}}));
    EXPECT_EQ(hash("session:7"), (std::map<std::string, std::string>{{"state", "open"}}));
    EXPECT_TRUE(2900 < lifetime_s("shipped:7") && lifetime_s("shipped:7") <= 3000) << lifetime_s("shipped:7");
    EXPECT_EQ(write_behind_.counters().written, 1U);
}

TEST_F(WriteBehindTest, WritesWhereItsTimeBeginsAndWhatWasNotDescribed) {
    store_.run({"HSET", "session:7", "state", "open"});
    put(7, {.seen_ns = monotonic_ns(), .origin = 0xfffffff0, .has_origin = 1, .wrong_payload = 2});
    write_behind_.pass();
    auto found = hash("shipped:7");
    EXPECT_EQ(found["begins_at"], "4294967280");
    EXPECT_EQ(found["wrong_payload"], "2");
    store_.run({"HSET", "session:8", "state", "open"});
    put(8, {.seen_ns = monotonic_ns(), .origin = 5, .has_origin = 0});
    write_behind_.pass();
    EXPECT_FALSE(hash("shipped:8").contains("begins_at")) << "the gateway writes its own to the record";
}

TEST_F(WriteBehindTest, WhatStandsStillIsNotWrittenAgain) {
    store_.run({"HSET", "session:7", "state", "open"});
    SessionState state{.chunks = 1, .seen_ns = monotonic_ns()};
    put(7, state);
    write_behind_.pass();
    write_behind_.pass();
    EXPECT_EQ(write_behind_.counters().written, 1U);
    state.chunks = 2;
    put(7, state);
    write_behind_.pass();
    EXPECT_EQ(write_behind_.counters().written, 2U);
    EXPECT_EQ(hash("shipped:7")["chunks"], "2");
}

TEST_F(WriteBehindTest, BeforeTheFirstChunkThereIsNoLastSequence) {
    store_.run({"HSET", "session:7", "state", "open"});
    put(7, {.packets = 1, .seen_ns = monotonic_ns()});
    write_behind_.pass();
    const auto found = hash("shipped:7");
    EXPECT_TRUE(found.contains("seen_at"));
    EXPECT_FALSE(found.contains("last_sequence"));
}

TEST_F(WriteBehindTest, AHashThatHasExpiredStaysAway) {
    put(7, {.chunks = 1, .seen_ns = monotonic_ns()});
    write_behind_.pass();
    EXPECT_TRUE(hash("session:7").empty());
    EXPECT_TRUE(hash("shipped:7").empty());
    EXPECT_EQ(write_behind_.counters().gone, 1U);
}

TEST_F(WriteBehindTest, ManySessionsTakeSeveralRoundTrips) {
    for (std::uint32_t ssrc = 0; ssrc < 600; ++ssrc) {
        store_.run({"HSET", "session:" + std::to_string(ssrc), "state", "open"});
        put(ssrc, {.chunks = ssrc + 1, .seen_ns = monotonic_ns(), .last_sequence = ssrc});
    }
    write_behind_.pass();
    EXPECT_EQ(write_behind_.counters().written, 600U);
    EXPECT_EQ(hash("shipped:599")["last_sequence"], "599");
}

TEST_F(WriteBehindTest, WhatTheStoreDidNotAnswerIsRepeated) {
    store_.run({"HSET", "session:7", "state", "open"});
    put(7, {.chunks = 1, .seen_ns = monotonic_ns()});
    store_.stop();
    write_behind_.pass();
    EXPECT_EQ(write_behind_.counters().unanswered, 1U);
    store_.start();
    test::add_vad_user(store_);
    store_.run({"HSET", "session:7", "state", "open"});
    EXPECT_TRUE(test::eventually([&] {
        write_behind_.pass();
        return hash("shipped:7")["chunks"] == "1";
    }));
}

TEST_F(WriteBehindTest, WhatTheStoreRefusedIsRepeated) {
    store_.run({"HSET", "session:7", "state", "open"});
    put(7, {.chunks = 1, .seen_ns = monotonic_ns()});
    for (const auto* command : {"ttl", "hset"}) {
        const std::string name(command);
        store_.run({"ACL", "SETUSER", "vad", "-" + name});
        write_behind_.pass();
        store_.run({"ACL", "SETUSER", "vad", "+" + name});
        EXPECT_EQ(write_behind_.counters().written, 0U) << name;
        EXPECT_EQ(write_behind_.counters().gone, 0U) << name;
    }
    EXPECT_EQ(write_behind_.counters().unanswered, 2U);
    write_behind_.pass();
    EXPECT_EQ(write_behind_.counters().written, 1U);
    EXPECT_EQ(hash("shipped:7")["chunks"], "1");
}

TEST_F(WriteBehindTest, TheLastRoundIsAfterTheEnd) {
    store_.run({"HSET", "session:7", "state", "open"});
    write_behind_.start();
    put(7, {.chunks = 5, .seen_ns = monotonic_ns()});
    write_behind_.stop();
    EXPECT_EQ(hash("shipped:7")["chunks"], "5");
}

TEST(StateFile, GoesWithTheProgramAndIsTakenOverWhenItDidNot) {
    const TableFile file;
    { const SessionTable dead(file.path(), 10); }
    {
        pipeline::StateFile again(file.path(), 10);
        again.table().put(1, value_of(1), kLater);
        Value value;
        EXPECT_EQ(SessionTableReader(file.path()).read(1, kNow, value), SessionTableReader::Found::kYes);
    }
    EXPECT_NE(access(file.path().c_str(), F_OK), 0);
}

TEST(StateFile, OfAnotherSizeIsMadeAnewUnlessItIsInUse) {
    const TableFile file;
    {
        const SessionTable other(file.path(), 10);
        EXPECT_THROW(pipeline::StateFile(file.path(), 20), std::runtime_error) << "it has a writer";
    }
    pipeline::StateFile again(file.path(), 20);
    EXPECT_EQ(again.table().size(), 0U);
    EXPECT_GE(again.table().slots(), 40U);
}

}  // namespace
}  // namespace voice::state
