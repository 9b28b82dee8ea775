// From a power spectrum to log-mel values: 80 triangular filters on Slaney's mel scale, as Whisper's models expect.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "features/lanes.hpp"
#include "features/spectrum.hpp"
#include "wire/audio_chunk.h"

namespace voice::features {

inline constexpr std::size_t kMels = VOICE_CHUNK_MEL_BINS;

using MelFrame = std::span<float, kMels>;

// The weights of the filters: computed once, read by every thread.
//
// A filter covers a few neighbouring bins, and the next filter nearly the same ones. So kLanes filters are summed at a
// time: one bin, the same for all lanes, times a vector of weights, zero where a filter does not reach.
class MelFilters {
public:
    MelFilters();

    // log10 of the filters' energies, which are at least 1e-10.
    void log_mel(const Spectrum::Power& power, MelFrame out) const noexcept;

private:
    static_assert(kMels % kLanes == 0);
    static constexpr std::size_t kGroups = kMels / kLanes;

    struct Group {
        std::size_t first_bin = 0;
        std::vector<std::array<float, kLanes>> weights;  // of first_bin and the following bins
    };

    std::array<Group, kGroups> groups_;
};

}  // namespace voice::features
