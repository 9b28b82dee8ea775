// A session's audio, each frame written once and never moved: pending frames and recent ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace voice::rtp {

inline constexpr std::size_t kFrameSamples = 320;  // 20 ms at 16 kHz
using Samples = std::array<std::int16_t, kFrameSamples>;

class Frames {
public:
    static constexpr std::size_t kAhead = 16;  // 320 ms
    static constexpr std::size_t kPast = 21;   // the longest pre-roll, and a chunk

    // `places` after the next frame.
    [[nodiscard]] Samples& ahead(std::size_t places) noexcept { return frames_[wrapped(next_ + places)]; }
    // `places` before the current frame.
    [[nodiscard]] const Samples& past(std::size_t places) const noexcept {
        return frames_[wrapped(next_ + kFrames - 1 - places)];
    }
    // Makes the next frame the current one.
    void advance() noexcept { next_ = wrapped(next_ + 1); }

private:
    static constexpr std::size_t kFrames = kAhead + kPast;

    static std::size_t wrapped(std::size_t at) noexcept { return at < kFrames ? at : at - kFrames; }

    std::size_t next_ = 0;
    alignas(64) std::array<Samples, kFrames> frames_{};
};

}  // namespace voice::rtp
