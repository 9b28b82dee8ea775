#include "session/utterances.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "ring/spsc_ring.hpp"

namespace {

using voice::session::Counters;
using voice::vad::Decision;
using voice::session::Utterances;
using Ring = voice::SpscRing<voice_audio_chunk, 128>;

const Decision kSilence{.speech = false};
const Decision kSpeech{.speech = true, .pre_roll_frames = 3};

// A session whose n-th frame contains n + 1 as every sample.
class Session {
public:
    explicit Session(voice_chunk_kind kind = VOICE_CHUNK_PCM16) : utterances(7, kind) {}

    void hear(int frames, const Decision& decision, bool concealed = false) {
        for (int i = 0; i < frames; ++i) {
            audio.ahead(0).fill(static_cast<std::int16_t>(++heard));
            audio.advance();
            utterances.take(audio, concealed, decision, *ring, counters);
        }
    }

    std::vector<voice_audio_chunk> shipped() {
        std::vector<voice_audio_chunk> chunks;
        while (const auto* chunk = ring->peek()) {
            chunks.push_back(*chunk);
            ring->release();
        }
        return chunks;
    }

    voice::rtp::Frames audio;
    Utterances utterances;
    std::unique_ptr<Ring> ring = std::make_unique<Ring>();
    Counters counters;
    int heard = 0;
};

std::vector<int> frames_of(const voice_audio_chunk& chunk) {
    std::vector<int> frames;
    for (std::size_t at = 0; at < chunk.count; at += voice::rtp::kFrameSamples) {
        frames.push_back(chunk.payload.pcm[at]);
    }
    return frames;
}

TEST(Utterances, AMarkGoesWithTheEndOfWhatIsBeingSaid) {
    Session session;
    session.hear(8, kSpeech);
    session.utterances.close(session.audio, *session.ring, session.counters, VOICE_CHUNK_COMMIT);
    const auto chunks = session.shipped();
    ASSERT_EQ(chunks.size(), 2U);
    EXPECT_EQ(chunks[0].flags & VOICE_CHUNK_COMMIT, 0);
    EXPECT_EQ(chunks[1].flags, VOICE_CHUNK_END_OF_SPEECH | VOICE_CHUNK_COMMIT);
    EXPECT_EQ(chunks[1].number, 1U);
}

TEST(Utterances, AMarkInSilenceIsAnUtteranceOfNothing) {
    for (const auto kind : {VOICE_CHUNK_PCM16, VOICE_CHUNK_LOG_MEL}) {
        Session session(kind);
        session.utterances.close(session.audio, *session.ring, session.counters, VOICE_CHUNK_LAST);
        EXPECT_TRUE(session.shipped().empty()) << "nothing was heard";
        session.hear(9, kSpeech);
        session.hear(50, kSilence);
        const auto before = session.shipped();
        session.utterances.close(session.audio, *session.ring, session.counters, VOICE_CHUNK_LAST);
        session.hear(10, kSpeech);
        const auto chunks = session.shipped();
        ASSERT_EQ(chunks.size(), 3U);
        EXPECT_EQ(chunks[0].sequence, 58U);
        EXPECT_EQ(chunks[0].count, 0U);
        EXPECT_EQ(chunks[0].number, before.size());
        EXPECT_EQ(chunks[0].flags & ~VOICE_CHUNK_SILENCE,
                  VOICE_CHUNK_START_OF_SPEECH | VOICE_CHUNK_END_OF_SPEECH | VOICE_CHUNK_LAST);
        EXPECT_EQ(chunks[1].flags & VOICE_CHUNK_LAST, 0);
    }
}

TEST(Utterances, AFullRingLeavesAHoleInTheNumbers) {
    Session session;
    session.hear(5 * 129, kSpeech);
    ASSERT_EQ(session.counters.ring_full, 1U);
    session.shipped();
    session.hear(5, kSpeech);
    EXPECT_EQ(session.shipped().front().number, 129U);
}

TEST(Utterances, BeginWhereTheSessionsClockIs) {
    Session session;
    session.utterances.begin_at(1000);
    session.hear(5, kSpeech);
    EXPECT_EQ(session.shipped().front().sequence, 1000U);
    Utterances resumed(7, VOICE_CHUNK_PCM16, {.next_frame = 700, .chunks = 10, .last_sequence = 500});
    session.utterances = resumed;
    session.utterances.begin_at(450);
    session.hear(5, kSpeech);
    EXPECT_EQ(session.shipped().front().sequence, 501U) << "no two chunks have the same place";
}

TEST(Utterances, ShipNothingOfSilence) {
    Session session;
    session.hear(500, kSilence);
    EXPECT_TRUE(session.shipped().empty());
    EXPECT_EQ(session.counters.frames, 500U);
}

TEST(Utterances, StartBeforeTheirOnsetAndEndAfterTheirHangover) {
    Session session;
    session.hear(10, kSilence);
    session.hear(6, kSpeech);
    session.hear(1, kSilence);
    const auto chunks = session.shipped();
    ASSERT_EQ(chunks.size(), 2U);
    EXPECT_EQ(frames_of(chunks[0]), (std::vector{8, 9, 10, 11, 12}));
    EXPECT_EQ(chunks[0].sequence, 7U) << "the place of frame 8, from 0";
    EXPECT_EQ(chunks[0].flags, VOICE_CHUNK_START_OF_SPEECH);
    EXPECT_EQ(frames_of(chunks[1]), (std::vector{13, 14, 15, 16, 17}));
    EXPECT_EQ(chunks[1].sequence, 12U);
    EXPECT_EQ(chunks[1].flags, VOICE_CHUNK_END_OF_SPEECH);
    EXPECT_EQ(chunks[0].session, 7U);
}

TEST(Utterances, OfTheFirstFramesHaveNoMorePreRollThanThereIs) {
    Session session;
    session.hear(1, kSilence);
    session.hear(4, kSpeech);
    const auto chunks = session.shipped();
    ASSERT_EQ(chunks.size(), 1U);
    EXPECT_EQ(frames_of(chunks[0]), (std::vector{1, 2, 3, 4, 5}));
    EXPECT_EQ(chunks[0].sequence, 0U);
}

TEST(Utterances, NeverShipAFrameTwice) {
    Session session;
    session.hear(5, kSpeech);
    session.hear(1, kSilence);  // ends it
    session.hear(1, kSilence);
    session.hear(5, kSpeech);   // its pre-roll may reach back only one frame
    const auto chunks = session.shipped();
    ASSERT_EQ(chunks.size(), 3U);
    EXPECT_EQ(frames_of(chunks[1]), (std::vector{6}));
    EXPECT_EQ(frames_of(chunks[2]), (std::vector{7, 8, 9, 10, 11}));
    EXPECT_TRUE(chunks[2].flags & VOICE_CHUNK_START_OF_SPEECH);
}

TEST(Utterances, SayWhatIsMadeUpAndWhatIsOnlyPreRoll) {
    Session session;
    session.hear(5, kSilence);
    session.hear(1, Decision{.speech = true, .pre_roll_frames = 5});
    session.hear(5, kSpeech, true);
    const auto chunks = session.shipped();
    ASSERT_EQ(chunks.size(), 2U);
    EXPECT_EQ(chunks[0].flags, VOICE_CHUNK_SILENCE | VOICE_CHUNK_START_OF_SPEECH);
    EXPECT_EQ(chunks[1].flags, VOICE_CHUNK_CONCEALED);
}

TEST(Utterances, ALeftoverOfAnotherCallerIsNeverSent) {
    Session session;
    for (std::size_t i = 0; i < Ring::kSlots; ++i) {
        auto* slot = session.ring->claim();
        std::fill(std::begin(slot->payload.pcm), std::end(slot->payload.pcm), std::int16_t{99});
        session.ring->commit();
    }
    while (session.ring->peek() != nullptr) {
        session.ring->release();
    }
    session.hear(1, kSpeech);
    session.utterances.close(session.audio, *session.ring, session.counters);
    const auto chunks = session.shipped();
    ASSERT_EQ(chunks.size(), 1U);
    EXPECT_EQ(chunks[0].count, voice::rtp::kFrameSamples);
    EXPECT_EQ(chunks[0].payload.pcm[voice::rtp::kFrameSamples], 0);
    EXPECT_EQ(chunks[0].payload.pcm[VOICE_CHUNK_SAMPLES - 1], 0);
    EXPECT_TRUE(chunks[0].flags & VOICE_CHUNK_END_OF_SPEECH);
}

TEST(Utterances, AFullRingCostsItsChunkAndNotTheNextOne) {
    Session session;
    while (session.ring->claim() != nullptr) {
        session.ring->commit();
    }
    session.hear(5, kSpeech);
    EXPECT_EQ(session.counters.ring_full, 1U);
    session.shipped();
    session.hear(5, kSpeech);
    const auto chunks = session.shipped();
    ASSERT_EQ(chunks.size(), 1U);
    EXPECT_EQ(chunks[0].sequence, 5U) << "the gap shows";
}

TEST(Utterances, NoTwoChunksOfASessionHaveTheSameNumber) {
    Session session(VOICE_CHUNK_LOG_MEL);
    for (int utterance = 0; utterance < 20; ++utterance) {
        session.hear(4 + utterance, kSpeech);
        session.hear(1, kSilence);
    }
    std::set<std::uint32_t> numbers;
    int ends = 0;
    for (const auto& chunk : session.shipped()) {
        EXPECT_TRUE(numbers.insert(chunk.sequence).second) << chunk.sequence;
        ends += (chunk.flags & VOICE_CHUNK_END_OF_SPEECH) != 0 ? 1 : 0;
    }
    EXPECT_EQ(ends, 20);
}

TEST(Utterances, MarksWithoutAFrameBetweenThemHaveDifferentPlaces) {
    struct Case {
        int silent, spoken;
        const char* what;
    };
    for (const auto& [silent, spoken, what] :
         {Case{9, 0, "silence"}, Case{0, 5, "nothing is pending"}, Case{0, 6, "a frame is pending"}}) {
        Session session;
        session.hear(silent, kSilence);
        session.hear(spoken, kSpeech);
        session.utterances.close(session.audio, *session.ring, session.counters, VOICE_CHUNK_COMMIT);
        session.utterances.close(session.audio, *session.ring, session.counters, VOICE_CHUNK_LAST);
        session.hear(5, kSpeech);
        const auto chunks = session.shipped();
        ASSERT_GE(chunks.size(), 3U) << what;
        const auto* latest = &chunks[chunks.size() - 3];
        EXPECT_TRUE(latest[0].flags & VOICE_CHUNK_COMMIT) << what;
        EXPECT_TRUE(latest[1].flags & VOICE_CHUNK_LAST) << what;
        EXPECT_LT(latest[0].sequence, latest[1].sequence) << what;
        EXPECT_LT(latest[1].sequence, latest[2].sequence) << what;
    }
}

TEST(Utterances, SpeechAfterAMarkInSilenceBeginsBehindTheMark) {
    Session session;
    session.hear(20, kSilence);
    session.utterances.close(session.audio, *session.ring, session.counters, VOICE_CHUNK_COMMIT);
    session.hear(1, kSilence);
    session.hear(5, kSpeech);
    const auto chunks = session.shipped();
    ASSERT_GE(chunks.size(), 2U);
    EXPECT_TRUE(chunks[0].flags & VOICE_CHUNK_COMMIT);
    EXPECT_TRUE(chunks[1].flags & VOICE_CHUNK_START_OF_SPEECH);
    EXPECT_GT(chunks[1].sequence, chunks[0].sequence) << "the engine drops what comes before a mark";
}

TEST(Utterances, OfASessionThatWasHeardBeforeGoOn) {
    Session session;
    session.utterances = Utterances(7, VOICE_CHUNK_PCM16, {.next_frame = 1000, .chunks = 9, .last_sequence = 800});
    EXPECT_EQ(session.utterances.last_sequence(), 800U);
    session.hear(5, kSpeech);
    const auto chunks = session.shipped();
    ASSERT_EQ(chunks.size(), 1U);
    EXPECT_EQ(chunks[0].sequence, 1000U) << "no pre-roll of what this process has not heard";
    EXPECT_EQ(session.utterances.chunks(), 10U);
    EXPECT_EQ(session.utterances.last_sequence(), 1000U);
}

TEST(Utterances, ASessionThatEndsBetweenTwoChunksStillEndsItsUtterance) {
    Session session;
    session.hear(5, kSpeech);
    session.utterances.close(session.audio, *session.ring, session.counters);
    const auto chunks = session.shipped();
    ASSERT_EQ(chunks.size(), 2U);
    EXPECT_EQ(chunks[1].count, 0U);
    EXPECT_EQ(chunks[1].sequence, 4U);
    EXPECT_TRUE(chunks[1].flags & VOICE_CHUNK_END_OF_SPEECH);
}

// Features of an utterance depend on its audio alone, however it is divided into chunks.
TEST(Utterances, FeaturesAreThoseOfTheWholeUtterance) {
    Session session(VOICE_CHUNK_LOG_MEL);
    session.hear(10, kSilence);
    session.hear(23, kSpeech);
    session.hear(1, kSilence);
    std::vector<float> rows;
    for (const auto& chunk : session.shipped()) {
        const float* begin = &chunk.payload.log_mel[0][0];
        rows.insert(rows.end(), begin, begin + chunk.count * VOICE_CHUNK_MEL_BINS);
    }
    constexpr std::size_t kFrames = 3 + 23 + 1;
    voice::features::LogMel log_mel;
    std::vector<std::array<float, voice::features::kMels>> expected(2 * kFrames + 1);
    std::size_t done = 0;
    const auto room = [&] {
        return voice::features::LogMel::Frames(reinterpret_cast<float(*)[voice::features::kMels]>(expected.data()),
                                               expected.size()).subspan(done);
    };
    for (std::size_t n = 8; n < 8 + kFrames; ++n) {
        const std::vector<std::int16_t> samples(voice::rtp::kFrameSamples, static_cast<std::int16_t>(n));
        done += log_mel.push(samples, room()).frames;
    }
    done += log_mel.flush(room());
    EXPECT_EQ(done, expected.size());
    ASSERT_EQ(rows.size(), done * voice::features::kMels);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        ASSERT_EQ(rows[i], expected[i / voice::features::kMels][i % voice::features::kMels]) << i;
    }
}

TEST(Utterances, TimeGoesOnWhereNothingIsHeard) {
    Session session;
    session.hear(10, kSilence);
    session.utterances.skip(100);
    session.hear(1, {.speech = true, .onset = true, .pre_roll_frames = 16});
    session.utterances.close(session.audio, *session.ring, session.counters);
    const auto chunks = session.shipped();
    ASSERT_EQ(chunks.size(), 1U);
    EXPECT_EQ(chunks[0].sequence, 110U) << "and what was before is no pre-roll";
}

}  // namespace
