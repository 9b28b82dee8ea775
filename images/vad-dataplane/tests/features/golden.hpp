// Signals and their frames from faster-whisper's feature extractor: tests/features/make_golden.py writes the file.
#pragma once

#include <array>
#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "wire/audio_chunk.h"

namespace golden {

using Frame = std::array<float, VOICE_CHUNK_MEL_BINS>;

struct Signal {
    std::vector<std::int16_t> samples;
    std::vector<Frame> frames;
};

template <typename T>
void read(std::ifstream& file, std::vector<T>& into) {
    file.read(reinterpret_cast<char*>(into.data()), static_cast<std::streamsize>(into.size() * sizeof(T)));
}

inline std::vector<Signal> signals() {
    std::ifstream file(GOLDEN, std::ios::binary);
    std::vector<Signal> all;
    std::vector<std::uint32_t> counts(2);
    for (read(file, counts); file; read(file, counts)) {
        Signal& next = all.emplace_back();
        next.samples.resize(counts[0]);
        next.frames.resize(counts[1]);
        read(file, next.samples);
        read(file, next.frames);
    }
    if (all.empty()) {
        throw std::runtime_error(std::string("no signals in ") + GOLDEN);
    }
    return all;
}

}  // namespace golden
