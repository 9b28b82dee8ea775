// Log-mel frames against faster-whisper's extractor, with pieces of every size, at all edges and extremes.
#include "features/log_mel.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "allocations.hpp"
#include "golden.hpp"

namespace {

using golden::Frame;
using voice::features::LogMel;

constexpr double kTolerance = 1e-3;

LogMel::Frames rows(std::vector<Frame>& frames, std::size_t from, std::size_t count) {
    return {reinterpret_cast<float(*)[VOICE_CHUNK_MEL_BINS]>(frames.data() + from), count};
}

// Pushes samples in pieces of the sizes that `piece` returns, flushes, and returns the frames of the whole utterance.
template <typename Piece>
std::vector<Frame> frames_of(LogMel& mel, std::span<const std::int16_t> samples, Piece piece) {
    std::vector<Frame> frames(samples.size() / 160 + 3);
    std::size_t count = 0;
    while (!samples.empty()) {
        const auto next = samples.first(std::min<std::size_t>(piece(), samples.size()));
        const auto taken = mel.push(next, rows(frames, count, frames.size() - count));
        EXPECT_EQ(taken.samples, next.size());
        count += taken.frames;
        samples = samples.subspan(next.size());
    }
    const std::size_t owed = mel.owed();
    EXPECT_EQ(mel.flush(rows(frames, count, frames.size() - count)), owed);
    frames.resize(count + owed);
    return frames;
}

std::vector<Frame> frames_of(std::span<const std::int16_t> samples) {
    LogMel mel;
    return frames_of(mel, samples, [&] { return samples.size(); });
}

std::vector<std::int16_t> noise(std::size_t samples, double scale, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(0, scale);
    std::vector<std::int16_t> made(samples);
    for (auto& sample : made) {
        sample = static_cast<std::int16_t>(std::clamp(normal(random), -32768.0, 32767.0));
    }
    return made;
}

TEST(LogMel, EqualsTheExtractor) {
    double worst = 0;
    for (const auto& signal : golden::signals()) {
        const auto frames = frames_of(signal.samples);
        ASSERT_EQ(frames.size(), signal.frames.size()) << signal.samples.size() << " samples";
        double error = 0;
        for (std::size_t t = 0; t < frames.size(); ++t) {
            for (std::size_t bin = 0; bin < frames[t].size(); ++bin) {
                error = std::max(error, std::abs(double{frames[t][bin]} - double{signal.frames[t][bin]}));
            }
        }
        EXPECT_LT(error, kTolerance) << signal.samples.size() << " samples";
        worst = std::max(worst, error);
    }
    std::printf("largest error %.2g\n", worst);
}

TEST(LogMel, PiecesDoNotMatterAtAnySplit) {
    const auto samples = noise(1000, 3000, 1);
    const auto whole = frames_of(samples);
    for (std::size_t split = 0; split <= samples.size(); ++split) {
        LogMel mel;
        std::size_t call = 0;
        const auto pieces = frames_of(mel, samples, [&] { return call++ == 0 && split > 0 ? split : samples.size(); });
        ASSERT_EQ(pieces, whole) << "split at " << split;
    }
}

TEST(LogMel, PiecesDoNotMatterInAnySizes) {
    const auto samples = noise(5000, 3000, 2);
    const auto whole = frames_of(samples);
    for (std::uint32_t seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        std::uniform_int_distribution<std::size_t> size(1, 1 + seed * 4);
        LogMel mel;
        ASSERT_EQ(frames_of(mel, samples, [&] { return size(random); }), whole) << "seed " << seed;
    }
}

TEST(LogMel, AFrameIsReadyTwoHundredSamplesAfterItsCentre) {
    LogMel mel;
    std::vector<Frame> frames(20);
    const std::int16_t sample = 1;
    std::size_t count = 0;
    for (std::size_t n = 1; n <= 1640; ++n) {
        count += mel.push({&sample, 1}, rows(frames, count, 10)).frames;
        ASSERT_EQ(count, n < 200 ? 0 : (n - 200) / 160 + 1) << "after sample " << n;
    }
    EXPECT_EQ(count, 10U) << "the first chunk is whole 2.5 ms after its audio";
}

TEST(LogMel, FillsAChunkInPlaceAndStopsWhenItIsFull) {
    const auto samples = noise(3400, 3000, 3);
    const auto whole = frames_of(samples);
    LogMel mel;
    std::vector<voice_audio_chunk> chunks(3);
    std::span<const std::int16_t> left = samples;
    for (std::size_t c = 0; c < 2; ++c) {
        const auto taken = mel.push(left, chunks[c].payload.log_mel);
        ASSERT_EQ(taken.frames, 10U);
        left = left.subspan(taken.samples);
    }
    for (std::size_t t = 0; t < 20; ++t) {
        EXPECT_TRUE(std::ranges::equal(chunks[t / 10].payload.log_mel[t % 10], whole[t])) << "frame " << t;
    }
}

TEST(LogMel, WhatIsNotTakenIsPushedAgain) {
    const auto samples = noise(4000, 3000, 4);
    const auto whole = frames_of(samples);
    LogMel mel;
    std::vector<Frame> frames(whole.size());
    std::size_t count = 0;
    for (std::span<const std::int16_t> left = samples; !left.empty();) {
        const auto taken = mel.push(left, rows(frames, count, count % 4));  // occasionally no room at all
        count += taken.frames;
        left = left.subspan(taken.samples);
        if (taken.samples == 0) {
            ASSERT_EQ(mel.push({}, rows(frames, count, 1)).frames, 1U) << "the frame that is due needs no samples";
            ++count;
        }
    }
    while (mel.owed() > 0) {
        count += mel.flush(rows(frames, count, 1));
    }
    EXPECT_EQ(count, whole.size());
    EXPECT_EQ(frames, whole);
}

TEST(LogMel, EveryUtteranceStartsAnew) {
    const auto first = noise(777, 3000, 5);
    const auto second = noise(1333, 3000, 6);
    LogMel mel;
    frames_of(mel, first, [] { return 320; });
    EXPECT_EQ(frames_of(mel, second, [] { return 320; }), frames_of(second)) << "after flush()";
    std::vector<Frame> frames(10);
    mel.push(first, rows(frames, 0, 10));
    mel.reset();
    EXPECT_EQ(frames_of(mel, second, [] { return 320; }), frames_of(second)) << "after reset()";
}

TEST(LogMel, NothingGivesNothing) {
    LogMel mel;
    std::vector<Frame> frames(2);
    EXPECT_EQ(mel.owed(), 0U);
    EXPECT_EQ(mel.push({}, rows(frames, 0, 2)).frames, 0U);
    EXPECT_EQ(mel.flush(rows(frames, 0, 2)), 0U);
}

TEST(LogMel, SilenceIsTheLeastEnergy) {
    const std::vector<std::int16_t> silence(1600);
    for (const auto& frame : frames_of(silence)) {
        for (const float value : frame) {
            ASSERT_FLOAT_EQ(value, -10);
        }
    }
}

TEST(LogMel, ExtremesGiveNumbers) {
    constexpr std::int16_t most = std::numeric_limits<std::int16_t>::max();
    constexpr std::int16_t least = std::numeric_limits<std::int16_t>::min();
    for (const int period : {1, 2, 3, 37, 400, 1600}) {
        std::vector<std::int16_t> samples(1600);
        for (std::size_t n = 0; n < samples.size(); ++n) {
            samples[n] = static_cast<int>(n) / period % 2 == 0 ? least : most;
        }
        for (const auto& frame : frames_of(samples)) {
            for (const float value : frame) {
                ASSERT_TRUE(std::isfinite(value) && value >= -10.0001F && value < 4) << "period " << period;
            }
        }
    }
}

TEST(LogMel, AllocatesNothingAfterConstruction) {
    const auto samples = noise(16000, 3000, 7);
    std::vector<Frame> frames(10);
    LogMel mel;
    const std::size_t before = allocations();
    for (std::size_t at = 0; at < samples.size(); at += 320) {
        mel.push(std::span(samples).subspan(at, 320), rows(frames, 0, 10));
    }
    mel.flush(rows(frames, 0, 10));
    const std::size_t after = allocations();
    EXPECT_EQ(after, before);
    EXPECT_GT(before, 0U) << "the counter counts";
    EXPECT_LE(sizeof(LogMel), 808U) << "what its comment says";
}

}  // namespace
