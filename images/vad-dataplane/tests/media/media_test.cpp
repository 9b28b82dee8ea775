// Decoders against independent implementations (ffmpeg, libopus's encoder), with reordering, losses and pauses.
#include <gtest/gtest.h>
#include <opus/opus.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "media/g711.hpp"
#include "media/decoder.hpp"
#include "media/transcoder.hpp"

namespace {

using namespace voice::media;
using Arrival = Transcoder::Arrival;
using Bytes = std::vector<std::uint8_t>;

constexpr double kTone = 440;
constexpr double kLevel = 8000;

double tone_at(double second) { return kLevel * std::sin(2 * std::numbers::pi * kTone * second); }

Description described(const char* text) {
    const auto found = read_description(text);
    EXPECT_TRUE(found) << text;
    return found.value_or(Description{});
}

// A tone as L16: with two channels only in the first, twice as loud.
Bytes l16(const Description& media, std::size_t first, std::size_t count) {
    Bytes made;
    for (std::size_t i = first; i < first + count; ++i) {
        const double value = tone_at(static_cast<double>(i) / media.rate) * media.channels;
        for (std::uint32_t channel = 0; channel < media.channels; ++channel) {
            const auto sample = static_cast<std::uint16_t>(static_cast<std::int16_t>(channel == 0 ? value : 0));
            made.push_back(static_cast<std::uint8_t>(sample >> 8));
            made.push_back(static_cast<std::uint8_t>(sample));
        }
    }
    return made;
}

// Relative difference between samples at 16 kHz and the tone, independent of the delay.
double error_of(const std::vector<std::int16_t>& heard) {
    // Least squares of a sine and a cosine; the residue is the error.
    double ss = 0, cc = 0, sc = 0, xs = 0, xc = 0, xx = 0;
    for (std::size_t i = 1600; i < heard.size(); ++i) {  // after the filters have settled
        const double angle = 2 * std::numbers::pi * kTone * static_cast<double>(i) / kRate;
        const double s = std::sin(angle), c = std::cos(angle), x = heard[i];
        ss += s * s, cc += c * c, sc += s * c, xs += x * s, xc += x * c, xx += x * x;
    }
    const double base = ss * cc - sc * sc, a = (xs * cc - xc * sc) / base, b = (xc * ss - xs * sc) / base;
    EXPECT_NEAR(std::hypot(a, b), kLevel, kLevel * 0.03) << "as loud as it was sent";
    return std::sqrt(std::max(0.0, xx - a * xs - b * xc) / xx);
}

// A session's packets, and the resulting frames.
class Stream {
public:
    explicit Stream(const Description& media) : transcoder(Transcoder::create(media)) {}

    Arrival send(std::uint16_t sequence, std::uint32_t timestamp, const Bytes& payload, bool is_audio = true) {
        voice::rtp::Packet packet;
        packet.is_audio = is_audio;
        packet.sequence = sequence;
        packet.timestamp = timestamp;
        packet.payload = payload;
        Arrival arrival = transcoder->insert(packet);
        if (arrival == Arrival::kBeyond) {
            while (const auto packet_made = transcoder->run_out()) {
                take(*packet_made);
            }
            transcoder->skip_to(packet);
            EXPECT_EQ(transcoder->insert(packet), Arrival::kHeld);
        }
        while (const auto packet_made = transcoder->next()) {
            take(*packet_made);
        }
        return arrival;
    }

