#include "ship/pinning.hpp"

#include <gtest/gtest.h>

#include "ship/hosts.hpp"

namespace {

using namespace voice::test;
using namespace std::chrono_literals;
using voice::ship::HostKind;
using voice::ship::Pinning;
using voice::ship::read_host;

constexpr auto kNeuron = HostKind::kNeuron;
constexpr auto kGpu = HostKind::kGpu;

class PinningTest : public ::testing::Test {
protected:
    // The id of the session's host; empty if there is none.
    std::string place(std::uint64_t session, bool starts_speech = false) {
        const auto* host = pinning_.host_of(session, starts_speech, now_);
        return host == nullptr ? "" : host->id;
    }
    void update(std::vector<voice::ship::Host> list) { pinning_.update(hosts(std::move(list)), now_); }

    Pinning pinning_;
    Pinning::Clock::time_point now_{};
};

TEST_F(PinningTest, NeuronComesFirst) {
    update({host("gpu", kGpu, 100), host("neuron", kNeuron, 1)});
    EXPECT_EQ(place(1), "neuron");
    EXPECT_EQ(place(2), "gpu") << "the Neuron host has no slot left";
}

TEST_F(PinningTest, HostsWithoutAcceleratorsComeLast) {
    update({host("cpu", HostKind::kCpu, 100), host("gpu", kGpu, 1)});
    EXPECT_EQ(place(1), "gpu");
    EXPECT_EQ(place(2), "cpu");
}

TEST_F(PinningTest, AmongEqualsTheOneWithMostSlots) {
    update({host("a", kNeuron, 5), host("b", kNeuron, 7)});
    EXPECT_EQ(place(1), "b");
    EXPECT_EQ(place(2), "b");
    EXPECT_EQ(place(3), "a") << "slots that were given away count before the next reading";
}

TEST_F(PinningTest, AHostOfOurOwnZoneIsTakenWhileItHasRoom) {
    const auto in = [](voice::ship::Host host, const char* zone) {
        host.zone = zone;
        return host;
    };
    Pinning ours("us-east-1b");
    ours.update(hosts({in(host("far", kNeuron, 100), "us-east-1a"), in(host("near", kNeuron, 2), "us-east-1b"),
                       in(host("gpu", kGpu, 100), "us-east-1b"), host("untold", kNeuron, 99)}),
                now_);
    const auto place = [&](std::uint64_t session) { return ours.host_of(session, false, now_)->id; };
    EXPECT_EQ(place(1), "near");
    EXPECT_EQ(place(2), "near");
    EXPECT_EQ(place(3), "far") << "ours is full: another zone before another kind";
    ours.update(hosts({in(draining(host("near", kNeuron, 2)), "us-east-1b"), in(host("far", kNeuron, 9), "us-east-1a")}),
                now_);
    EXPECT_EQ(place(4), "far") << "one that drains takes nobody";

    update({in(host("a", kNeuron, 1), ""), in(host("b", kNeuron, 2), "us-east-1b")});
    EXPECT_EQ(PinningTest::place(1), "b") << "who knows no zone of its own takes the one with most slots";
}

TEST_F(PinningTest, ASessionStays) {
    update({host("a", kNeuron, 1)});
    EXPECT_EQ(place(1), "a");
    update({host("b", kNeuron, 100), host("a", kNeuron, 0)});
    for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(place(1, true), "a");
    }
    EXPECT_EQ(pinning_.moves(), 0U);
}

TEST_F(PinningTest, WithoutASlotThereIsNoHost) {
    EXPECT_EQ(place(1), "");
    update({host("a", kNeuron, 0), draining(host("b", kGpu, 9))});
    EXPECT_EQ(place(1), "");
    EXPECT_EQ(pinning_.sessions(), 0U);
    update({host("a", kNeuron, 1)});
    EXPECT_EQ(place(1), "a");
}

TEST_F(PinningTest, ADeadHostsSessionsMoveAtOnce) {
    update({host("a", kNeuron, 5), host("b", kGpu, 5)});
    EXPECT_EQ(place(1), "a");
    update({host("b", kGpu, 5)});
    EXPECT_EQ(place(1), "b");
    EXPECT_EQ(pinning_.moves(), 1U);
}

TEST_F(PinningTest, ADeadHostsSessionsWaitForOne) {
    update({host("a", kNeuron, 5)});
    EXPECT_EQ(place(1), "a");
    update({});
    EXPECT_EQ(place(1), "");
    update({host("b", kGpu, 5)});
    EXPECT_EQ(place(1), "b");
}

TEST_F(PinningTest, ADrainingHostKeepsTheUtteranceAndLosesTheNext) {
    update({host("a", kNeuron, 5)});
    EXPECT_EQ(place(1), "a");
    update({draining(host("a", kNeuron, 5)), host("b", kGpu, 5)});
    EXPECT_EQ(place(1), "a");
    EXPECT_EQ(place(1, true), "b");
    EXPECT_EQ(place(1), "b");
    EXPECT_EQ(pinning_.moves(), 1U);
}

TEST_F(PinningTest, AHostIsLostWhenItDiesAndNotWhenItHasDrained) {
    update({host("a", kNeuron, 5), host("b", kNeuron, 4), host("c", kGpu, 5)});
    EXPECT_EQ(place(1), "a");
    const auto a = pinning_.number_of(*pinning_.host_of(1, false, now_));
    const auto leaving = draining(host("b", kNeuron, 4));
    EXPECT_FALSE(pinning_.update(hosts({host("a", kNeuron, 5), leaving, host("c", kGpu, 5)}), now_));
    EXPECT_FALSE(pinning_.update(hosts({host("a", kNeuron, 5), host("c", kGpu, 5)}), now_)) << "b has finished";
    EXPECT_TRUE(pinning_.update(hosts({host("c", kGpu, 5)}), now_));
    EXPECT_TRUE(pinning_.is_lost(a));
    EXPECT_TRUE(pinning_.is_moving(1));
    pinning_.settle();
    EXPECT_FALSE(pinning_.is_moving(1));
    update({host("a", kNeuron, 5), host("c", kGpu, 5)});
    EXPECT_EQ(place(2), "a");
    EXPECT_NE(pinning_.number_of(*pinning_.host_of(2, false, now_)), a) << "it holds nothing of what it had";
}

