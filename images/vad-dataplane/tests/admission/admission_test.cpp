// Admission with a real state store and a test gate.
#include "admission/admission.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <ctime>
#include <map>
#include <mutex>

#include "admission/request_queue.hpp"
#include "support/store.hpp"

namespace {

using namespace std::chrono_literals;
using namespace voice::admission;
using voice::test::eventually;

const std::string kKey = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwd";

class MapGate final : public Gate {
public:
    bool admit(std::uint32_t ssrc, std::uint32_t slot) override {
        EXPECT_EQ(slot, ssrc + 1) << "not what Sessions::open() returned";
        return put(ssrc, false);
    }
    bool block(std::uint32_t ssrc) override { return put(ssrc, true); }
    bool remove(std::uint32_t ssrc) override {
        const std::scoped_lock lock(mutex_);
        entries_.erase(ssrc);
        return true;
    }

    std::optional<bool> blocked(std::uint32_t ssrc) {
        const std::scoped_lock lock(mutex_);
        const auto found = entries_.find(ssrc);
        return found == entries_.end() ? std::nullopt : std::optional(found->second);
    }
    bool is_admitted(std::uint32_t ssrc) { return blocked(ssrc) == false; }
    bool is_blocked(std::uint32_t ssrc) { return blocked(ssrc) == true; }
    std::atomic<std::size_t> room{100'000};

private:
    bool put(std::uint32_t ssrc, bool blocked) {
        const std::scoped_lock lock(mutex_);
        if (entries_.size() >= room) {
            return false;
        }
        entries_[ssrc] = blocked;
        return true;
    }

    std::mutex mutex_;
    std::map<std::uint32_t, bool> entries_;
};

class SessionList final : public Sessions {
public:
    explicit SessionList(MapGate& gate) : gate_(gate) {}
    std::optional<std::uint32_t> open(std::uint32_t ssrc, const SessionRecord& record) override {
        EXPECT_FALSE(gate_.is_admitted(ssrc)) << "packets come before their session is there";
        const std::scoped_lock lock(mutex_);
        if (!has_room) {
            return std::nullopt;
        }
        open_[ssrc] = {.encrypted = record.srtp_key.has_value(), .gateway = record.gateway, .news = {ssrc, 0ns, false, false}};
        return ssrc + 1;
    }
    void update(std::uint32_t ssrc, const SessionRecord& record) override {
        const std::scoped_lock lock(mutex_);
        open_.at(ssrc).gateway = record.gateway;
    }
    void close(std::uint32_t ssrc) override {
        EXPECT_FALSE(gate_.is_admitted(ssrc)) << "packets come after their session is gone";
        const std::scoped_lock lock(mutex_);
        EXPECT_EQ(open_.erase(ssrc), 1U);
    }
    void each(const std::function<void(const Session&)>& callback) override {
        const std::scoped_lock lock(mutex_);
        for (const auto& [ssrc, entry] : open_) {
            callback(entry.news);
        }
    }
    std::optional<bool> encrypted(std::uint32_t ssrc) {
        const std::scoped_lock lock(mutex_);
        const auto found = open_.find(ssrc);
        return found == open_.end() ? std::nullopt : std::optional(found->second.encrypted);
    }
    std::uint32_t gateway(std::uint32_t ssrc) {
        const std::scoped_lock lock(mutex_);
        return open_.at(ssrc).gateway;
    }
    void silence(std::uint32_t ssrc, std::chrono::nanoseconds silent_for) {
        const std::scoped_lock lock(mutex_);
        open_.at(ssrc).news.silent_for = silent_for;
    }
    void end(std::uint32_t ssrc) {
        const std::scoped_lock lock(mutex_);
        open_.at(ssrc).news.ended = true;
    }
    std::size_t size() {
        const std::scoped_lock lock(mutex_);
        return open_.size();
    }
    std::atomic<bool> has_room{true};

private:
    struct Entry {
        bool encrypted;
        std::uint32_t gateway;
        Session news;
    };
    MapGate& gate_;
    std::mutex mutex_;
    std::map<std::uint32_t, Entry> open_;
};

class AdmissionTest : public ::testing::Test {
protected:
    void start(Settings settings) {
        voice::test::add_vad_user(store_);
        auto endpoint = voice::test::vad_endpoint(store_, folder_);
        endpoint.timeout = 200ms;
        admission_ = std::make_unique<Admission>(settings, endpoint, queue_, gate_, sessions_);
        admission_->start();
    }
    void SetUp() override { start({.block_for = 2s, .silent_after = 1s, .sweep_every = 20ms, .sweeps_per_review = 2}); }
    void TearDown() override { admission_->stop(); }

