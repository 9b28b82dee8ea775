#include "rtp/jitter_buffer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace {

using voice::rtp::JitterBuffer;
using Arrival = JitterBuffer::Arrival;

// A stream whose frames contain their sequence number as every sample, and its output.
class Stream {
public:
    // `late_by`: frames by which its timestamp is ahead of its sequence.
    Arrival send(int sequence, int late_by = 0) {
        const auto number = static_cast<std::uint16_t>(sequence);
        std::array<std::uint8_t, voice::rtp::kFrameBytes> payload{};
        for (std::size_t i = 0; i < payload.size(); i += 2) {
            payload[i] = static_cast<std::uint8_t>(number >> 8);
            payload[i + 1] = static_cast<std::uint8_t>(number);
        }
        voice::rtp::Packet packet;
        packet.sequence = number;
        packet.timestamp = static_cast<std::uint32_t>((sequence + late_by) * 320);
        packet.payload = payload;
        auto arrival = buffer.insert(packet);
        if (arrival == Arrival::kBeyond) {
            while (buffer.run_out()) {
                hear();
            }
            skipped += buffer.skip_to(packet);
            EXPECT_EQ(buffer.insert(packet), Arrival::kHeld);
        }
        while (buffer.next()) {
            hear();
        }
        return arrival;
    }
    void send_no_audio(int sequence) {
        voice::rtp::Packet packet;
        packet.sequence = static_cast<std::uint16_t>(sequence);
        buffer.pass(packet);
    }
    void hear() {
        const auto frame = buffer.frame();
        heard.push_back(frame.concealed ? kLost : frame.made_up ? kPause : static_cast<std::uint16_t>(frame.samples.back()));
    }

    static constexpr int kLost = -1;
    static constexpr int kPause = -2;
    JitterBuffer buffer;
    std::uint32_t skipped = 0;
    std::vector<int> heard;
};

TEST(JitterBuffer, HearsAStreamAsItComes) {
    Stream stream;
    for (int n = 100; n < 120; ++n) {
        EXPECT_EQ(stream.send(n), Arrival::kHeld);
    }
    std::vector<int> all(20);
    std::iota(all.begin(), all.end(), 100);
    EXPECT_EQ(stream.heard, all);
}

TEST(JitterBuffer, PutsPacketsBackInOrder) {
    Stream stream;
    for (const int n : {10, 12, 13, 11, 14}) {
        stream.send(n);
    }
    EXPECT_EQ(stream.heard, (std::vector{10, 11, 12, 13, 14}));
}

TEST(JitterBuffer, FillsALossOnceItHasWaited) {
    Stream stream;
    for (const int n : {10, 12, 13, 14}) {
        stream.send(n);
    }
    EXPECT_EQ(stream.heard, (std::vector{10})) << "11 may still come";
    stream.send(15);
    EXPECT_EQ(stream.heard, (std::vector{10, Stream::kLost, 12, 13, 14, 15}));
    EXPECT_EQ(stream.send(11), Arrival::kLate);
}

TEST(JitterBuffer, SaysWhenALossHasFadedToSilence) {
    constexpr std::uint8_t kLoud = 0x40;
    JitterBuffer buffer;
    voice::rtp::Packet packet;
    const std::vector<std::uint8_t> payload(voice::rtp::kFrameBytes, kLoud);
    packet.payload = payload;
    int faded = 0;
    for (const auto sequence : std::initializer_list<std::uint16_t>{10, 18, 19, 20, 21}) {
        packet.sequence = sequence;
        packet.timestamp = 320U * sequence;
        buffer.insert(packet);
        while (buffer.next()) {
            const auto frame = buffer.frame();
            const bool silent = std::ranges::all_of(frame.samples, [](auto sample) { return sample == 0; });
            EXPECT_EQ(frame.faded, silent);
            faded += frame.faded ? 1 : 0;
        }
    }
    EXPECT_EQ(faded, 3) << "11 to 14 fade; 15, 16 and 17 are silent; what came is heard";
}