TEST_F(PinningTest, AHostThatRefusesIsLeftAloneForAWhile) {
    const auto a = host("a", kNeuron, 5);
    update({a, host("b", kGpu, 5, "127.0.0.2")});
    EXPECT_EQ(place(1), "a");
    EXPECT_FALSE(pinning_.refused(a.address, now_));
    now_ += Pinning::kAvoid;
    EXPECT_FALSE(pinning_.refused(a.address, now_)) << "one was long ago";
    EXPECT_FALSE(pinning_.refused(a.address, now_));
    EXPECT_TRUE(pinning_.refused(a.address, now_));
    EXPECT_TRUE(pinning_.is_moving(1));
    for (unsigned i = 0; i < 10; ++i) {
        EXPECT_FALSE(pinning_.refused(a.address, now_)) << "what was under way";
    }
    EXPECT_EQ(place(1), "b");
    EXPECT_EQ(place(2), "b");
    now_ += Pinning::kAvoid;
    EXPECT_EQ(place(3), "a");
}

TEST_F(PinningTest, SlotsAreThoseOfTheLastReading) {
    update({host("a", kNeuron, 1)});
    EXPECT_EQ(place(1), "a");
    EXPECT_EQ(place(2), "");
    update({host("a", kNeuron, 1)});
    EXPECT_EQ(place(2), "a");
}

TEST_F(PinningTest, ADrainingHostIsBetterThanNone) {
    update({host("a", kNeuron, 5)});
    EXPECT_EQ(place(1), "a");
    update({draining(host("a", kNeuron, 5))});
    EXPECT_EQ(place(1, true), "a");
}

TEST_F(PinningTest, AnIdleSessionGivesItsPlaceUp) {
    update({host("a", kNeuron, 5)});
    EXPECT_EQ(place(1), "a");
    now_ += Pinning::kIdle - 1s;
    EXPECT_EQ(place(2), "a");
    now_ += 1s;
    update({host("a", kNeuron, 5)});
    EXPECT_EQ(pinning_.sessions(), 1U);
    pinning_.forget(2);
    EXPECT_EQ(pinning_.sessions(), 0U);
}

TEST_F(PinningTest, HostsMayChangeTheirOrder) {
    std::vector<voice::ship::Host> list;
    for (int i = 0; i < 10; ++i) {
        list.push_back(host("h" + std::to_string(i), kNeuron, 10));
    }
    update(list);
    std::vector<std::string> places;
    for (std::uint64_t session = 0; session < 50; ++session) {
        places.push_back(place(session));
    }
    std::reverse(list.begin(), list.end());
    update(list);
    for (std::uint64_t session = 0; session < 50; ++session) {
        EXPECT_EQ(place(session), places[session]);
    }
    EXPECT_EQ(pinning_.moves(), 0U);
}

TEST(Host, IsReadFromItsRecord) {
    const auto found = read_host("i-1",
                                 {{"kind", "neuron"}, {"address", "10.0.1.2"}, {"free_slots", "42"}, {"draining", "1"},
                                  {"heartbeat", "1700000000000"}, {"version", "9"}},
                                 5006);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->id, "i-1");
    EXPECT_EQ(found->kind, kNeuron);
    EXPECT_EQ(found->address.sin_addr.s_addr, htonl(0x0a000102));
    EXPECT_EQ(found->address.sin_port, htons(5006));
    EXPECT_EQ(found->free_slots, 42U);
    EXPECT_TRUE(found->draining);
}

TEST(Host, IsOfAnyKindThatEnginesRunOn) {
    for (const auto& [word, kind] : {std::pair{"neuron", kNeuron}, std::pair{"gpu", kGpu}, std::pair{"cpu", HostKind::kCpu}}) {
        const auto found = read_host(
            "i-1", {{"kind", word}, {"address", "10.0.1.2"}, {"free_slots", "1"}, {"draining", "0"}, {"heartbeat", "1"}}, 5006);
        ASSERT_TRUE(found) << word;
        EXPECT_EQ(found->kind, kind) << word;
    }
}

class BadHost : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(BadHost, IsRefused) {
    voice::valkey::Fields fields{
        {"kind", "gpu"}, {"address", "10.0.1.2"}, {"free_slots", "1"}, {"draining", "0"}, {"heartbeat", "1"}};
    ASSERT_TRUE(read_host("i-1", fields, 5006));
    for (auto& [name, value] : fields) {
        value = name == GetParam().first ? GetParam().second : value;
    }
    EXPECT_FALSE(read_host("i-1", fields, 5006));
}

INSTANTIATE_TEST_SUITE_P(Each, BadHost, ::testing::Values(
    std::pair{"kind", ""}, std::pair{"kind", "tpu"}, std::pair{"address", ""}, std::pair{"address", "10.0.1"},
    std::pair{"address", "host.internal"}, std::pair{"address", "::1"}, std::pair{"free_slots", ""},
    std::pair{"free_slots", "-1"}, std::pair{"free_slots", "1.5"}, std::pair{"free_slots", "99999999999"},
    std::pair{"draining", ""}, std::pair{"draining", "yes"}, std::pair{"heartbeat", ""}));

}  // namespace
