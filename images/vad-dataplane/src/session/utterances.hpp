// Divides one session's audio into utterances, and utterances into chunks, which are written where they are shipped
// from.
//
// An utterance is speech according to the VAD, from some frames before its onset (pre-roll) to the end of its hangover.
// It is one contiguous stretch of audio: features are computed for it in isolation.
//
// A chunk's `sequence` is the position of its first 20 ms frame in the session, and so the time in the call; inside an
// utterance, a chunk that does not continue the previous one has lost its predecessor. A chunk that ends an utterance
// and has no frame of its own carries the position of the last frame; if that is the previous chunk's, a mark takes the
// time of one more frame. No two chunks of a session have the same number.
// `number` counts chunks, including those that the ring had no slot for: where it jumps, some were lost.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "features/log_mel.hpp"
#include "rtp/frames.hpp"
#include "session/progress.hpp"
#include "support/count.hpp"
#include "vad/host.hpp"
#include "wire/audio_chunk.h"

namespace voice::session {

// Shared by one receive queue's sessions; written by its thread, read by any.
struct Counters {
    Count frames;
    Count concealed;
    Count silent_frames;  // that the VAD did not classify as speech
    Count shipped_frames;
    Count chunks;
    Count ring_full;  // chunks for which the ring had no slot
};

class Utterances {
public:
    static constexpr std::size_t kChunkFrames = 5;     // 100 ms
    static constexpr std::size_t kMaxPreRoll = vad::kMaxPreRoll;  // 320 ms
    static constexpr std::uint64_t kFarFrames = 3000;  // a minute
    static_assert(rtp::Frames::kPast >= kMaxPreRoll + kChunkFrames);

    Utterances(std::uint32_t session, voice_chunk_kind kind, const Progress& before = {}) noexcept
        : session_(session), kind_(kind), heard_(before.next_frame), shipped_until_(before.next_frame),
          chunks_(before.chunks), number_(static_cast<std::uint32_t>(before.chunks)), last_sequence_(before.last_sequence) {}

    // Takes the latest frame, whether it was concealed, and the VAD's decision.
    template <typename Ring>
    void take(const rtp::Frames& frames, bool concealed, const vad::Decision& decision, Ring& ring,
              Counters& counters) noexcept {
        remember(concealed, decision, counters);
        if (!speaking_ && decision.speech) {
            start(decision.pre_roll_frames);
        }
        if (!speaking_) {
            return;
        }
        ++pending_;
        const bool ends = !decision.speech;
        if (pending_ >= kChunkFrames || ends) {
            ship(frames, ring, counters, ends);
        }
    }

    // Ends the current utterance at the end of the session. A mark (VOICE_CHUNK_COMMIT, VOICE_CHUNK_LAST) goes with its
    // last chunk or, during silence, with an empty utterance.
    template <typename Ring>
    void close(const rtp::Frames& frames, Ring& ring, Counters& counters, unsigned mark = 0) noexcept {
        mark_ = mark;
        if (speaking_) {
            ship(frames, ring, counters, true);
        } else if (mark != 0 && heard_ > 0) {
            // The last frame's position is the last chunk's already: an engine would drop this one as a duplicate.
            if (chunks_ > 0 && last_sequence_ + 1 == heard_) {
                skip(1);
            }
            starts_ = true;
            log_mel_.reset();
            ship_chunk(frames, ring, counters, 0, true);
            shipped_until_ = heard_;  // an engine would drop pre-roll from before the mark
        }
        mark_ = 0;
    }

    // Sets the position of the next frame by the session's clock, beyond all chunks that were sent. If the clock was
    // set since then, the position that was estimated from the elapsed time stays.
    void begin_at(std::uint64_t place) noexcept {
        if (chunks_ > 0 && place > heard_ + kFarFrames) {
            return;
        }
        heard_ = shipped_until_ = std::max(place, chunks_ > 0 ? last_sequence_ + std::uint64_t{1} : 0);
    }

    // Skips this many frames without audio: no one speaks, and time passes.
    void skip(std::uint32_t frames) noexcept {
        heard_ += frames;
        shipped_until_ = heard_;
    }

    // The position of the next frame.
    [[nodiscard]] std::uint64_t heard() const noexcept { return heard_; }
    [[nodiscard]] bool speaking() const noexcept { return speaking_; }
    // Over the whole session.
    [[nodiscard]] std::uint64_t chunks() const noexcept { return chunks_; }
    [[nodiscard]] std::uint32_t last_sequence() const noexcept { return last_sequence_; }

private:
    void remember(bool concealed, const vad::Decision& decision, Counters& counters) noexcept {
        concealed_ = concealed_ << 1 | (concealed ? 1U : 0U);
        voiced_ = voiced_ << 1 | (decision.speech ? 1U : 0U);
        ++heard_;
        ++counters.frames;
        counters.concealed += concealed ? 1 : 0;
        counters.silent_frames += decision.speech ? 0 : 1;
    }