    void create(std::uint32_t ssrc, std::string_view kind = "gateway", std::string_view key = "",
                std::int64_t lifetime_s = 100) {
        if (!key.empty()) {
            store_.run({"SET", "srtp:" + std::to_string(ssrc), key});
        }
        store_.run({"HSET", session_key(ssrc), "state", "open", "kind", kind, "gateway", "10.0.0.1", "expires_at",
                    std::to_string(std::time(nullptr) + lifetime_s)});
    }
    void set(std::uint32_t ssrc, std::string_view field, std::string_view value) {
        store_.run({"HSET", session_key(ssrc), field, value});
    }
    const Counters& counted() { return admission_->counters(); }

    voice::test::Folder folder_;
    voice::test::Store store_;
    RequestQueue queue_;
    MapGate gate_;
    SessionList sessions_{gate_};
    std::unique_ptr<Admission> admission_;
};

TEST_F(AdmissionTest, AKnownSessionIsAdmitted) {
    create(1);
    create(2, "external", kKey);
    EXPECT_TRUE(queue_.offer(1));
    EXPECT_TRUE(queue_.offer(2));
    ASSERT_TRUE(eventually([&] { return gate_.is_admitted(1) && gate_.is_admitted(2); }));
    EXPECT_EQ(sessions_.encrypted(1), false);
    EXPECT_EQ(sessions_.encrypted(2), true);
    EXPECT_EQ(counted().admitted, 2U);
    EXPECT_EQ(counted().sessions, 2U);
}

TEST_F(AdmissionTest, WhatAHostWritesOfASessionChangesNoRecord) {
    create(1);
    store_.run({"HSET", "shipped:1", "state", "closed", "gateway", "10.9.9.9", "chunks", "1"});
    store_.run({"HSET", "shipped:2", "state", "open", "kind", "gateway", "gateway", "10.9.9.9", "expires_at",
                std::to_string(std::time(nullptr) + 100)});
    EXPECT_TRUE(queue_.offer(1));
    EXPECT_TRUE(queue_.offer(2));
    ASSERT_TRUE(eventually([&] { return gate_.is_admitted(1) && gate_.is_blocked(2); }));
    EXPECT_EQ(sessions_.gateway(1), htonl(0x0a000001));
}

TEST_F(AdmissionTest, TheStoreIsReachedBeforeTheFirstCaller) {
    EXPECT_TRUE(eventually([&] { return admission_->store().connected.load(); }));
}

TEST_F(AdmissionTest, AnUnknownOneIsBlockedForAWhile) {
    EXPECT_TRUE(queue_.offer(7));
    ASSERT_TRUE(eventually([&] { return gate_.is_blocked(7); }));
    EXPECT_EQ(sessions_.size(), 0U);
    EXPECT_TRUE(eventually([&] { return !gate_.blocked(7); })) << "it stays blocked";
    create(7);
    EXPECT_TRUE(queue_.offer(7));
    EXPECT_TRUE(eventually([&] { return gate_.is_admitted(7); }));
}

TEST_F(AdmissionTest, ARecordThatMakesNoSenseIsCountedAndBlocked) {
    create(8, "external", "short");
    EXPECT_TRUE(queue_.offer(8));
    ASSERT_TRUE(eventually([&] { return gate_.is_blocked(8); }));
    EXPECT_EQ(counted().malformed, 1U);
}

TEST_F(AdmissionTest, SomethingElseUnderTheKeyAdmitsNobody) {
    store_.run({"SET", "session:9", "open"});
    EXPECT_TRUE(queue_.offer(9));
    EXPECT_TRUE(eventually([&] { return counted().unanswered == 1; }));
    EXPECT_FALSE(gate_.blocked(9));
}

TEST_F(AdmissionTest, AskingTwiceOpensOnce) {
    create(1);
    EXPECT_TRUE(queue_.offer(1));
    EXPECT_TRUE(queue_.offer(1));
    ASSERT_TRUE(eventually([&] { return counted().requests == 2 && gate_.is_admitted(1); }));
    EXPECT_EQ(counted().admitted, 1U);
}

TEST_F(AdmissionTest, ASilentSessionIsRemoved) {
    create(1);
    EXPECT_TRUE(queue_.offer(1));
    ASSERT_TRUE(eventually([&] { return gate_.is_admitted(1); }));
    sessions_.silence(1, 1s);
    EXPECT_TRUE(eventually([&] { return sessions_.size() == 0; }));
    EXPECT_FALSE(gate_.blocked(1));
    EXPECT_EQ(counted().silent, 1U);
    EXPECT_TRUE(queue_.offer(1));
    EXPECT_TRUE(eventually([&] { return gate_.is_admitted(1); })) << "and comes back when it speaks";
}

TEST_F(AdmissionTest, ASessionWhoseSenderSaysGoodbyeIsRemovedAndBlocked) {
    create(1);
    EXPECT_TRUE(queue_.offer(1));
    ASSERT_TRUE(eventually([&] { return gate_.is_admitted(1); }));
    sessions_.end(1);
    EXPECT_TRUE(eventually([&] { return gate_.is_blocked(1); })) << "what comes behind would open it anew";
    EXPECT_EQ(sessions_.size(), 0U);
    EXPECT_EQ(counted().ended, 1U);
}

TEST_F(AdmissionTest, ARecordThatChangesIsFollowed) {
    for (const std::uint32_t ssrc : {1U, 2U, 3U}) {
        create(ssrc, "gateway", "", 5);
        EXPECT_TRUE(queue_.offer(ssrc));
        ASSERT_TRUE(eventually([&] { return gate_.is_admitted(ssrc); }));
    }
    set(1, "state", "closed");
    store_.run({"DEL", session_key(2)});
    set(3, "gateway", "10.0.0.2");
    set(3, "expires_at", std::to_string(std::time(nullptr) + 100));
    EXPECT_TRUE(eventually([&] { return sessions_.size() == 1; }));
    EXPECT_EQ(counted().closed, 2U);
    EXPECT_TRUE(eventually([&] { return sessions_.gateway(3) == htonl(0x0a000002); }));
    std::this_thread::sleep_for(6s);
    EXPECT_EQ(sessions_.size(), 1U) << "its time has been extended";
}

TEST_F(AdmissionTest, ASessionThatNoGatewayHasOpenedYetIsAskedAboutAgain) {
    create(1);
    set(1, "gateway", "");
    EXPECT_TRUE(queue_.offer(1));
    EXPECT_TRUE(eventually([&] { return counted().refused == 1; }));
    EXPECT_FALSE(gate_.blocked(1));
    set(1, "gateway", "10.0.0.1");
    EXPECT_TRUE(queue_.offer(1));
    EXPECT_TRUE(eventually([&] { return gate_.is_admitted(1); }));
}

TEST_F(AdmissionTest, ASessionEndsWithItsTime) {
    create(1, "gateway", "", 5);
    EXPECT_TRUE(queue_.offer(1));
    ASSERT_TRUE(eventually([&] { return gate_.is_admitted(1); }));
    EXPECT_TRUE(eventually([&] { return sessions_.size() == 0; }));
    EXPECT_EQ(counted().expired, 1U);
}

TEST_F(AdmissionTest, WithoutRoomNobodyIsAdmittedOrBlocked) {
    create(1);
    sessions_.has_room = false;
    EXPECT_TRUE(queue_.offer(1));
    ASSERT_TRUE(eventually([&] { return counted().no_room == 1; }));
    sessions_.has_room = true;
    gate_.room = 0;
    EXPECT_TRUE(queue_.offer(1));
    ASSERT_TRUE(eventually([&] { return counted().no_room == 2; }));
    EXPECT_EQ(sessions_.size(), 0U) << "a session without an entry in the gate";
    EXPECT_FALSE(gate_.blocked(1));
}

TEST_F(AdmissionTest, DrainingLetsNobodyNewInAndKeepsTheRest) {
    create(1);
    create(2);
    EXPECT_TRUE(queue_.offer(1));
    ASSERT_TRUE(eventually([&] { return gate_.is_admitted(1); }));
    admission_->drain();
    EXPECT_TRUE(queue_.offer(2));
    ASSERT_TRUE(eventually([&] { return counted().no_room == 1; }));
    EXPECT_FALSE(gate_.blocked(2));
    EXPECT_TRUE(gate_.is_admitted(1));
}

TEST_F(AdmissionTest, SurvivesARestartOfTheStore) {
    create(1);
    EXPECT_TRUE(queue_.offer(1));
    ASSERT_TRUE(eventually([&] { return gate_.is_admitted(1); }));
    store_.stop();
    EXPECT_TRUE(queue_.offer(2));
    // At least: on a slow machine the admitted session is looked up again meanwhile.
    ASSERT_TRUE(eventually([&] { return counted().unanswered >= 1; }));
    EXPECT_FALSE(gate_.blocked(2)) << "a store that does not answer says nothing of a session";
    EXPECT_TRUE(gate_.is_admitted(1));
    store_.start();
    voice::test::add_vad_user(store_);
    create(2);
    EXPECT_TRUE(eventually([&] {
        EXPECT_TRUE(queue_.offer(2));
        return gate_.is_admitted(2);
    }));
    EXPECT_EQ(admission_->store().connects, 2U);
}

TEST_F(AdmissionTest, AStoreThatStandsStillHoldsNothingUp) {
    create(1);
    EXPECT_TRUE(queue_.offer(1));
    ASSERT_TRUE(eventually([&] { return gate_.is_admitted(1); }));
    store_.freeze();
    EXPECT_TRUE(queue_.offer(2));
    sessions_.silence(1, 1s);
    EXPECT_TRUE(eventually([&] { return sessions_.size() == 0; }));
    store_.thaw();
}

TEST_F(AdmissionTest, AThousandSessionsInABurst) {
    for (std::uint32_t ssrc = 0; ssrc < 1000; ++ssrc) {
        create(ssrc);
    }
    for (std::uint32_t ssrc = 0; ssrc < 1000; ++ssrc) {
        EXPECT_TRUE(queue_.offer(ssrc));
    }
    EXPECT_TRUE(eventually([&] { return sessions_.size() == 1000; }));
}

TEST(RequestQueue, IsBoundedAndKeepsItsOrder) {
    RequestQueue queue;
    for (std::uint32_t n = 0; n < RequestQueue::kMax; ++n) {
        EXPECT_TRUE(queue.offer(n));
    }
    EXPECT_FALSE(queue.offer(0));
    std::vector<std::uint32_t> taken(RequestQueue::kMax + 1);
    EXPECT_EQ(queue.wait(std::span(taken).first(10), 0ms), 10U);
    EXPECT_TRUE(queue.offer(99'999));
    EXPECT_EQ(queue.wait(taken, 0ms), RequestQueue::kMax - 9);
    EXPECT_EQ(taken.front(), 10U);
    EXPECT_EQ(taken[RequestQueue::kMax - 10], 99'999U);
    EXPECT_EQ(queue.wait(taken, 10ms), 0U);
}

}  // namespace
