// The ring in one thread: bounds, order, wrap-around, in-place access.
#include "ring/spsc_ring.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <random>

#include "wire/audio_chunk.h"

namespace {

using voice::SpscRing;

template <typename Ring>
bool publish(Ring& ring, std::uint64_t value) {
    auto* slot = ring.claim();
    if (slot == nullptr) {
        return false;
    }
    *slot = value;
    ring.commit();
    return true;
}

template <typename Ring>
std::int64_t consume(Ring& ring) {
    const auto* slot = ring.peek();
    if (slot == nullptr) {
        return -1;
    }
    const auto value = static_cast<std::int64_t>(*slot);
    ring.release();
    return value;
}

TEST(SpscRing, StartsEmptyAndTakesExactlyItsSlots) {
    SpscRing<std::uint64_t, 8> ring;
    EXPECT_EQ(ring.peek(), nullptr);
    for (std::uint64_t i = 0; i < 8; ++i) {
        EXPECT_EQ(ring.occupancy(), i);
        EXPECT_TRUE(publish(ring, i)) << "slot " << i << " has to start free";
    }
    EXPECT_FALSE(publish(ring, 8));
    EXPECT_EQ(ring.occupancy(), 8U);
}

TEST(SpscRing, OneSlotIsTheSmallestRing) {
    SpscRing<std::uint64_t, 1> ring;
    for (std::int64_t i = 0; i < 10; ++i) {
        ASSERT_TRUE(publish(ring, static_cast<std::uint64_t>(i)));
        ASSERT_FALSE(publish(ring, 99));
        ASSERT_EQ(consume(ring), i);
        ASSERT_EQ(consume(ring), -1);
    }
}

TEST(SpscRing, AClaimWithoutCommitPublishesNothing) {
    SpscRing<std::uint64_t, 4> ring;
    *ring.claim() = 1;
    EXPECT_EQ(ring.peek(), nullptr);
    EXPECT_EQ(ring.claim(), ring.claim());
    *ring.claim() = 2;
    ring.commit();
    EXPECT_EQ(consume(ring), 2);
}

TEST(SpscRing, AMessageStaysInPlaceUntilItIsReleased) {
    SpscRing<std::uint64_t, 2> ring;
    ASSERT_TRUE(publish(ring, 1));
    ASSERT_TRUE(publish(ring, 2));
    const auto* first = ring.peek();
    EXPECT_EQ(ring.claim(), nullptr) << "its slot must not be given out";
    EXPECT_EQ(ring.peek(), first);
    EXPECT_EQ(*first, 1U);
    ring.release();
    EXPECT_NE(ring.claim(), nullptr);
}

TEST(SpscRing, TheConsumerMayLookAheadAndNoFurtherThanThereIs) {
    SpscRing<std::uint64_t, 4> ring;
    for (std::uint64_t lap = 0; lap < 3; ++lap) {
        for (std::uint64_t i = 0; i < 3; ++i) {
            ASSERT_TRUE(publish(ring, 10 * lap + i));
        }
        for (std::uint64_t i = 0; i < 3; ++i) {
            ASSERT_NE(ring.peek(i), nullptr);
            EXPECT_EQ(*ring.peek(i), 10 * lap + i);
        }
        EXPECT_EQ(ring.peek(3), nullptr);
        EXPECT_EQ(ring.peek(4), nullptr) << "a lap ahead is the oldest slot";
        while (consume(ring) >= 0) {
        }
    }
}

TEST(SpscRing, SlotsStandOnLinesOfTheirOwn) {
    SpscRing<std::uint64_t, 4> ring;
    const auto at = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
    const auto first = at(ring.claim());
    ASSERT_TRUE(publish(ring, 1));
    EXPECT_EQ((at(ring.claim()) - first) % voice::kCacheLineBytes, 0U);
    EXPECT_EQ(alignof(decltype(ring)), voice::kCacheLineBytes);
}

TEST(SpscRing, ARealChunkIsNeverCopied) {
    auto ring = std::make_unique<SpscRing<voice_audio_chunk, 1024>>();
    auto* in = ring->claim();
    in->session = 7;
    in->payload.pcm[1599] = -3;
    ring->commit();
    const auto* out = ring->peek();
    EXPECT_EQ(static_cast<const void*>(out), static_cast<const void*>(in));
    EXPECT_EQ(out->payload.pcm[1599], -3);
}

// Any sequence of operations behaves like a bounded queue.
TEST(SpscRing, AgreesWithAQueueOverRandomOperations) {
    for (std::uint32_t seed = 1; seed <= 50; ++seed) {
        std::mt19937 random(seed);
        SpscRing<std::uint64_t, 4> ring;
        std::deque<std::uint64_t> model;
        std::uint64_t next = 0;
        for (int step = 0; step < 5000; ++step) {
            // Long runs of one kind reach both ends; short ones cross the wrap-around at every offset.
            if (random() % 3 != 0 ? step / 16 % 2 == 0 : random() % 2 == 0) {
                ASSERT_EQ(publish(ring, next), model.size() < 4) << "seed " << seed << " step " << step;
                if (model.size() < 4) {
                    model.push_back(next);
                }
                ++next;
            } else if (model.empty()) {
                ASSERT_EQ(consume(ring), -1);
            } else {
                ASSERT_EQ(consume(ring), static_cast<std::int64_t>(model.front()));
                model.pop_front();
            }
            ASSERT_EQ(ring.occupancy(), model.size());
        }
    }
}

}  // namespace
