// A module is swapped while frames go through. ThreadSanitizer runs this too.
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
    constexpr int kSwaps = 20;
    const auto first = Module::load(VAD_MODULE);
    const auto second = Module::load(VAD_OTHER_MODULE);
    const auto samples = signals::noise(1, 20, 1);
    const auto voice = signals::mixed(signals::voice_like(4, 4000), signals::noise(4, 20, 2));
    Vad vad(std::make_unique<Instance>(first));
    std::atomic<bool> done{false};
    std::uint64_t frames = 0;
    std::uint64_t silent_in_voice = 0;

    std::thread poller([&] {
        for (std::size_t n = 0; n < signals::frames(samples); ++n) {
            for (std::uint32_t stream = 0; stream < kStreams; ++stream) {
                (void)vad.process(stream, signals::frame(samples, n));
                ++frames;
            }
        }
        for (std::size_t n = 0; !done; ++n) {
            for (std::uint32_t stream = 0; stream < kStreams; ++stream) {
                const auto decision = vad.process(stream, signals::frame(voice, n % signals::frames(voice)));
                silent_in_voice += n >= 4 && !decision.speech ? 1 : 0;
                ++frames;
            }
        }
    });
    for (int swap = 1; swap <= kSwaps; ++swap) {
        vad.offer(std::make_unique<Instance>(swap % 2 == 0 ? first : second));
        while (vad.counters().swaps < static_cast<std::uint64_t>(swap)) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    done = true;
    poller.join();
    EXPECT_TRUE(vad.collect());
    EXPECT_FALSE(vad.collect());
    const auto& counters = vad.counters();
    EXPECT_EQ(counters.swaps, static_cast<std::uint64_t>(kSwaps));
    EXPECT_EQ(counters.fallback_frames, 0U);
    EXPECT_LE(silent_in_voice * 50, frames) << "a stream that talks is heard across every swap";
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
    vad.offer(std::make_unique<Instance>(Module::load(VAD_MODULE)));  // fetches, too
    EXPECT_FALSE(vad.process(0, frame).speech);
    EXPECT_EQ(vad.counters().swaps, 2U);
}

}  // namespace