TEST(JitterBuffer, HearsADuplicateOnce) {
    Stream stream;
    stream.send(10);
    EXPECT_EQ(stream.send(12), Arrival::kHeld);
    EXPECT_EQ(stream.send(12), Arrival::kDuplicate);
    EXPECT_EQ(stream.send(10), Arrival::kDuplicate);
    stream.send(11);
    EXPECT_EQ(stream.heard, (std::vector{10, 11, 12}));
}

TEST(JitterBuffer, WrapsAround) {
    Stream stream;
    for (const int n : {65533, 65535, 65534, 65536, 65538, 65537, 65539}) {
        EXPECT_EQ(stream.send(n), Arrival::kHeld) << n;
    }
    EXPECT_EQ(stream.heard, (std::vector{65533, 65534, 65535, 0, 1, 2, 3}));
}

TEST(JitterBuffer, ALossAcrossTheWrapIsFilled) {
    Stream stream;
    for (const int n : {65534, 65536, 65537, 65538, 65539}) {
        stream.send(n);
    }
    EXPECT_EQ(stream.heard, (std::vector{65534, Stream::kLost, 0, 1, 2, 3}));
}

TEST(JitterBuffer, ASenderThatStartsOverIsHeardFromItsSecondPacket) {
    Stream stream;
    stream.send(10);
    EXPECT_EQ(stream.send(40000), Arrival::kSuspicious);
    EXPECT_EQ(stream.send(40001), Arrival::kRestarted);
    EXPECT_EQ(stream.send(40002), Arrival::kHeld);
    EXPECT_EQ(stream.heard, (std::vector{10, 40001, 40002}));
}

TEST(JitterBuffer, OneStrayPacketChangesNothing) {
    Stream stream;
    stream.send(10);
    EXPECT_EQ(stream.send(40000), Arrival::kSuspicious);
    EXPECT_EQ(stream.send(11), Arrival::kHeld);
    EXPECT_EQ(stream.send(40001), Arrival::kSuspicious) << "it follows the stray one, but not at once";
    EXPECT_EQ(stream.heard, (std::vector{10, 11}));
}

TEST(JitterBuffer, TellsHowMuchALossLeavesOutThatIsTooLongToFill) {
    Stream stream;
    stream.send(10);
    stream.send(12);
    EXPECT_EQ(stream.send(113), Arrival::kBeyond);
    EXPECT_EQ(stream.heard, (std::vector{10, Stream::kLost, 12, 113})) << "what was held is heard first";
    EXPECT_EQ(stream.skipped, 100U);
}

TEST(JitterBuffer, ThePacketsOfAPauseAreNotLost) {
    Stream stream;
    stream.send(10);
    stream.send(11, 6);
    stream.send(12, 6);
    stream.send(13, 6);
    stream.send(14, 6);
    EXPECT_EQ(stream.heard, (std::vector{10, -2, -2, -2, -2, -2, -2, 11, 12, 13, 14}));
    EXPECT_EQ(stream.send(15, 56), Arrival::kBeyond);
    EXPECT_EQ(stream.skipped, 50U);
    EXPECT_EQ(stream.heard.back(), 15);
}

