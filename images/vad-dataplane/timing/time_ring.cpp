// The ring between two pinned threads, against DPDK's rte_ring, Boost's spsc_queue and one of two indices, interleaved in one
// run.
//   time_ring ROUNDS
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "measure.hpp"
#include "queues.hpp"
#include "wire/audio_chunk.h"

namespace {

using Chunk = voice_audio_chunk;

// Synchronizes both threads, so that neither waits for the other to start inside the measurement.
class Start {
public:
    void wait() {
        ++here_;
        while (here_.load() < 2) {
        }
    }

private:
    std::atomic<int> here_{0};
};

// Millions of messages a second; `put(n)` and `take(n)` return whether they succeeded.
template <typename Put, typename Take>
double rate(std::uint64_t messages, Put put, Take take) {
    Start start;
    std::uint64_t took = 0;
    std::thread producer([&] {
        bench::pin(1);
        start.wait();
        for (std::uint64_t n = 0; n < messages;) {
            n += put(n) ? 1 : 0;
        }
    });
    // Not this thread: the next producer would inherit its CPU and priority, and never run.
    std::thread consumer([&] {
        bench::pin(0);
        start.wait();
        const std::uint64_t began = bench::now_ns();
        for (std::uint64_t n = 0; n < messages;) {
            n += take(n) ? 1 : 0;
        }
        took = bench::now_ns() - began;
    });
    producer.join();
    consumer.join();
    return static_cast<double>(messages) * 1e3 / static_cast<double>(took);
}

constexpr std::uint64_t kChunks = 1'000'000;
constexpr std::uint64_t kSmall = 10'000'000;

std::uint64_t exclusive_or(const Chunk& chunk) {
    std::uint64_t result = 0;
    for (std::size_t at = 0; at < sizeof chunk.payload; at += sizeof result) {
        std::uint64_t word = 0;
        std::memcpy(&word, reinterpret_cast<const char*>(&chunk.payload) + at, sizeof word);
        result ^= word;
    }
    return result;
}

// The producer writes a whole chunk, the consumer reads all of it.
template <typename Queue>
double whole_in_place() {
    Queue queue;
    std::uint64_t sum = 0;
    const double result = rate(
        kChunks,
        [&](std::uint64_t n) {
            return queue.put([n](Chunk& chunk) {
                chunk.session = n;
                std::ranges::fill(chunk.payload.pcm, static_cast<std::int16_t>(n));
            });
        },
        [&](std::uint64_t) { return queue.take([&sum](const Chunk& chunk) { sum += exclusive_or(chunk); }); });
    bench::keep(&sum);
    return result;
}

// Header only: the cost of the queue itself.
template <typename Queue>
double header_in_place() {
    Queue queue;
    std::uint64_t sum = 0;
    const double result = rate(
        kSmall, [&](std::uint64_t n) { return queue.put([n](Chunk& chunk) { chunk.session = n; }); },
        [&](std::uint64_t) { return queue.take([&sum](const Chunk& chunk) { sum += chunk.session; }); });
    bench::keep(&sum);
    return result;
}

template <typename Queue, typename Message>
double copied(std::uint64_t messages) {
    Queue queue;
    Message in{};
    Message out{};
    const double result = rate(
        messages,
        [&](std::uint64_t) {
            bench::keep(&in);
            return queue.put(in);
        },
        [&](std::uint64_t) {
            const bool done = queue.take(out);
            bench::keep(&out);
            return done;
        });
    return result;
}

struct Contestant {
    const char* group;
    const char* name;
    std::function<double()> run;
};

std::vector<Contestant> contestants() {
    using namespace bench;
    using RtePointers = Pooled<Chunk, RteCopied<Chunk*>>;
    using BoostPointers = Pooled<Chunk, BoostCopied<Chunk*>>;
    constexpr const char* whole = "ring: chunk in place, written and read";
    constexpr const char* header = "ring: chunk in place, header only";
    constexpr const char* copy = "ring: chunk copied in and out";
    constexpr const char* small = "ring: 8 bytes";
    return {
        {whole, "voice", whole_in_place<OursInPlace<Chunk>>},
        {whole, "two indices", whole_in_place<TwoIndexInPlace<Chunk>>},
        {whole, "rte_ring, zero-copy calls", whole_in_place<RteInPlace<Chunk>>},
        {whole, "rte_ring, pointers", whole_in_place<RtePointers>},
        {whole, "Boost, pointers", whole_in_place<BoostPointers>},
        {header, "voice", header_in_place<OursInPlace<Chunk>>},
        {header, "two indices", header_in_place<TwoIndexInPlace<Chunk>>},
        {header, "rte_ring, zero-copy calls", header_in_place<RteInPlace<Chunk>>},
        {header, "rte_ring, pointers", header_in_place<RtePointers>},
        {header, "Boost, pointers", header_in_place<BoostPointers>},
        {copy, "voice", [] { return copied<Copied<OursInPlace<Chunk>, Chunk>, Chunk>(kChunks); }},
        {copy, "two indices", [] { return copied<Copied<TwoIndexInPlace<Chunk>, Chunk>, Chunk>(kChunks); }},
        {copy, "rte_ring", [] { return copied<RteCopied<Chunk>, Chunk>(kChunks); }},
        {copy, "Boost", [] { return copied<BoostCopied<Chunk>, Chunk>(kChunks); }},
        {small, "voice", [] { return copied<Copied<OursInPlace<std::uint64_t>, std::uint64_t>, std::uint64_t>(kSmall); }},
        {small, "two indices",
         [] { return copied<Copied<TwoIndexInPlace<std::uint64_t>, std::uint64_t>, std::uint64_t>(kSmall); }},
        {small, "rte_ring", [] { return copied<RteCopied<std::uint64_t>, std::uint64_t>(kSmall); }},
        {small, "Boost", [] { return copied<BoostCopied<std::uint64_t>, std::uint64_t>(kSmall); }},
    };
}

}  // namespace

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
    const std::vector<Contestant> all = contestants();
    std::vector<bench::Result> results;
    for (const Contestant& one : all) {
        results.push_back({one.group, one.name, "M msg/s", {}});
    }
    for (int round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < all.size(); ++i) {
            results[i].rounds.push_back(all[i].run());
        }
    }
    bench::print(results);
}
