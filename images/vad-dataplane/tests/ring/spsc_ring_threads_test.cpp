// The ring between two pinned threads, also under ThreadSanitizer; built with RELAXED_ORDERS it is the negative
// control, which ThreadSanitizer must refuse.
#include <pthread.h>
#include <sched.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <thread>

#include "ring/spsc_ring.hpp"
#include "wire/audio_chunk.h"

namespace {

#ifdef RELAXED_ORDERS
struct Orders {
    static constexpr std::memory_order kTake = std::memory_order_relaxed;
    static constexpr std::memory_order kGive = std::memory_order_relaxed;
};
#else
using Orders = voice::AcquireRelease;
#endif

using Ring = voice::SpscRing<voice_audio_chunk, 64, Orders>;

// Pins the calling thread to the index-th CPU that this process may use, modulo their number.
void pin(int index) {
    cpu_set_t allowed;
    ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    int skip = index % CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &allowed) && skip-- == 0) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof one, &one), 0);
            return;
        }
    }
}

// Both ends of the payload carry the sequence: a slot that is released too early shows as a torn message.
void write(voice_audio_chunk& chunk, std::uint32_t n) {
    chunk.sequence = n;
    chunk.payload.pcm[0] = static_cast<std::int16_t>(n);
    chunk.payload.pcm[VOICE_CHUNK_SAMPLES - 1] = static_cast<std::int16_t>(n);
}

bool is_whole(const voice_audio_chunk& chunk, std::uint32_t n) {
    const auto mark = static_cast<std::int16_t>(n);
    return chunk.sequence == n && chunk.payload.pcm[0] == mark &&
           chunk.payload.pcm[VOICE_CHUNK_SAMPLES - 1] == mark;
}

TEST(SpscRingThreads, EveryMessageArrivesOnceInOrderAndWhole) {
    constexpr std::uint32_t kMessages = 200'000;
    auto ring = std::make_unique<Ring>();
    std::thread producer([&] {
        pin(0);
        for (std::uint32_t n = 0; n < kMessages;) {
            if (auto* slot = ring->claim()) {
                write(*slot, n++);
                ring->commit();
            } else {
                std::this_thread::yield();
            }
        }
    });
    pin(1);
    std::uint32_t torn = 0;
    for (std::uint32_t n = 0; n < kMessages;) {
        if (const auto* slot = ring->peek()) {
            torn += is_whole(*slot, n++) ? 0 : 1;
            ring->release();
            EXPECT_LE(ring->occupancy(), Ring::kSlots);
        } else {
            std::this_thread::yield();
        }
    }
    producer.join();
    EXPECT_EQ(torn, 0U);
    EXPECT_EQ(ring->peek(), nullptr);
}

}  // namespace
