// A host's heartbeats in a real state store, with the contract's permissions of the VAD tier's user.
#include "admission/presence.hpp"

#include <gtest/gtest.h>

#include <map>

#include "support/store.hpp"

namespace voice::admission {
namespace {

using test::Store;

class PresenceTest : public ::testing::Test {
protected:
    void SetUp() override { test::add_vad_user(store_); }

    std::map<std::string, std::string> record() {
        valkey::Client client(store_.endpoint());
        client.append({"HGETALL", "host:vad:i-1"});
        const auto replies = client.exchange();
        std::map<std::string, std::string> found;
        for (const auto& [name, value] : valkey::fields_of(*replies->front())) {
            found.emplace(name, value);
        }
        return found;
    }
    std::int64_t number(std::initializer_list<std::string_view> command) {
        valkey::Client client(store_.endpoint());
        client.append(command);
        return (*client.exchange())[0]->integer;
    }

    Store store_;
    test::Folder folder_;
    Presence::Report report_{.can_flow = true, .draining = false, .free_slots = 7};
    Presence presence_{{"i-1", "10.0.0.9"}, test::vad_endpoint(store_, folder_), [this] { return report_; }};
};

TEST_F(PresenceTest, SaysWhatGatewaysLookFor) {
    presence_.beat();
    auto found = record();
    const auto first = found["heartbeat"];
    found.erase("heartbeat");
    EXPECT_EQ(found, (std::map<std::string, std::string>{
                         {"kind", "vad"}, {"address", "10.0.0.9"}, {"free_slots", "7"}, {"draining", "0"}}));
    EXPECT_EQ(number({"SISMEMBER", "host:vad", "i-1"}), 1);
    EXPECT_GT(number({"TTL", "host:vad:i-1"}), 0) << "a host that dies is forgotten";
    report_.draining = true;
    presence_.beat();
    EXPECT_EQ(record()["draining"], "1");
    EXPECT_NE(record()["heartbeat"], first);
}

TEST_F(PresenceTest, SaysNothingWhilePacketsCannotFlow) {
    report_.can_flow = false;
    presence_.beat();
    EXPECT_TRUE(record().empty());
}

TEST_F(PresenceTest, TakesItselfOutWhenItStops) {
    presence_.start();
    ASSERT_TRUE(test::eventually([this] { return !record().empty(); }));
    presence_.stop();
    EXPECT_TRUE(record().empty());
    EXPECT_EQ(number({"SISMEMBER", "host:vad", "i-1"}), 0);
}

}  // namespace
}  // namespace voice::admission
