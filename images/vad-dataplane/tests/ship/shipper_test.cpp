// Chunks over real sockets, in a separate network.
#include "ship/shipper.hpp"

#include <gtest/gtest.h>

#include <future>
#include <map>

#include "ring/spsc_ring.hpp"
#include "ship/receiving.hpp"

namespace {

using namespace std::chrono_literals;
using namespace voice;
using namespace voice::ship;
using namespace voice::test;

constexpr auto kNeuron = HostKind::kNeuron;

class ShipperTest : public ::testing::Test {
protected:
    void open(Shipper::Settings settings = {}) {
        shipper_ = std::make_unique<Shipper>(settings, std::vector<ChunkSource*>{&queue_}, hosts_);
        std::string error;
        ASSERT_TRUE(shipper_->open(error)) << error;
    }
    void SetUp() override { open(); }
    const ShipCounters& counted() { return shipper_->counters(); }

    Queue queue_;
    HostList hosts_{{host("a", kNeuron, 1000)}};
    std::unique_ptr<Shipper> shipper_;
};

TEST_F(ShipperTest, AChunkArrivesAsItIs) {
    Receiver receiver;
    queue_.put(0x01020304, 9, VOICE_CHUNK_START_OF_SPEECH);
    EXPECT_TRUE(shipper_->pass());
    const auto found = receiver.next();
    ASSERT_TRUE(found);
    EXPECT_EQ(found->session, 0x01020304U);
    EXPECT_EQ(found->sequence, 9U);
    EXPECT_EQ(found->kind, VOICE_CHUNK_PCM16);
    EXPECT_EQ(found->flags, VOICE_CHUNK_START_OF_SPEECH);
    EXPECT_EQ(found->payload.pcm[VOICE_CHUNK_SAMPLES - 1], 9);
    EXPECT_FALSE(shipper_->pass()) << "the queue is empty";
    EXPECT_EQ(counted().sent, 1U);
    EXPECT_EQ(counted().sessions, 1U);
}

TEST_F(ShipperTest, ABatchKeepsItsOrder) {
    Receiver receiver;
    for (std::uint32_t n = 0; n < 40; ++n) {
        queue_.put(n % 3, n);
    }
    EXPECT_TRUE(shipper_->pass());
    for (std::uint32_t n = 0; n < 40; ++n) {
        const auto found = receiver.next();
        ASSERT_TRUE(found);
        EXPECT_EQ(found->sequence, n);
    }
}

TEST_F(ShipperTest, EachSessionGoesToItsHost) {
    Receiver first("127.0.0.1");
    Receiver second("127.0.0.2");
    hosts_.set({host("a", kNeuron, 1, "127.0.0.1"), host("b", HostKind::kGpu, 1, "127.0.0.2")});
    for (std::uint32_t n = 0; n < 5; ++n) {
        queue_.put(1, n);
        queue_.put(2, n);
    }
    EXPECT_TRUE(shipper_->pass());
    for (int n = 0; n < 5; ++n) {
        EXPECT_EQ(first.next()->session, 1U);
        EXPECT_EQ(second.next()->session, 2U);
    }
    hosts_.set({host("b", HostKind::kGpu, 9, "127.0.0.2")});
    queue_.put(1, 5);
    EXPECT_TRUE(shipper_->pass());
    EXPECT_EQ(second.next()->session, 1U) << "its host has died";
    EXPECT_EQ(counted().moves, 1U);
}

TEST_F(ShipperTest, SessionsWithoutAHostHoldUpNobody) {
    Receiver receiver;
    hosts_.set({host("a", kNeuron, 1)});
    queue_.put(1, 0);
    for (std::uint32_t n = 0; n < 10; ++n) {
        queue_.put(2, n);
    }
    queue_.put(1, 1);
    EXPECT_TRUE(shipper_->pass());
    EXPECT_EQ(receiver.next()->sequence, 0U);
    EXPECT_EQ(receiver.next()->sequence, 1U);
    EXPECT_EQ(counted().no_host, 10U);
    EXPECT_EQ(counted().sent, 2U);
}

TEST_F(ShipperTest, HalfFullItShedsSilenceOldestFirst) {
    Receiver receiver;
    for (std::uint32_t n = 0; n < 60; ++n) {
        queue_.put(1, n, n % 2 == 0 ? VOICE_CHUNK_SILENCE : 0);
    }
    EXPECT_TRUE(shipper_->pass());
    // While 50 or more are left: those with the numbers 0 to 10.
    EXPECT_EQ(counted().shed_silence, 6U);
    EXPECT_EQ(counted().shed_oldest, 0U);
    EXPECT_EQ(receiver.next()->sequence, 1U);
    EXPECT_EQ(counted().sent, 54U);
}

TEST_F(ShipperTest, MadeUpAudioGoesWithSilenceAndTheEndsOfSpeechDoNot) {
    for (std::uint32_t n = 0; n < 53; ++n) {
        constexpr std::array<unsigned, 3> kFlags{VOICE_CHUNK_CONCEALED, VOICE_CHUNK_SILENCE | VOICE_CHUNK_END_OF_SPEECH,
                                                 VOICE_CHUNK_SILENCE | VOICE_CHUNK_START_OF_SPEECH};
        queue_.put(1, n, kFlags[n % 3]);
    }
    EXPECT_TRUE(shipper_->pass());
    EXPECT_EQ(counted().shed_silence, 2U) << "the numbers 0 and 3";
    EXPECT_EQ(counted().sent, 51U);
}

TEST_F(ShipperTest, AlmostFullItShedsTheOldestWhateverTheyAre) {
    Receiver receiver;
    for (std::uint32_t n = 0; n < 100; ++n) {
        queue_.put(1, n);
    }
    EXPECT_TRUE(shipper_->pass());
    EXPECT_EQ(counted().shed_oldest, 11U) << "until fewer than 90 are left";
    EXPECT_EQ(receiver.next()->sequence, 11U);
    EXPECT_TRUE(shipper_->pass());
    EXPECT_EQ(counted().sent, 89U);
}

TEST_F(ShipperTest, ADatagramThatTheKernelRefusesCostsTheOthersNothing) {
    Receiver receiver;
    // 10.9.0.2 is reached with an MTU of 1500.
    hosts_.set({host("a", kNeuron, 1, "10.9.0.2"), host("b", HostKind::kGpu, 1)});
    for (std::uint32_t n = 0; n < 6; ++n) {
        queue_.put(1 + n % 2, n);
    }
    EXPECT_TRUE(shipper_->pass());
    EXPECT_EQ(counted().failed, 3U);
    EXPECT_EQ(counted().sent, 3U);
    for (const auto sequence : {1U, 3U, 5U}) {
        EXPECT_EQ(receiver.next()->sequence, sequence);
    }
}

// A path whose device computes no checksums cannot segment (EIO); the chunks are sent one by one.
TEST_F(ShipperTest, AHostWhosePathCannotSegmentGetsEveryChunk) {
    ASSERT_EQ(std::system("ip link set voice0 mtu 3498 && ip link set voice1 mtu 3498 && ethtool -K voice0 tx off "
                          ">/dev/null"), 0);
    const Receiver here;
    // Its datagrams are lost, because the address does not exist; the test needs only that the kernel accepts each.
    hosts_.set({host("a", kNeuron, 1, "10.9.0.2")});
    ASSERT_EQ(std::system("ip neigh replace 10.9.0.2 lladdr 02:00:00:00:00:01 dev voice0"), 0);
    for (std::uint32_t n = 0; n < 30; ++n) {
        queue_.put(1, n);
    }
    EXPECT_TRUE(shipper_->pass());
    EXPECT_EQ(counted().sent, 30U);
    EXPECT_EQ(counted().failed + counted().stalls, 0U);
    ASSERT_EQ(std::system("ethtool -K voice0 tx on >/dev/null && ip neigh del 10.9.0.2 dev voice0 && "
                          "ip link set voice0 mtu 1500"), 0);
}

TEST_F(ShipperTest, ChunksOfManyHostsInTurnEachReachTheirs) {
    Receiver first("127.0.0.1");
    Receiver second("127.0.0.2");
    Receiver third("127.0.0.3");
    hosts_.set({host("a", kNeuron, 1, "127.0.0.1"), host("b", HostKind::kGpu, 1, "127.0.0.2"),
                host("c", HostKind::kCpu, 1, "127.0.0.3")});
    // More than one call takes for one host: 20.
    for (std::uint32_t n = 0; n < 28; ++n) {
        for (const std::uint32_t session : {1U, 2U, 3U}) {
            queue_.put(session, n);
        }
    }
    while (shipper_->pass()) {
    }
    std::map<std::uint32_t, std::uint32_t> next;
    for (Receiver* receiver : {&first, &second, &third}) {
        const auto session = receiver->next()->session;
        for (std::uint32_t n = 1; n < 28; ++n) {
            const auto chunk = receiver->next();
            ASSERT_TRUE(chunk);
            EXPECT_EQ(chunk->session, session) << "a session has one host";
            EXPECT_EQ(chunk->sequence, n) << "in its order";
        }
        ++next[session];
    }
    EXPECT_EQ(next.size(), 3U);
    EXPECT_EQ(counted().sent, 84U);
}

TEST_F(ShipperTest, AFullSendBufferKeepsChunksForLater) {
    ASSERT_EQ(std::system("ip link set voice0 mtu 3498 && ip link set voice1 mtu 3498"), 0);
    open({.send_buffer_bytes = 16 << 10});
    hosts_.set({host("a", kNeuron, 1, "10.9.0.2")});  // nobody there: datagrams wait for its hardware address
    for (std::uint32_t n = 0; n < 40; ++n) {
        queue_.put(1, n);
    }
    EXPECT_TRUE(shipper_->pass());
    EXPECT_EQ(counted().stalls, 1U);
    EXPECT_GT(counted().sent, 0U);
    EXPECT_EQ(queue_.occupancy(), 40U - counted().sent);
    EXPECT_EQ(queue_.peek(0)->sequence, counted().sent) << "the first that was not sent is the next";
    EXPECT_EQ(counted().failed + counted().shed_oldest, 0U);
    ASSERT_EQ(std::system("ip link set voice0 mtu 1500"), 0);
}

// With real rings, and pollers that never wait.
using Ring = SpscRing<voice_audio_chunk, 256>;

// Returns how many found the ring full.
std::uint32_t produce(Ring& ring, std::uint32_t session, std::uint32_t chunks) {
    std::uint32_t full = 0;
    for (std::uint32_t n = 0; n < chunks; ++n) {
        if (auto* chunk = ring.claim()) {
            fill(*chunk, session, n);
            ring.commit();
        } else {
            ++full;
        }
        if (n % 16 == 0) {
            std::this_thread::sleep_for(1ms);
        }
    }
    return full;
}

// Receives until nothing has arrived for a while; returns the number. Each session's chunks are in order and complete.
std::uint64_t consume(Receiver& receiver, std::map<std::uint64_t, std::uint32_t>& next, int limit_ms) {
    std::uint64_t received = 0;
    while (const auto chunk = receiver.next(limit_ms)) {
        ++received;
        EXPECT_GE(chunk->sequence, next[chunk->session]) << "out of order";
        next[chunk->session] = chunk->sequence + 1;
        EXPECT_EQ(chunk->payload.pcm[VOICE_CHUNK_SAMPLES - 1], static_cast<std::int16_t>(chunk->sequence)) << "torn";
    }
    return received;
}

TEST(ShipperThreads, TwoRingsUnderLoadLoseNothingUncounted) {
    constexpr std::uint32_t kChunks = 5000;
    Receiver receiver;
    const auto one = std::make_unique<Ring>();
    const auto two = std::make_unique<Ring>();
    RingSource first(*one);
    RingSource second(*two);
    HostList hosts({host("a", kNeuron, 10)});
    Shipper shipper({}, {&first, &second}, hosts);
    std::string error;
    ASSERT_TRUE(shipper.open(error)) << error;
    shipper.start();
    auto full_one = std::async(std::launch::async, [&] { return produce(*one, 1, kChunks); });
    auto full_two = std::async(std::launch::async, [&] { return produce(*two, 2, kChunks); });
    std::map<std::uint64_t, std::uint32_t> next;
    std::uint64_t received = 0;
    while (full_one.wait_for(0s) != std::future_status::ready || full_two.wait_for(0s) != std::future_status::ready) {
        received += consume(receiver, next, 10);
    }
    const std::uint64_t full = full_one.get() + full_two.get();
    shipper.stop();
    received += consume(receiver, next, 100);
    EXPECT_EQ(shipper.counters().sent + shipper.counters().shed_oldest + full, 2 * kChunks);
    EXPECT_EQ(received, shipper.counters().sent);
    EXPECT_GT(received, 0U);
}

class OwnNetwork : public ::testing::Environment {
    void SetUp() override {
        enter_own_network();
        ASSERT_EQ(std::system("ip address add 10.9.0.1/24 dev voice0"), 0);
    }
};
const auto* const kNetwork = ::testing::AddGlobalTestEnvironment(new OwnNetwork);

}  // namespace