    void start(std::uint8_t pre_roll) noexcept {
        const std::uint64_t before = heard_ - 1;
        const std::uint64_t free = before - shipped_until_;  // not part of the previous utterance
        pending_ = std::min({std::size_t{pre_roll}, kMaxPreRoll, static_cast<std::size_t>(free)});
        speaking_ = true;
        starts_ = true;
        log_mel_.reset();
    }

    // Ships everything pending, a chunk at a time.
    template <typename Ring>
    void ship(const rtp::Frames& heard, Ring& ring, Counters& counters, bool ends) noexcept {
        bool ended = false;
        while (pending_ >= kChunkFrames || (ends && pending_ > 0)) {
            const std::size_t frames = std::min(pending_, kChunkFrames);
            ended = ship_chunk(heard, ring, counters, frames, ends && frames == pending_);
        }
        if (ends && !ended) {
            // nothing was pending, or a full chunk had no room for all features
            ship_chunk(heard, ring, counters, 0, true);
        }
        shipped_until_ = heard_ - pending_;
        speaking_ = !ends;
    }

    // Returns whether the chunk ends the utterance.
    template <typename Ring>
    bool ship_chunk(const rtp::Frames& heard, Ring& ring, Counters& counters, std::size_t frames,
                    bool last) noexcept {
        voice_audio_chunk* slot = ring.claim();
        // Without a slot only this chunk is lost: features continue as if it had been sent.
        const bool ends = fill(heard, slot != nullptr ? *slot : lost_, frames, last);
        if (slot != nullptr) {
            last_sequence_ = slot->sequence;
            ++chunks_;
            ring.commit();
            ++counters.chunks;
            counters.shipped_frames += frames;
        } else {
            ++counters.ring_full;
        }
        ++number_;
        pending_ -= frames;
        return ends;
    }

    bool fill(const rtp::Frames& heard, voice_audio_chunk& chunk, std::size_t frames, bool last) noexcept {
        chunk.session = session_;
        chunk.number = number_;
        chunk.sequence = static_cast<std::uint32_t>(heard_ - (frames > 0 ? pending_ : 1));
        chunk.kind = static_cast<std::uint8_t>(kind_);
        unsigned flags = starts_ ? unsigned{VOICE_CHUNK_START_OF_SPEECH} : 0U;
        starts_ = false;
        std::size_t count = 0;
        bool voiced = false;
        for (std::size_t back = pending_; back > pending_ - frames; --back) {
            flags |= (concealed_ >> (back - 1) & 1) != 0 ? unsigned{VOICE_CHUNK_CONCEALED} : 0U;
            voiced |= (voiced_ >> (back - 1) & 1) != 0;
            count = append(chunk, count, heard.past(back - 1));
        }
        if (last && kind_ == VOICE_CHUNK_LOG_MEL) {
            count += log_mel_.flush(features::LogMel::Frames(chunk.payload.log_mel).subspan(count));
            last = log_mel_.owed() == 0;
        }
        flags |= last ? VOICE_CHUNK_END_OF_SPEECH | mark_ : 0U;
        chunk.flags = static_cast<std::uint8_t>(flags | (voiced ? 0U : unsigned{VOICE_CHUNK_SILENCE}));
        chunk.count = static_cast<std::uint16_t>(count);
        blank(chunk, count);
        return last;
    }

    std::size_t append(voice_audio_chunk& chunk, std::size_t count, const rtp::Samples& frame) noexcept {
        if (kind_ == VOICE_CHUNK_PCM16) {
            std::ranges::copy(frame, chunk.payload.pcm + count);
            return count + rtp::kFrameSamples;
        }
        return count + log_mel_.push(frame, features::LogMel::Frames(chunk.payload.log_mel).subspan(count)).frames;
    }

    // Unused bytes are zero on the wire: a slot is reused, and must not carry another caller's words.
    void blank(voice_audio_chunk& chunk, std::size_t count) const noexcept {
        const std::size_t used = kind_ == VOICE_CHUNK_PCM16 ? count * sizeof(std::int16_t)
                                                            : count * VOICE_CHUNK_MEL_BINS * sizeof(float);
        std::memset(reinterpret_cast<std::uint8_t*>(&chunk.payload) + used, 0, VOICE_CHUNK_PAYLOAD_BYTES - used);
    }

    std::uint32_t session_;
    voice_chunk_kind kind_;
    bool speaking_ = false;
    bool starts_ = false;
    std::size_t pending_ = 0;          // the newest frames of the utterance, not shipped yet
    std::uint64_t heard_;          // frames of the session so far
    std::uint64_t shipped_until_;  // position after the last shipped frame
    std::uint64_t chunks_;
    std::uint32_t number_;  // of the next chunk
    unsigned mark_ = 0;     // flags of the chunk that ends the utterance
    std::uint32_t last_sequence_;
    std::uint32_t concealed_ = 0;  // bit n: the frame n positions before the last one was concealed
    std::uint32_t voiced_ = 0;     // likewise, was classified as speech
    features::LogMel log_mel_;

    static inline thread_local voice_audio_chunk lost_{};
};

}  // namespace voice::session
