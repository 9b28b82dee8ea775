// The chunks of a lost host go to another one, over real sockets in a separate network.
#include <gtest/gtest.h>

#include "ship/receiving.hpp"

namespace {

using namespace std::chrono_literals;
using namespace voice;
using namespace voice::ship;
using namespace voice::test;

constexpr auto kNeuron = HostKind::kNeuron;
constexpr auto kGpu = HostKind::kGpu;
const auto kA = host("a", kNeuron, 1000, "127.0.0.1");
const auto kB = host("b", kGpu, 1000, "127.0.0.2");

class ResendTest : public ::testing::Test {
protected:
    void open(Shipper::Settings settings = {}) {
        shipper_ = std::make_unique<Shipper>(settings, std::vector<ChunkSource*>{&queue_}, hosts_);
        std::string error;
        ASSERT_TRUE(shipper_->open(error)) << error;
    }
    void SetUp() override { open(); }

    // Sends chunks of a session with these numbers.
    void say(std::uint32_t session, std::uint32_t from, std::uint32_t to) {
        for (std::uint32_t n = from; n < to; ++n) {
            queue_.put(session, n);
            shipper_->pass();
        }
    }
    void settle() {
        for (int round = 0; round < 10; ++round) {
            shipper_->pass();
        }
    }
    // The numbers of a session's chunks, as received.
    static std::vector<std::uint32_t> heard(Receiver& receiver, std::uint64_t session) {
        std::vector<std::uint32_t> numbers;
        while (const auto chunk = receiver.next(100)) {
            if (chunk->session == session) {
                numbers.push_back(chunk->sequence);
            }
        }
        return numbers;
    }
    static std::vector<std::uint32_t> range(std::uint32_t from, std::uint32_t to) {
        std::vector<std::uint32_t> numbers(to - from);
        std::iota(numbers.begin(), numbers.end(), from);
        return numbers;
    }
    const ShipCounters& counted() { return shipper_->counters(); }

    Receiver a_{"127.0.0.1"};
    Receiver b_{"127.0.0.2"};
    Queue queue_;
    HostList hosts_{{kA, kB}};
    std::unique_ptr<Shipper> shipper_;
};

TEST_F(ResendTest, WhatADeadHostHadComesBeforeWhatIsNew) {
    say(1, 0, 200);
    hosts_.set({kB});
    say(1, 200, 230);
    settle();
    EXPECT_EQ(heard(a_, 1), range(0, 200));
    EXPECT_EQ(heard(b_, 1), range(0, 230));
    EXPECT_EQ(counted().resent, 200U);
    EXPECT_EQ(counted().sent, 230U);
    EXPECT_EQ(counted().moves, 1U);
}

TEST_F(ResendTest, WhoFellSilentBeforeTheHostDiedIsNotForgotten) {
    say(1, 0, 10);
    hosts_.set({kB});
    settle();
    EXPECT_EQ(heard(b_, 1), range(0, 10));
}

TEST_F(ResendTest, SessionsOfOtherHostsGoOnUndisturbed) {
    hosts_.set({host("a", kNeuron, 1), kB});
    say(1, 0, 50);
    say(2, 0, 50);  // on b: a has no free slot
    hosts_.set({kB});
    say(2, 50, 60);
    settle();
    EXPECT_EQ(heard(b_, 1).size() + heard(b_, 2).size(), 50U) << "drained by the first call";
    EXPECT_EQ(counted().resent, 50U) << "session 1's, and none of session 2's";
}

TEST_F(ResendTest, ADrainingHostThatLeavesHasFinishedWhatItHad) {
    say(1, 0, 10);
    hosts_.set({draining(kA), kB});
    say(1, 10, 20);
    hosts_.set({kB});
    say(1, 20, 30);
    settle();
    EXPECT_EQ(heard(a_, 1), range(0, 20)) << "the utterance stays with it";
    EXPECT_EQ(heard(b_, 1), range(20, 30));
    EXPECT_EQ(counted().resent, 0U);
}

TEST_F(ResendTest, WithoutAnotherHostItWaitsForOne) {
    say(1, 0, 20);
    hosts_.set({});
    say(1, 20, 40);
    EXPECT_EQ(counted().sent, 20U);
    EXPECT_EQ(counted().no_host, 0U) << "nothing is lost yet";
    hosts_.set({kB});
    settle();
    EXPECT_EQ(heard(b_, 1), range(0, 40));
    EXPECT_EQ(counted().sent, 40U);
    EXPECT_EQ(counted().resent, 20U);
}

TEST_F(ResendTest, AHostThatDiesOfWhatItWasSentAgainLosesNothingEither) {
    say(1, 0, 20);
    hosts_.set({kB});
    settle();
    const auto c = host("c", kGpu, 10, "127.0.0.3");
    Receiver third("127.0.0.3");
    hosts_.set({c});
    settle();
    EXPECT_EQ(heard(third, 1), range(0, 20));
    EXPECT_EQ(counted().resent, 40U);
}

TEST_F(ResendTest, AHostThatRefusesDatagramsIsLostThoughItsRecordLives) {
    say(1, 0, 5);
    a_.close();
    say(1, 5, 30);
    settle();
    EXPECT_EQ(heard(b_, 1), range(0, 30));
    EXPECT_EQ(counted().failed, 0U);
    EXPECT_GE(counted().resent, 5U);
}

TEST_F(ResendTest, WhatIsTooOldIsNotSentAgain) {
    open({.resend_window = 3s});
    say(1, 0, 10);
    std::this_thread::sleep_for(3100ms);
    say(1, 10, 20);
    hosts_.set({kB});
    settle();
    EXPECT_EQ(heard(b_, 1), range(10, 20));
}

TEST_F(ResendTest, AWindowWithTooFewBytesSaysSo) {
    open({.resend_bytes = 10 * sizeof(ResendWindow::Entry)});
    say(1, 0, 25);
    EXPECT_EQ(counted().window_short, 15U);
    hosts_.set({kB});
    settle();
    EXPECT_EQ(heard(b_, 1), range(15, 25));
}

TEST_F(ResendTest, WhatNobodyTookInTimeIsCounted) {
    open({.resend_bytes = 10 * sizeof(ResendWindow::Entry)});
    say(1, 0, 5);
    hosts_.set({});
    say(1, 5, 30);
    EXPECT_EQ(counted().no_host, 15U) << "the last ten are here still";
    hosts_.set({kB});
    settle();
    EXPECT_EQ(heard(b_, 1), range(20, 30));
}

class OwnNetwork : public ::testing::Environment {
    void SetUp() override { enter_own_network(); }
};
const auto* const kNetwork = ::testing::AddGlobalTestEnvironment(new OwnNetwork);

}  // namespace
