// The module's decisions, through the host.
#include <gtest/gtest.h>

#include <numeric>

#include "signals.hpp"
#include "vad/host.hpp"

extern "C" {
std::uintptr_t vad_frame_offset();
void vad_init();
void vad_reset(std::uint32_t stream);
std::uint32_t vad_process(std::uint32_t stream);
}

namespace {

using signals::Samples;
using voice::vad::Decision;
using voice::vad::Instance;
using voice::vad::Module;

class VadDecisions : public testing::Test {
protected:
    std::vector<Decision> decide(const Samples& samples, std::uint32_t stream = 0) {
        std::vector<Decision> decisions;
        for (std::size_t n = 0; n < signals::frames(samples); ++n) {
            decisions.push_back(vad.process(stream, signals::frame(samples, n)));
        }
        return decisions;
    }

    static double speech_share(std::span<const Decision> decisions) {
        const auto speech = std::ranges::count_if(decisions, &Decision::speech);
        return static_cast<double>(speech) / static_cast<double>(decisions.size());
    }

    // Frames sent to the engine: speech, and the pre-roll before each onset.
    static std::vector<bool> sent(std::span<const Decision> decisions) {
        std::vector<bool> result(decisions.size());
        for (std::size_t n = 0; n < decisions.size(); ++n) {
            result[n] = decisions[n].speech;
            for (std::size_t back = 1; back <= decisions[n].pre_roll_frames && back <= n; ++back) {
                result[n - back] = true;
            }
        }
        return result;
    }

