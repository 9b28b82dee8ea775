// Rows of a session table on their way to a real state store, as the user that the contract lets the VAD tier have.
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

    Store store_;
    test::Folder folder_;
    TableFile file_;
    SessionTable table_{file_.path(), 1000};
    WriteBehind write_behind_{1s, test::vad_endpoint(store_, folder_), {&table_}};
};

TEST_F(WriteBehindTest, WritesItsOwnFieldsBesideTheGateways) {
    store_.run({"HSET", "session:7", "state", "open", "expires_at", "9", "srtp_key", "x"});
    put(7, {.chunks = 3, .seen_ns = monotonic_ns() - 5'000'000'000, .last_sequence = 40});
    const auto before = static_cast<double>(std::time(nullptr));
    write_behind_.pass();
    const auto after = static_cast<double>(std::time(nullptr));
    auto found = hash("session:7");
    const auto seen_at = std::stod(found["seen_at"]);
    EXPECT_TRUE(before - 7 <= seen_at && seen_at <= after - 4) << seen_at << " is not 5 s before " << before;
    found.erase("seen_at");
    EXPECT_EQ(found, (std::map<std::string, std::string>{{"state", "open"}, {"expires_at", "9"}, {"srtp_key", "x"},
                                                         {"chunks", "3"}, {"last_sequence", "40"}}));
    EXPECT_EQ(write_behind_.counters().written, 1U);
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
    EXPECT_EQ(hash("session:7")["chunks"], "2");
}

TEST_F(WriteBehindTest, BeforeTheFirstChunkThereIsNoLastSequence) {
    store_.run({"HSET", "session:7", "state", "open"});
    put(7, {.packets = 1, .seen_ns = monotonic_ns()});
    write_behind_.pass();
    const auto found = hash("session:7");
    EXPECT_TRUE(found.contains("seen_at"));
    EXPECT_FALSE(found.contains("last_sequence"));
}

TEST_F(WriteBehindTest, AHashThatHasExpiredStaysAway) {
    put(7, {.chunks = 1, .seen_ns = monotonic_ns()});
    write_behind_.pass();
    EXPECT_TRUE(hash("session:7").empty());
    EXPECT_EQ(write_behind_.counters().gone, 1U);
}

// Between the question whether the hash is there and the answer to HSET it may expire.
TEST_F(WriteBehindTest, AHashThatExpiresMeanwhileLeavesNothingBehind) {
    std::atomic<bool> over{false};
    std::thread gateway([&] {
        while (!over) {
            store_.run({"HSET", "session:7", "state", "open"});
            store_.run({"DEL", "session:7"});
        }
    });
    SessionState state{.seen_ns = monotonic_ns()};
    for (; write_behind_.counters().gone < 20 || write_behind_.counters().written < 20; ++state.chunks) {
        put(7, state);
        write_behind_.pass();
    }
    over = true;
    gateway.join();
    EXPECT_TRUE(hash("session:7").empty());
}

TEST_F(WriteBehindTest, ManySessionsTakeSeveralRoundTrips) {
    for (std::uint32_t ssrc = 0; ssrc < 600; ++ssrc) {
        store_.run({"HSET", "session:" + std::to_string(ssrc), "state", "open"});
        put(ssrc, {.chunks = ssrc + 1, .seen_ns = monotonic_ns(), .last_sequence = ssrc});
    }
    write_behind_.pass();
    EXPECT_EQ(write_behind_.counters().written, 600U);
    EXPECT_EQ(hash("session:599")["last_sequence"], "599");
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
        return hash("session:7")["chunks"] == "1";
    }));
}

TEST_F(WriteBehindTest, TheLastRoundIsAfterTheEnd) {
    store_.run({"HSET", "session:7", "state", "open"});
    write_behind_.start();
    put(7, {.chunks = 5, .seen_ns = monotonic_ns()});
    write_behind_.stop();
    EXPECT_EQ(hash("session:7")["chunks"], "5");
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