    struct Made {
        std::uint16_t sequence;
        std::uint32_t timestamp;
    };
    std::unique_ptr<Transcoder> transcoder;
    std::vector<Made> made;
    std::vector<std::uint16_t> without_audio;
    std::vector<std::int16_t> heard;

private:
    void take(const voice::rtp::Packet& packet) {
        if (!packet.is_audio) {
            without_audio.push_back(packet.sequence);
            return;
        }
        ASSERT_EQ(packet.payload.size(), voice::rtp::kFrameBytes);
        made.push_back({packet.sequence, packet.timestamp});
        for (std::size_t i = 0; i < packet.payload.size(); i += 2) {
            heard.push_back(static_cast<std::int16_t>(packet.payload[i] << 8 | packet.payload[i + 1]));
        }
    }
};

TEST(Description, IsWrittenInTheWordsOfSdp) {
    EXPECT_EQ(described("96 L16/16000/1 20"), Description{});
    EXPECT_EQ(described("0 PCMU/8000/1 20"), (Description{0, Codec::kPcmu, 8000, 1, 20}));
    EXPECT_EQ(described("111 opus/48000/2 60"), (Description{111, Codec::kOpus, 48000, 2, 60}));
}

TEST(Description, NamesItsTelephoneEvents) {
    const auto types = [](const char* text) {
        std::vector<std::size_t> found;
        const auto media = described(text);
        for (std::size_t type = 0; type < media.without_audio.size(); ++type) {
            if (media.without_audio.test(type)) {
                found.push_back(type);
            }
        }
        return found;
    };
    EXPECT_EQ(types("111 opus/48000/2 20"), (std::vector<std::size_t>{13, 101}));
    EXPECT_EQ(types("111 opus/48000/2 20 110,126"), (std::vector<std::size_t>{13, 110, 126}));
    EXPECT_EQ(described("101 opus/48000/2 20 102").payload_type, 101) << "101 is a telephone event by custom alone";
}

class NoDescription : public ::testing::TestWithParam<const char*> {};

TEST_P(NoDescription, IsRefused) { EXPECT_FALSE(read_description(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Each, NoDescription,
                         ::testing::Values("", "64 L16/16000/1 20", "72 L16/16000/1 20", "95 L16/16000/1 20",
                                           "96 L16/16000/1 20 x", "96 L16/16000/1 20 8", "96 L16/16000/1 20 128",
                                           "96 L16/16000/1 20 96", "96", "x L16/16000/1 20", "9 G722/8000/1 20", "128 L16/16000/1 20",
                                           "256 L16/16000/1 20", "13 L16/16000/1 20", "101 L16/16000/1 20",
                                           "96 L16/7999/1 20", "96 L16/48001/1 20", "96 L16/16000/3 20",
                                           "96 L16/16000/0 20", "96 L16/16000/1 9", "96 L16/16000/1 61",
                                           "96 L16/16000/1 20 ", "96 L16/11025/1 10", "96 L16/48000/2 10",
                                           "0 PCMU/16000/1 20", "8 PCMA/8000/2 20", "111 opus/16000/1 20"));

TEST(Decoder, KnowsEveryCodeOfG711) {
    Bytes codes(256);
    for (std::size_t i = 0; i < codes.size(); ++i) {
        codes[i] = static_cast<std::uint8_t>(i);
    }
    // Without its resampler, which 16 kHz does not need.
    for (const auto& [codec, expected] : {std::pair{Codec::kPcmu, test::kMuLaw}, {Codec::kPcma, test::kALaw}}) {
        const auto decoder = Decoder::create({.codec = codec, .rate = kRate});
        EXPECT_TRUE(std::ranges::equal(decoder->decode(codes), expected));
    }
}

class L16 : public ::testing::TestWithParam<const char*> {};

TEST_P(L16, IsHeardAsItWasSaid) {
    const Description media = described(GetParam());
    const std::uint32_t ticks = media.rate * media.packet_ms / 1000;
    Stream stream(media);
    const std::uint32_t packets = 2000 / media.packet_ms;
    for (std::uint32_t n = 0; n < packets; ++n) {
        ASSERT_EQ(stream.send(static_cast<std::uint16_t>(65'530 + n), n * ticks, l16(media, n * ticks, ticks)),
                  Arrival::kHeld);
    }
    const double rest = std::fmod(packets * media.packet_ms, 20.0);
    EXPECT_NEAR(static_cast<double>(stream.made.size()), (packets * media.packet_ms - rest) / 20, 1);
    for (std::size_t i = 1; i < stream.made.size(); ++i) {
        ASSERT_EQ(stream.made[i].sequence, static_cast<std::uint16_t>(stream.made[0].sequence + i));
        ASSERT_EQ(stream.made[i].timestamp - stream.made[0].timestamp, 320 * i);
    }
    EXPECT_LT(error_of(stream.heard), 0.01);
}

INSTANTIATE_TEST_SUITE_P(Each, L16,
                         ::testing::Values("96 L16/8000/1 20", "96 L16/8000/2 40", "96 L16/8000/1 60",
                                           "96 L16/16000/1 10", "96 L16/16000/2 20", "96 L16/16000/1 40",
                                           "96 L16/16000/1 15", "96 L16/16000/1 33", "96 L16/22050/1 20",
                                           "96 L16/24000/2 10", "96 L16/32000/1 20", "96 L16/44100/1 10",
                                           "96 L16/48000/1 10", "96 L16/48000/1 15"));

TEST(Decoder, HearsOpus) {
    for (const int ms : {10, 20, 40, 60}) {
        int error = 0;
        OpusEncoder* encoder = opus_encoder_create(48'000, 2, OPUS_APPLICATION_AUDIO, &error);
        ASSERT_EQ(error, OPUS_OK);
        opus_encoder_ctl(encoder, OPUS_SET_BITRATE(96'000));
        Stream stream(described("111 opus/48000/2 20"));  // whatever its packets last
        const int count = 48 * ms;
        for (int n = 0; n < 2000 / ms; ++n) {
            std::vector<std::int16_t> said;
            for (int i = n * count; i < (n + 1) * count; ++i) {
                said.insert(said.end(), 2, static_cast<std::int16_t>(tone_at(i / 48'000.0)));
            }
            Bytes payload(1400);
            payload.resize(static_cast<std::size_t>(
                opus_encode(encoder, said.data(), count, payload.data(), static_cast<int>(payload.size()))));
            ASSERT_EQ(stream.send(static_cast<std::uint16_t>(n), static_cast<std::uint32_t>(n * count), payload), Arrival::kHeld);
        }
        opus_encoder_destroy(encoder);
        EXPECT_NEAR(static_cast<double>(stream.made.size()), 100, 1) << ms << " ms";
        EXPECT_LT(error_of(stream.heard), 0.05) << ms << " ms";
    }
}

// G.711 of 30 ms: a frame ends in the middle of every second packet.
struct Telephone {
    static constexpr std::uint32_t kTicks = 240;
    Stream stream{described("0 PCMU/8000/1 30")};
    Arrival send(std::uint16_t n, std::uint32_t paused = 0) {
        return stream.send(n, (n + paused) * kTicks, Bytes(kTicks, 0x80));
    }
};

TEST(Transcoder, PutsPacketsBackInOrder) {
    Telephone phone;
    for (const auto n : std::initializer_list<std::uint16_t>{10, 12, 11, 13, 14}) {
        EXPECT_EQ(phone.send(n), Arrival::kHeld);
    }
    ASSERT_EQ(phone.stream.made.size(), 7U);
    EXPECT_EQ(phone.stream.made.back().sequence - phone.stream.made.front().sequence, 6);
}

TEST(Transcoder, ALossIsAGapInNumbersAndInTime) {
    Telephone phone;
    for (const auto n : std::initializer_list<std::uint16_t>{10, 11, 14, 15, 16, 17}) {
        phone.send(n);
    }
    EXPECT_EQ(phone.send(12), Arrival::kLate);
    const auto& made = phone.stream.made;
    ASSERT_EQ(made.size(), 3U + 6U) << "60 ms, a gap of as much, and 120 ms";
    EXPECT_EQ(made[3].sequence - made[2].sequence, 2);
    EXPECT_EQ(made[3].timestamp - made[2].timestamp, 320U * 4);
}

TEST(Transcoder, APauseIsAGapInTimeAlone) {
    Telephone phone;
    phone.send(10);
    phone.send(11);
    phone.send(12, 100);
    phone.send(13, 100);
    const auto& made = phone.stream.made;
    ASSERT_EQ(made.size(), 6U);
    EXPECT_EQ(made[3].sequence - made[2].sequence, 1);
    EXPECT_EQ(made[3].timestamp - made[2].timestamp, 320U + 48'000);
}

TEST(Transcoder, APauseMayLastMinutes) {
    Telephone phone;
    phone.send(10);
    phone.send(11);
    phone.send(12, 3'100);
    phone.send(13, 3'100);
    const auto& made = phone.stream.made;
    ASSERT_EQ(made.size(), 6U);
    EXPECT_EQ(made[3].sequence - made[2].sequence, 1);
    EXPECT_EQ(made[3].timestamp - made[2].timestamp, 320U + 3'100 * 480);
}

TEST(Transcoder, ALongGapIsOne) {
    Telephone phone;
    phone.send(10);
    phone.send(11);
    EXPECT_EQ(phone.send(111), Arrival::kBeyond);
    phone.send(112);
    const auto& made = phone.stream.made;
    ASSERT_EQ(made.size(), 6U);
    EXPECT_EQ(made[3].sequence - made[2].sequence, 2);
    EXPECT_EQ(made[3].timestamp - made[2].timestamp, 320U * (1 + 99 * 480 / 320)) << "on the grid of 20 ms";
}

TEST(Transcoder, PacketsWithoutAudioPassAndAreNotLost) {
    Telephone phone;
    phone.send(10);
    phone.send(11);
    EXPECT_EQ(phone.stream.send(12, 12 * Telephone::kTicks, Bytes(1), false), Arrival::kHeld);
    phone.send(13);
    const auto& made = phone.stream.made;
    ASSERT_EQ(phone.stream.without_audio.size(), 1U);
    ASSERT_GE(made.size(), 4U);
    EXPECT_EQ(phone.stream.without_audio[0] - made[2].sequence, 1);
    EXPECT_EQ(made[3].sequence - made[2].sequence, 2) << "the number between them is the one that passed";
}

TEST(Transcoder, HearsAPacketOnce) {
    Telephone phone;
    phone.send(10);
    EXPECT_EQ(phone.send(10), Arrival::kDuplicate);
    EXPECT_EQ(phone.send(12), Arrival::kHeld);
    EXPECT_EQ(phone.send(12), Arrival::kDuplicate);
}

TEST(Transcoder, ASenderThatStartsOverIsHeardFromItsSecondPacket) {
    Telephone phone;
    phone.send(10);
    EXPECT_EQ(phone.send(40'000), Arrival::kSuspicious);
    EXPECT_EQ(phone.send(40'001), Arrival::kRestarted);
    EXPECT_EQ(phone.send(40'002), Arrival::kHeld);
    const auto& made = phone.stream.made;
    EXPECT_EQ(made.back().timestamp - made.front().timestamp, 320 * (made.size() - 1)) << "it follows what was heard";
}

TEST(Transcoder, RefusesWhatWasNotDescribed) {
    Telephone phone;
    EXPECT_EQ(phone.stream.send(1, 0, Bytes(160, 0xff)), Arrival::kMalformed);
    Stream opus(described("111 opus/48000/2 20"));
    EXPECT_EQ(opus.send(1, 0, {}), Arrival::kMalformed);
    EXPECT_EQ(opus.send(1, 0, Bytes{0xff, 0x00}), Arrival::kMalformed) << "no frames";
}

// A voice-like sound: a chord whose level swells, which the encoder classifies as speech.
std::vector<std::int16_t> swelling(std::size_t samples) {
    std::vector<std::int16_t> made;
    for (std::size_t i = 0; i < samples; ++i) {
        const double second = static_cast<double>(i) / 48'000;
        double value = 0;
        for (const double partial : {1.0, 2.0, 3.0, 4.0}) {
            value += std::sin(2 * std::numbers::pi * 150 * partial * second) / partial;
        }
        made.push_back(static_cast<std::int16_t>(4000 * value * (0.6 + 0.4 * std::sin(2 * std::numbers::pi * 3 * second))));
    }
    return made;
}

// Opus from a telephone, with or without a copy of each packet in the next one.
std::vector<Bytes> opus_packets(std::size_t count, bool with_copies) {
    int error = 0;
    OpusEncoder* encoder = opus_encoder_create(48'000, 1, OPUS_APPLICATION_VOIP, &error);
    opus_encoder_ctl(encoder, OPUS_SET_BITRATE(24'000));
    opus_encoder_ctl(encoder, OPUS_SET_SIGNAL(OPUS_SIGNAL_VOICE));
    opus_encoder_ctl(encoder, OPUS_SET_INBAND_FEC(with_copies ? 1 : 0));
    opus_encoder_ctl(encoder, OPUS_SET_PACKET_LOSS_PERC(with_copies ? 30 : 0));
    const auto sound = swelling(count * 960);
    std::vector<Bytes> made;
    for (std::size_t n = 0; n < count; ++n) {
        Bytes packet(1500);
        packet.resize(static_cast<std::size_t>(opus_encode(encoder, &sound[n * 960], 960, packet.data(), 1500)));
        made.push_back(packet);
    }
    opus_encoder_destroy(encoder);
    return made;
}

// Mean distance between the short-time levels of two sounds in dB, over the stretches of 20 ms in `chosen`.
double distance_db(const std::vector<std::int16_t>& first, const std::vector<std::int16_t>& second,
                   const std::vector<std::size_t>& chosen) {
    double sum = 0;
    for (const std::size_t frame : chosen) {
        double difference = 1, level = 1;
        for (std::size_t i = frame * 320; i < (frame + 1) * 320; ++i) {
            difference += std::pow(first[i] - second[i], 2);
            level += std::pow(second[i], 2);
        }
        sum += 10 * std::log10(difference / level);
    }
    return sum / static_cast<double>(chosen.size());
}

struct Heard {
    std::vector<std::int16_t> samples;
    int gaps = 0;  // in sequence numbers
};

Heard heard_of(const std::vector<Bytes>& packets, const std::vector<std::size_t>& lost) {
    Stream opus(described("111 opus/48000/2 20"));
    for (std::size_t n = 0; n < packets.size(); ++n) {
        if (std::ranges::find(lost, n) == lost.end()) {
            opus.send(static_cast<std::uint16_t>(n), static_cast<std::uint32_t>(n * 960), packets[n]);
        }
    }
    Heard heard{opus.heard};
    for (std::size_t i = 1; i < opus.made.size(); ++i) {
        heard.gaps += opus.made[i].sequence - opus.made[i - 1].sequence != 1 ? 1 : 0;
    }
    return heard;
}

TEST(Transcoder, ALostPacketOfOpusIsDecodedFromItsCopy) {
    const auto packets = opus_packets(300, true);
    // The encoder copies only speech.
    const auto decoder = Decoder::create(described("111 opus/48000/2 20"));
    std::vector<std::size_t> lost;
    for (std::size_t n = 20; n + 10 < packets.size(); ++n) {
        if (decoder->has_previous(packets[n + 1]) && (lost.empty() || n - lost.back() > 4)) {
            lost.push_back(n);
        }
    }
    ASSERT_GE(lost.size(), 5U);
    const Heard whole = heard_of(packets, {}), repaired = heard_of(packets, lost);
    EXPECT_EQ(repaired.gaps, 0) << "nothing is missing";
    ASSERT_EQ(repaired.samples.size(), whole.samples.size());
    EXPECT_LT(distance_db(repaired.samples, whole.samples, lost), -6) << "it sounds like what was lost";
}

TEST(Transcoder, ALostPacketOfOpusWithoutACopyIsAGap) {
    EXPECT_EQ(heard_of(opus_packets(100, false), {10, 20, 30, 31, 50}).gaps, 4);
    const auto packets = opus_packets(300, true);
    const auto decoder = Decoder::create(described("111 opus/48000/2 20"));
    std::size_t copied = 20;
    while (copied + 1 < packets.size() && !decoder->has_previous(packets[copied + 1])) {
        ++copied;
    }
    ASSERT_LT(copied + 10, packets.size());
    Stream opus(described("111 opus/48000/2 20"));
    for (std::size_t n = copied - 10; n < copied + 10; ++n) {
        if (n != copied - 1 && n != copied) {
            opus.send(static_cast<std::uint16_t>(n), static_cast<std::uint32_t>(n * 960), packets[n]);
        }
    }
    ASSERT_GE(opus.made.size(), 10U);
    EXPECT_EQ(opus.made[9].sequence - opus.made[8].sequence, 2) << "of two lost packets one has no copy";
    EXPECT_EQ(opus.made[9].timestamp - opus.made[8].timestamp, 2 * 320U) << "and the other is heard";
}

TEST(Transcoder, BrokenOpusIsSilence) {
    Stream opus(described("111 opus/48000/2 20"));
    for (std::uint16_t n = 0; n < 50; ++n) {
        opus.send(n, n * 960U, Bytes{0xfc, static_cast<std::uint8_t>(n), 0xff, 0x03});
    }
    SUCCEED() << "nothing is written outside";
}

}  // namespace