    Instance vad{Module::load(VAD_MODULE)};
};

TEST_F(VadDecisions, SilenceIsDroppedWithoutASpectrum) {
    const auto decisions = decide(Samples(200 * voice::vad::kFrameSamples));
    EXPECT_EQ(speech_share(decisions), 0);
    EXPECT_TRUE(std::ranges::all_of(std::span(decisions).subspan(30), &Decision::gated));
    EXPECT_TRUE(std::ranges::none_of(decisions, &Decision::fallback));
}

TEST_F(VadDecisions, AYoungStreamErrsToSpeech) {
    const auto decisions = decide(signals::noise(2, 500, 1));
    EXPECT_TRUE(decisions[0].learning);
    EXPECT_TRUE(decisions[0].speech);
    EXPECT_FALSE(decisions[30].learning);
    EXPECT_LE(speech_share(std::span(decisions).subspan(30)), 0.05);
}

TEST_F(VadDecisions, LongNoiseIsLearnt) {
    for (const double rms : {20.0, 300.0, 3000.0}) {
        vad.reset(0);
        const auto decisions = decide(signals::noise(20, rms, 2));
        EXPECT_LE(speech_share(std::span(decisions).subspan(50)), 0.05) << rms;
    }
}

TEST_F(VadDecisions, LouderNoiseIsLearntInSeconds) {
    const auto decisions = decide(signals::then(signals::noise(5, 30, 3), signals::noise(20, 500, 4)));
    EXPECT_LE(speech_share(std::span(decisions).subspan(250 + 5 * signals::kFramesPerSecond)), 0.05);
}

TEST_F(VadDecisions, NoiseAfterDigitalSilenceIsLearntAsAtAStart) {
    const auto decisions = decide(signals::then(Samples(250 * voice::vad::kFrameSamples), signals::noise(10, 500, 15)));
    EXPECT_EQ(speech_share(std::span(decisions).first(250)), 0);
    EXPECT_LE(speech_share(std::span(decisions).subspan(250 + signals::kFramesPerSecond)), 0.05);
}

TEST_F(VadDecisions, ASteadyToneIsNotSpeechForLong) {
    const auto decisions = decide(signals::mixed(signals::tone(20, 440, 5000), signals::noise(20, 10, 5)));
    EXPECT_LE(speech_share(std::span(decisions).subspan(10 * signals::kFramesPerSecond)), 0.1);
}

// 104 is -50 dBFS.
TEST_F(VadDecisions, ARoomIsNotSpeechForLong) {
    for (const double rms : {33.0, 104.0}) {
        vad.reset(0);
        const auto decisions = decide(signals::rumble(30, rms, 17));
        EXPECT_LE(speech_share(std::span(decisions).subspan(2 * signals::kFramesPerSecond)), 0.1) << rms;
    }
}

TEST_F(VadDecisions, ARoomAfterMuteIsNotSpeechForLong) {
    const auto decisions = decide(signals::then(Samples(500 * voice::vad::kFrameSamples), signals::rumble(30, 104, 18)));
    EXPECT_LE(speech_share(std::span(decisions).subspan(500 + 2 * signals::kFramesPerSecond)), 0.1);
}

TEST_F(VadDecisions, RingingIsNotSpeechForLong) {
    const auto american = decide(signals::ringing(30, 440, 480, 2, 4));
    EXPECT_LE(speech_share(std::span(american).subspan(2 * signals::kFramesPerSecond)), 0.02);
    vad.reset(0);
    const auto european = decide(signals::ringing(30, 425, 425, 1, 4));
    EXPECT_LE(speech_share(std::span(european).subspan(7 * signals::kFramesPerSecond)), 0.02) << "from the second ring on";
}

TEST_F(VadDecisions, AVoiceAfterRingingIsSpeech) {
    const auto line = signals::noise(5, 4, 19);
    const auto voice = signals::mixed(signals::voice_like(5, 4000), line);
    const auto decisions = decide(signals::then(signals::ringing(12, 440, 480, 2, 4), voice));
    EXPECT_GE(speech_share(std::span(decisions).subspan(12 * signals::kFramesPerSecond + 5)), 0.95);
}

TEST_F(VadDecisions, ABusyLineIsNotSpeechForLong) {
    struct Tone {
        double first, second, on;
    };
    for (const auto [first, second, on] : {Tone{480, 620, 0.5}, {425, 425, 0.5}, {480, 620, 0.25}, {425, 425, 0.25}}) {
        vad.reset(0);
        const auto decisions = decide(signals::ringing(30, first, second, on, on));
        EXPECT_LE(speech_share(std::span(decisions).subspan(2 * signals::kFramesPerSecond)), 0.01) << first << ", " << on;
    }
}

TEST_F(VadDecisions, MusicOnHoldIsNotSpeechForLong) {
    const auto decisions = decide(signals::music(30));
    EXPECT_LE(speech_share(std::span(decisions).subspan(2 * signals::kFramesPerSecond)), 0.02);
}

TEST_F(VadDecisions, AVoiceAfterMusicIsSpeech) {
    const auto voice = signals::mixed(signals::voice_like(3, 4000), signals::noise(3, 4, 21));
    const auto reached = sent(decide(signals::then(signals::music(20), voice)));
    EXPECT_GE(std::count(reached.begin() + 1000, reached.end(), true), 130);
}

TEST_F(VadDecisions, VoiceIsSpeech) {
    for (const double pitch : {100.0, 160.0, 230.0}) {
        vad.reset(0);
        const auto quiet = signals::noise(5, 30, 6);
        const auto samples =
            signals::mixed(signals::then(quiet, signals::voice_like(5, 4000, pitch)), signals::noise(10, 30, 7));
        const auto decisions = decide(samples);
        EXPECT_LE(speech_share(std::span(decisions).subspan(50, 200)), 0.05) << pitch;
        EXPECT_GE(speech_share(std::span(decisions).subspan(255, 245)), 0.98) << pitch;
    }
}

TEST_F(VadDecisions, AnOnsetIsKeptByThePreRoll) {
    const auto samples = signals::mixed(signals::then(signals::noise(4, 30, 8), signals::voice_like(2, 4000)),
                                        signals::noise(6, 30, 9));
    const auto decisions = decide(samples);
    const auto onset = std::ranges::find_if(decisions.begin() + 100, decisions.end(), &Decision::onset);
    ASSERT_NE(onset, decisions.end());
    EXPECT_GE(onset->pre_roll_frames, 3);
    EXPECT_LE(onset->pre_roll_frames, voice::vad::kMaxPreRoll);
    const auto reached = sent(decisions);
    for (std::size_t n = 200; n < 210; ++n) {
        EXPECT_TRUE(reached[n]) << n;
    }
    EXPECT_FALSE(reached[180]);
}

TEST_F(VadDecisions, SpeechHangsOverAndEnds) {
    const auto voice = signals::then(signals::noise(4, 30, 10), signals::voice_like(2, 4000));
    const auto decisions = decide(signals::then(voice, signals::noise(4, 30, 11)));
    EXPECT_TRUE(decisions[300].speech) << "the frame after the last voiced one";
    EXPECT_LE(speech_share(std::span(decisions).subspan(320)), 0.05);
}

TEST_F(VadDecisions, AResetStreamStartsAnew) {
    const auto samples = signals::then(signals::noise(2, 200, 12), signals::voice_like(1, 3000));
    const auto first = decide(samples, 7);
    vad.reset(7);
    const auto second = decide(samples, 7);
    for (std::size_t n = 0; n < first.size(); ++n) {
        ASSERT_EQ(first[n].speech, second[n].speech) << n;
        ASSERT_EQ(first[n].gated, second[n].gated) << n;
    }
}

TEST_F(VadDecisions, FourThousandStreamsDecideAsEachAlone) {
    constexpr std::uint32_t kStreams = 4000;
    constexpr std::size_t kKinds = 8;
    std::vector<Samples> inputs;
    std::vector<std::vector<Decision>> alone;
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
        const auto background = signals::noise(1.2, 20.0 * static_cast<double>(1 + kind), static_cast<std::uint32_t>(kind));
        const auto voice = signals::voice_like(1.2, 500.0 * static_cast<double>(kind), 90 + 20.0 * static_cast<double>(kind));
        inputs.push_back(signals::mixed(voice, background));
        vad.reset(0);
        alone.push_back(decide(inputs.back()));
    }
    vad.reset(0);
    std::size_t different = 0;
    for (std::size_t n = 0; n < alone[0].size(); ++n) {
        for (std::uint32_t stream = 0; stream < kStreams; ++stream) {
            const std::size_t kind = stream % kKinds;
            const auto decision = vad.process(stream, signals::frame(inputs[kind], n));
            const auto& expected = alone[kind][n];
            different += decision.speech != expected.speech || decision.gated != expected.gated ? 1 : 0;
        }
    }
    EXPECT_EQ(different, 0U);
}

// The same source, built natively. Not asserted on arm64, where compilers may fuse operations that others round.
TEST_F(VadDecisions, TheNativeBuildAgrees) {
    vad_init();
    vad_reset(0);
    auto* into = reinterpret_cast<std::int16_t*>(vad_frame_offset());
    const auto samples = signals::mixed(signals::then(signals::noise(4, 200, 13), signals::voice_like(6, 3000)),
                                        signals::noise(10, 150, 14));
    std::size_t different = 0;
    for (std::size_t n = 0; n < signals::frames(samples); ++n) {
        const auto frame = signals::frame(samples, n);
        std::ranges::copy(frame, into);
        different += ((vad_process(0) & VAD_SPEECH) != 0) != vad.process(0, frame).speech ? 1 : 0;
    }
#ifdef __x86_64__
    EXPECT_EQ(different, 0U);
#else
    EXPECT_LE(different, signals::frames(samples) / 100);
#endif
}

}  // namespace
