// Streaming log-mel features of one session, as Whisper's models expect them: 80 bins, windows of 25 ms, every 10 ms.
// The values are those of faster-whisper's feature extractor (padding = 160, its default) before it clamps them to the
// utterance's maximum minus 8 and scales them: both need the whole utterance, and are done by the engine.
//
// Delay. Frame t is centred on sample 160 t and reaches 200 samples past it. So it is ready with sample 160 t + 200,
// 12.5 ms after its centre, and the ten frames of chunk c with sample 1600 (c + 1) + 40: with packets of 20 ms, the
// first packet after the chunk's own five.
//
// Edges. The extractor continues an utterance backwards by reflection: the window of frame 0 is x[200] ... x[1] x[0]
// x[1] ... x[199], where x[200] weighs nothing. Frame 0 looks ahead no further than any other, so reflection costs no
// delay. The end is padded with zeros; an utterance of n samples has n / 160 + 1 frames, of which flush() writes the
// last one or two. (An utterance under 40 samples would be reflected more than once; here it is not.)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "features/mel.hpp"
#include "features/spectrum.hpp"

namespace voice::features {

inline constexpr std::size_t kHopSamples = 160;  // 10 ms

// Allocates nothing, takes no lock and reads no clock. 808 bytes a session: the tables are shared.
class LogMel {
public:
    // Rows of frames, such as voice_audio_chunk.payload.log_mel or what is left of it.
    using Frames = std::span<float[kMels]>;

    struct Taken {
        std::size_t samples;
        std::size_t frames;
    };

    // Makes the tables on first use (about a millisecond): construct one before packets arrive.
    LogMel() noexcept;

    // Takes samples and writes the completed frames to the front of `out`. Stops early only if a frame is due and `out`
    // is full: push the remaining samples again, with new room.
    Taken push(std::span<const std::int16_t> samples, Frames out) noexcept;

    // The number of frames that flush() would write now with enough room: 0 for an empty utterance, else 1 or 2.
    [[nodiscard]] std::size_t owed() const noexcept;

    // Ends the utterance: writes owed() frames, or as many as `out` holds, and returns their number. Once none is owed
    // any more, the next push() starts another utterance.
    std::size_t flush(Frames out) noexcept;

    // Discards the utterance.
    void reset() noexcept;

private:
    static constexpr std::size_t kReach = kWindowSamples / 2;  // of a window, past its centre

    struct Tables;
    static const Tables& shared_tables() noexcept;

    void write_frame(std::span<float, kMels> out) noexcept;

    // The window of the next frame. Its centre is at kReach; filled_ is the position of the next sample.
    std::array<std::int16_t, kWindowSamples> window_{};
    std::uint16_t filled_ = kReach;
    bool first_ = true;  // the next frame is frame 0, whose left half must be reflected
    bool empty_ = true;
};

}  // namespace voice::features