TEST(JitterBuffer, APauseMayLastMinutes) {
    Stream stream;
    stream.send(10);
    EXPECT_EQ(stream.send(11, 3'100), Arrival::kBeyond);
    EXPECT_EQ(stream.skipped, 3'100U);
    EXPECT_EQ(stream.heard, (std::vector{10, 11}));
}

TEST(JitterBuffer, PacketsWithoutAudioAreNotLost) {
    Stream stream;
    stream.send(10);
    stream.send_no_audio(11);
    stream.send_no_audio(12);
    for (const int n : {13, 14, 15, 16, 17}) {
        stream.send(n);
    }
    EXPECT_EQ(stream.heard, (std::vector{10, -2, -2, 13, 14, 15, 16, 17}));
}

TEST(JitterBuffer, ASenderThatStopsItsClockLosesNothing) {
    Stream stream;
    stream.send(10);
    for (int n = 0; n < JitterBuffer::kFadeFrames; ++n) {
        stream.buffer.make_up(false);
    }
    EXPECT_TRUE(stream.buffer.frame().faded);
    EXPECT_EQ(stream.send(11), Arrival::kHeld) << "its time was taken by what was made up";
    EXPECT_EQ(stream.send(12), Arrival::kHeld);
    EXPECT_EQ(stream.heard, (std::vector{10, 11, 12}));
}

TEST(JitterBuffer, APacketThatIsVeryLateIsNoNewStream) {
    Stream stream;
    for (int n = 100; n < 200; ++n) {
        stream.send(n);
    }
    const auto heard = stream.heard;
    for (const int n : {180, 181, 182, 101, 102}) {  // 400 ms and two seconds late
        EXPECT_NE(stream.send(n), Arrival::kRestarted) << n;
    }
    EXPECT_EQ(stream.heard, heard) << "old audio is heard once";
    EXPECT_EQ(stream.send(200), Arrival::kHeld);
}

TEST(JitterBuffer, ATimeHalfTheClockAwayIsAClockThatWasSet) {
    Stream stream;
    stream.send(100);
    for (const std::uint32_t away : {0x7fff'ffffU, 0x8000'0000U, 0x8000'0001U}) {
        JitterBuffer buffer = stream.buffer;
        const std::array<std::uint8_t, voice::rtp::kFrameBytes> payload{};
        voice::rtp::Packet packet;
        packet.sequence = 101;
        packet.timestamp = 101 * 320 + away;
        packet.payload = payload;
        EXPECT_EQ(buffer.insert(packet), Arrival::kHeld);
        EXPECT_TRUE(buffer.next());
    }
}

TEST(JitterBuffer, RefusesWhatIsNotTwentyMilliseconds) {
    JitterBuffer buffer;
    const std::array<std::uint8_t, 638> payload{};
    voice::rtp::Packet packet;
    packet.payload = payload;
    EXPECT_EQ(buffer.insert(packet), Arrival::kMalformed);
    EXPECT_FALSE(buffer.next());
}

TEST(JitterBuffer, ConcealmentFadesToSilence) {
    Stream stream;
    stream.send(10'000);  // every sample is 10,000
    std::vector<int> levels;
    for (const int later : {10'006, 10'007, 10'008, 10'009, 10'010}) {
        voice::rtp::Packet packet;
        const std::array<std::uint8_t, voice::rtp::kFrameBytes> silence{};
        packet.sequence = static_cast<std::uint16_t>(later);
        packet.timestamp = static_cast<std::uint32_t>(later) * 320;
        packet.payload = silence;
        stream.buffer.insert(packet);
        while (stream.buffer.next()) {
            if (stream.buffer.frame().concealed) {
                levels.push_back(stream.buffer.frame().samples[0]);
            }
        }
    }
    ASSERT_EQ(levels.size(), 5U);
    EXPECT_EQ(levels, (std::vector{8000, 6000, 4000, 2000, 0}));
}

// Whatever the network does within the window, frames are in order and unique, and losses are counted.
TEST(JitterBuffer, HoldsItsPromiseForRandomNetworks) {
    for (std::uint32_t seed = 1; seed <= 200; ++seed) {
        std::mt19937 random(seed);
        std::vector<int> sent;
        std::set<int> lost;
        const int first = 65536 - 50;
        for (int n = first; n < first + 400; ++n) {
            // The first two packets arrive: a stream starts with the first arrival.
            if (n > first + 1 && random() % 50 == 0 && !lost.contains(n - 1)) {
                lost.insert(n);
            } else {
                sent.push_back(n);
            }
        }
        for (std::size_t i = 2; i + 1 < sent.size(); ++i) {
            if (random() % 10 == 0) {
                std::swap(sent[i], sent[i + 1]);
                ++i;
            }
        }
        Stream stream;
        for (const int n : sent) {
            stream.send(n);
        }
        int expected = first;
        for (const int frame : stream.heard) {
            ASSERT_EQ(frame, lost.contains(expected) ? Stream::kLost : expected % 65536) << "seed " << seed;
            ++expected;
        }
        ASSERT_GE(expected, first + 400 - JitterBuffer::kWait - 1) << "seed " << seed;
    }
}

}  // namespace
