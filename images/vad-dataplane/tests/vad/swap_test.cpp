// A module is replaced during processing. Also runs under ThreadSanitizer.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "signals.hpp"
#include "vad/host.hpp"

namespace {

using voice::vad::Instance;
using voice::vad::Module;
using voice::vad::Vad;

TEST(VadSwap, UnderLoadLosesNoStream) {
    constexpr std::uint32_t kStreams = 64;
    constexpr std::size_t kSwaps = 20;
    constexpr std::size_t kRoundsPerSwap = 50;
    // 0.2 s: wherever in this voice a new module starts, the first second has at most 9 of them.
    constexpr std::size_t kSilentFrames = 10;
    const auto first = Module::load(VAD_MODULE);
    const auto second = Module::load(VAD_OTHER_MODULE);
    const auto samples = signals::noise(1, 20, 1);
    const auto voice = signals::mixed(signals::voice_like(4, 4000), signals::noise(4, 20, 2));
    Vad vad(std::make_unique<Instance>(first));
    std::atomic<bool> done{false};
    std::atomic<std::size_t> rounds{0};
    // Every VAD receives some noise, and then a voice for as long as `more` returns true; returns its silent frames.
    const auto silent_in_voice = [&](Vad& listener, const auto& more) {
        std::int64_t silent = 0;
        for (std::size_t n = 0; n < signals::frames(samples); ++n) {
            for (std::uint32_t stream = 0; stream < kStreams; ++stream) {
                (void)listener.process(stream, signals::frame(samples, n));
            }
        }
        for (std::size_t n = 0; more(n); ++n) {
            for (std::uint32_t stream = 0; stream < kStreams; ++stream) {
                silent += listener.process(stream, signals::frame(voice, n % signals::frames(voice))).speech ? 0 : 1;
            }
        }
        return silent;
    };
    std::int64_t silent = 0;

    std::thread poller([&] {
        silent = silent_in_voice(vad, [&](std::size_t n) {
            rounds = n;
            return !done;
        });
    });
    for (std::size_t swap = 1; swap <= kSwaps; ++swap) {
        // Counted in frames, not in time, so that the interval between two swaps does not depend on the machine's
        // speed.
        while (rounds < swap * kRoundsPerSwap) {
            std::this_thread::yield();
        }
        vad.offer(std::make_unique<Instance>(swap % 2 == 0 ? first : second));
        while (vad.counters().swaps < swap) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    done = true;
    poller.join();
    EXPECT_TRUE(vad.collect());
    EXPECT_FALSE(vad.collect());
    const auto& counters = vad.counters();
    EXPECT_EQ(counters.swaps, kSwaps);
    EXPECT_EQ(counters.fallback_frames, 0U);
    // The voice lasts as long as on this machine, and the VAD of one module determines its silence.
    Vad alone(std::make_unique<Instance>(first));
    const auto silent_alone = silent_in_voice(alone, [&](std::size_t n) { return n < rounds; });
    EXPECT_LE(silent - silent_alone, static_cast<std::int64_t>(kSwaps * kStreams * kSilentFrames)) << "a stream that talks is heard across every swap";
}

TEST(VadSwap, TheNewestOfferWins) {
    Vad vad(std::make_unique<Instance>(Module::load(VAD_MODULE)));
    const auto silence = signals::Samples(voice::vad::kFrameSamples);
    vad.offer(std::make_unique<Instance>(Module::load(VAD_MODULE)));
    vad.offer(std::make_unique<Instance>(Module::load(VAD_OTHER_MODULE)));
    EXPECT_TRUE(vad.process(0, signals::frame(silence, 0)).onset) << "the other module says onset to everything";
    EXPECT_EQ(vad.counters().swaps, 1U);
}

TEST(VadSwap, WaitsUntilTheLastModuleWasFetched) {
    Vad vad(std::make_unique<Instance>(Module::load(VAD_MODULE)));
    const auto silence = signals::Samples(voice::vad::kFrameSamples);
    const auto frame = signals::frame(silence, 0);
    vad.offer(std::make_unique<Instance>(Module::load(VAD_OTHER_MODULE)));
    EXPECT_TRUE(vad.process(0, frame).speech);
    vad.offer(std::make_unique<Instance>(Module::load(VAD_MODULE)));  // collects, too
    EXPECT_FALSE(vad.process(0, frame).speech);
    EXPECT_EQ(vad.counters().swaps, 2U);
}

}  // namespace
