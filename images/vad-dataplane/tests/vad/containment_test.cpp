// Modules that break the rules, and the host's response.
#include <gtest/gtest.h>
#include <malloc.h>

#include <string>

#include "../features/allocations.hpp"
#include "signals.hpp"
#include "vad/host.hpp"

namespace {

using voice::vad::Instance;
using voice::vad::LoadError;
using voice::vad::Module;
using voice::vad::Vad;

// The orders of misbehaving.c.
enum Order : std::int16_t { kBehave, kReadOutside, kWriteOutside, kLoop, kRecurse, kExplode, kDivide, kGrow, kCallWrong };

std::array<std::int16_t, voice::vad::kFrameSamples> order(Order what) {
    std::array<std::int16_t, voice::vad::kFrameSamples> frame{};
    frame[0] = what;
    return frame;
}

std::unique_ptr<Instance> instance(const char* path) { return std::make_unique<Instance>(Module::load(path)); }

std::string refusal(const char* path) {
    try {
        instance(path);
    } catch (const LoadError& error) {
        return error.what();
    }
    return "";
}

TEST(VadLoad, RefusesAnotherInterface) {
    EXPECT_EQ(refusal(VAD_WRONG_ABI), "VAD module: offers interface 3, needed is 2");
}

TEST(VadLoad, RefusesAFrameOutsideOfTheModule) {
    EXPECT_EQ(refusal(VAD_FRAME_OUTSIDE), "VAD module: its frame lies outside of its memory, at 4294967292");
}

TEST(VadLoad, RefusesStatesOutsideOfTheModule) {
    EXPECT_EQ(refusal(VAD_STATES_OUTSIDE), "VAD module: its streams' states lie outside of its memory, at 0");
}

TEST(VadLoad, RefusesAModuleThatDoesNotFinishStarting) {
    EXPECT_EQ(refusal(VAD_STARTS_FOR_EVER), "VAD module: stopped while it started, reason 7");
}

TEST(VadLoad, RefusesWhatIsNoModule) {
    EXPECT_NE(refusal("/nowhere/vad.so").find("No such file"), std::string::npos);
    EXPECT_NE(refusal("libm.so.6"), "") << "a bare name is a file here, not a library of the system";
    EXPECT_NE(refusal(SOME_LIBRARY).find("was not made by"), std::string::npos);
}

class VadFault : public testing::TestWithParam<std::pair<Order, Instance::Fault>> {};

TEST_P(VadFault, IsContained) {
    Vad vad(instance(VAD_MISBEHAVING));
    ASSERT_FALSE(vad.process(1, order(kBehave)).fallback);
    const auto [what, fault] = GetParam();
    const auto stopped = vad.process(1, order(what));
    EXPECT_TRUE(stopped.fallback);
    EXPECT_TRUE(stopped.speech) << "nobody is lost";
    EXPECT_TRUE(vad.process(2, order(kBehave)).fallback) << "it is not called again";
    const auto& counters = vad.counters();
    EXPECT_TRUE(counters.stopped);
    EXPECT_EQ(counters.traps, fault == Instance::Fault::kTrap ? 1U : 0U);
    EXPECT_EQ(counters.runaways, fault == Instance::Fault::kRunaway ? 1U : 0U);
    EXPECT_EQ(counters.fallback_frames, 2U);

    vad.offer(instance(VAD_MODULE));
    EXPECT_FALSE(vad.process(1, order(kBehave)).fallback) << "another module takes over";
}

INSTANTIATE_TEST_SUITE_P(All, VadFault,
                         testing::Values(std::pair(kReadOutside, Instance::Fault::kTrap),
                                         std::pair(kWriteOutside, Instance::Fault::kTrap),
                                         std::pair(kLoop, Instance::Fault::kRunaway),
                                         std::pair(kRecurse, Instance::Fault::kRunaway),
                                         std::pair(kExplode, Instance::Fault::kRunaway),
                                         std::pair(kDivide, Instance::Fault::kTrap),
                                         std::pair(kCallWrong, Instance::Fault::kTrap)));

TEST(VadFault, InAResetIsContained) {
    Vad vad(instance(VAD_MISBEHAVING));
    vad.reset(12);
    EXPECT_FALSE(vad.process(12, order(kBehave)).fallback);
    vad.reset(13);
    EXPECT_TRUE(vad.process(12, order(kBehave)).fallback);
    EXPECT_EQ(vad.counters().traps, 1U);
}

TEST(VadFault, OfOneInstanceIsNotTheOthers) {
    Vad broken(instance(VAD_MISBEHAVING));
    Vad whole(instance(VAD_MISBEHAVING));
    EXPECT_TRUE(broken.process(0, order(kLoop)).fallback);
    EXPECT_FALSE(whole.process(0, order(kBehave)).fallback);
}

TEST(VadHost, RefusesMoreMemory) {
    Instance vad(Module::load(VAD_MISBEHAVING));
    const auto decision = vad.process(0, order(kGrow));
    EXPECT_TRUE(decision.speech && !decision.fallback) << "the module is told that there is none";
}

TEST(VadHost, CutsAPreRollThatIsNotKept) {
    Instance vad(Module::load(VAD_MISBEHAVING));
    EXPECT_EQ(vad.process(0, order(kBehave)).pre_roll_frames, voice::vad::kMaxPreRoll);
}

TEST(VadHost, AStreamWithoutAPlaceIsSpeech) {
    Vad vad(instance(VAD_MODULE));
    const std::uint32_t beyond = Instance(Module::load(VAD_MODULE)).streams();
    const auto decision = vad.process(beyond, order(kBehave));
    EXPECT_TRUE(decision.speech && decision.fallback);
    EXPECT_FALSE(vad.process(0, order(kBehave)).fallback) << "the module goes on";
    EXPECT_EQ(vad.counters().traps, 0U);
}

TEST(VadHost, AllocatesNothingPerFrame) {
    Vad vad(instance(VAD_MODULE));
    const auto samples = signals::mixed(signals::voice_like(2, 4000), signals::noise(2, 100, 1));
    vad.offer(instance(VAD_MODULE));
    const std::size_t before = allocations();
    const std::size_t heap = mallinfo2().uordblks;
    std::size_t speech = 0;
    for (std::uint32_t stream = 0; stream < 50; ++stream) {
        vad.reset(stream);
        for (std::size_t n = 0; n < signals::frames(samples); ++n) {
            speech += vad.process(stream, signals::frame(samples, n)).speech ? 1 : 0;
        }
    }
    EXPECT_EQ(allocations(), before);
    EXPECT_EQ(mallinfo2().uordblks, heap);
    EXPECT_GT(speech, 0U);
    EXPECT_EQ(vad.counters().swaps, 1U) << "taking an offered module over is no exception";
}

}  // namespace
