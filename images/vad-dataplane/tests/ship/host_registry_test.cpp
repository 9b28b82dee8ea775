// The registry in a real state store, read with the permissions of the VAD tier's user.
#include "ship/host_registry.hpp"

#include <gtest/gtest.h>

#include "support/store.hpp"

namespace {

using namespace std::chrono_literals;
using namespace voice::ship;
using voice::test::eventually;

class HostRegistryTest : public ::testing::Test {
protected:
    void SetUp() override {
        voice::test::add_vad_user(store_);
        start(voice::test::kPatience);
    }
    void start(std::chrono::milliseconds dead_after, std::chrono::milliseconds refresh = 20ms) {
        auto endpoint = voice::test::vad_endpoint(store_, folder_);
        endpoint.timeout = 200ms;
        registry_ = std::make_unique<HostRegistry>(
            HostRegistry::Settings{.refresh = refresh, .dead_after = dead_after, .chunk_port = 5006}, endpoint);
        registry_->start();
    }
    void TearDown() override { registry_->stop(); }

    void beat(const std::string& id, int heartbeat, std::string_view slots = "3", std::string_view kind = "neuron") {
        store_.run({"HSET", "host:asr:" + id, "kind", kind, "address", "10.0.0.1", "free_slots", slots, "draining", "0",
                    "heartbeat", std::to_string(heartbeat)});
        store_.run({"SADD", "host:asr", id});
    }
    const std::vector<Host>& hosts() {
        if (Hosts next = registry_->take()) {
            hosts_ = std::move(next);
        }
        return *hosts_;
    }
    std::size_t size() { return hosts().size(); }

    voice::test::Folder folder_;
    voice::test::Store store_;
    std::unique_ptr<HostRegistry> registry_;
    Hosts hosts_ = std::make_shared<const std::vector<Host>>();
};

TEST_F(HostRegistryTest, FindsHostsAndTheirChanges) {
    EXPECT_EQ(size(), 0U);
    beat("i-1", 1);
    ASSERT_TRUE(eventually([&] { return size() == 1; }));
    EXPECT_EQ(hosts().front().free_slots, 3U);
    beat("i-1", 2, "1");
    EXPECT_TRUE(eventually([&] { return hosts().front().free_slots == 1; }));
}

TEST_F(HostRegistryTest, AReadingIsTakenOnce) {
    beat("i-1", 1);
    ASSERT_TRUE(eventually([&] { return size() == 1; }));
    registry_->stop();
    static_cast<void>(registry_->take());
    EXPECT_EQ(registry_->take(), nullptr);
}

TEST_F(HostRegistryTest, AHostWhoseHeartStandsStillIsDead) {
    registry_->stop();
    start(2s);
    beat("i-1", 1);
    ASSERT_TRUE(eventually([&] { return size() == 1; }));
    EXPECT_TRUE(eventually([&] { return size() == 0; }));
    beat("i-1", 2);
    EXPECT_TRUE(eventually([&] { return size() == 1; })) << "and lives again with the next beat";
}

TEST_F(HostRegistryTest, AHostWhoseRecordExpiredIsGone) {
    beat("i-1", 1);
    ASSERT_TRUE(eventually([&] { return size() == 1; }));
    store_.run({"DEL", "host:asr:i-1"});
    EXPECT_TRUE(eventually([&] { return size() == 0; }));
    voice::valkey::Client client(store_.endpoint());
    EXPECT_TRUE(eventually([&] {
        client.append({"SCARD", "host:asr"});
        const auto replies = client.exchange();
        return replies && replies->front()->integer == 0;
    })) << "its id stays in the list";
}

TEST_F(HostRegistryTest, ARecordThatMakesNoSenseIsCountedAndHarmsNobody) {
    beat("i-1", 1, "many");
    beat("i-2", 1);
    ASSERT_TRUE(eventually([&] { return size() == 1; }));
    EXPECT_EQ(hosts().front().id, "i-2");
    EXPECT_GT(registry_->counters().malformed, 0U);
}

TEST_F(HostRegistryTest, TheTimeOfAnOutageIsNoHostsSilence) {
    registry_->stop();
    start(2s);
    beat("i-1", 1);
    ASSERT_TRUE(eventually([&] { return size() == 1; }));
    store_.freeze();
    std::this_thread::sleep_for(3s);
    const auto before = registry_->counters().refreshes.load();
    store_.thaw();
    ASSERT_TRUE(eventually([&] { return registry_->counters().refreshes > before; }));
    EXPECT_EQ(size(), 1U);
    EXPECT_TRUE(eventually([&] { return size() == 0; })) << "no beat since then";
}

TEST_F(HostRegistryTest, AnOutageRevivesNoDeadHost) {
    registry_->stop();
    start(2s);
    beat("i-1", 1);
    ASSERT_TRUE(eventually([&] { return size() == 1; }));
    ASSERT_TRUE(eventually([&] { return size() == 0; }));
    store_.freeze();
    ASSERT_TRUE(eventually([&] { return registry_->counters().unanswered > 0; }));
    const auto before = registry_->counters().refreshes.load();
    store_.thaw();
    ASSERT_TRUE(eventually([&] { return registry_->counters().refreshes > before; }));
    EXPECT_EQ(size(), 0U);
}

TEST_F(HostRegistryTest, AHostThatReturnsIsNotRemoved) {
    registry_->stop();
    store_.run({"SADD", "host:asr", "i-1"});
    start(voice::test::kPatience, 3s);
    ASSERT_TRUE(eventually([&] { return registry_->counters().refreshes == 1; }));
    beat("i-1", 1);
    ASSERT_TRUE(eventually([&] { return registry_->counters().refreshes >= 2; }));
    EXPECT_EQ(size(), 1U);
    EXPECT_EQ(registry_->counters().unanswered, 0U);
}

TEST_F(HostRegistryTest, TheLastReadingStaysWhileTheStoreIsAway) {
    registry_->stop();
    start(2s);
    beat("i-1", 1);
    ASSERT_TRUE(eventually([&] { return size() == 1; }));
    store_.stop();
    ASSERT_TRUE(eventually([&] { return registry_->counters().unanswered > 3; }));
    EXPECT_EQ(size(), 1U);
    store_.start();
    const auto before = registry_->counters().refreshes.load();
    voice::test::add_vad_user(store_);
    ASSERT_TRUE(eventually([&] { return registry_->counters().refreshes > before; }));
    EXPECT_EQ(size(), 1U) << "it may not have beaten yet";
    EXPECT_TRUE(eventually([&] { return size() == 0; })) << "the new store knows no host";
    beat("i-1", 2);
    EXPECT_TRUE(eventually([&] { return size() == 1; }));
}

TEST_F(HostRegistryTest, SomethingElseUnderTheKeyIsNoAnswer) {
    beat("i-1", 1);
    ASSERT_TRUE(eventually([&] { return size() == 1; }));
    store_.run({"SET", "host:asr", "x"});
    EXPECT_TRUE(eventually([&] { return registry_->counters().unanswered > 0; }));
    EXPECT_EQ(size(), 1U);
}

}  // namespace
