// Test signals, all made from fixed seeds.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numbers>
#include <random>
#include <span>
#include <vector>

#include "vad/host.hpp"

namespace signals {

using Samples = std::vector<std::int16_t>;
inline constexpr std::size_t kFramesPerSecond = 50;
inline constexpr double kRate = VAD_SAMPLE_RATE;

inline Samples make(double seconds, const std::function<double(std::size_t)>& at) {
    Samples samples(static_cast<std::size_t>(seconds * kFramesPerSecond) * voice::vad::kFrameSamples);
    for (std::size_t i = 0; i < samples.size(); ++i) {
        samples[i] = static_cast<std::int16_t>(std::clamp(std::round(at(i)), -32768.0, 32767.0));
    }
    return samples;
}

inline Samples noise(double seconds, double rms, std::uint32_t seed) {
    std::mt19937 random(seed);
    // A sum of uniform numbers, because std::normal_distribution differs between libraries.
    return make(seconds, [&](std::size_t) {
        double sum = 0;
        for (int n = 0; n < 12; ++n) {
            sum += static_cast<double>(random()) / 4294967296.0;
        }
        return rms * (sum - 6);
    });
}

// Noise of a room: most of it is below a voice.
inline Samples rumble(double seconds, double rms, std::uint32_t seed) {
    double level = 0;
    Samples samples = noise(seconds, rms / 5, seed);
    for (auto& sample : samples) {
        level = 0.98 * level + sample;
        sample = static_cast<std::int16_t>(std::clamp(std::round(level), -32768.0, 32767.0));
    }
    return samples;
}

inline Samples tone(double seconds, double hertz, double amplitude) {
    return make(seconds, [=](std::size_t i) {
        return amplitude * std::sin(2 * std::numbers::pi * hertz * static_cast<double>(i) / kRate);
    });
}

// A ringing telephone: seconds on and seconds off, over a line's noise.
inline Samples ringing(double seconds, double first, double second, double on, double off) {
    Samples samples = make(seconds, [=](std::size_t i) {
        const double t = static_cast<double>(i) / kRate, turn = 2 * std::numbers::pi * t;
        return std::fmod(t, on + off) < on ? 1500 * (std::sin(turn * first) + std::sin(turn * second)) : 0;
    });
    const Samples line = noise(seconds, 4, 16);
    for (std::size_t i = 0; i < samples.size(); ++i) {
        samples[i] = static_cast<std::int16_t>(samples[i] + line[i]);
    }
    return samples;
}

// Chords that change every two seconds, and a tune over them: notes struck twice a second that fade, over a line's
// noise.
inline Samples music(double seconds) {
    constexpr std::array<double, 4> kRoots{220, 174.6, 196, 164.8};
    constexpr std::array<double, 6> kTune{2, 2.5, 3, 4, 3, 2.5};
    constexpr double kBeat = 0.5;
    Samples samples = make(seconds, [&](std::size_t i) {
        const double t = static_cast<double>(i) / kRate, struck = std::fmod(t, kBeat);
        const auto beat = static_cast<std::size_t>(t / kBeat);
        double sum = 0;
        for (const double interval : {1.0, 1.25, 1.5, kTune[beat % kTune.size()]}) {
            for (int h = 1; h <= 8; ++h) {
                const double turns = kRoots[beat / 4 % kRoots.size()] * interval * h * t;
                sum += (interval >= 2 ? 1.5 : 1) / h * std::sin(2 * std::numbers::pi * turns);
            }
        }
        return 1500 * sum * std::exp(-struck) * std::min(1.0, struck / 0.01);
    });
    const Samples line = noise(seconds, 4, 20);
    for (std::size_t i = 0; i < samples.size(); ++i) {
        samples[i] = static_cast<std::int16_t>(samples[i] + line[i]);
    }
    return samples;
}

// Voiced syllables, four a second: harmonics of a pitch that glides, shaped by three formants that move.
inline Samples voice_like(double seconds, double amplitude, double pitch = 120) {
    return make(seconds, [=](std::size_t i) {
        const double t = static_cast<double>(i) / kRate;
        const double swing = std::sin(2 * std::numbers::pi * 1.3 * t);
        const double loud = 0.15 + 0.85 * std::pow(std::sin(std::numbers::pi * 4 * t), 2);
        const std::array<double, 3> formants{550 + 200 * swing, 1500 - 500 * swing, 2600 + 150 * swing};
        double sum = 0;
        for (int h = 1; h * pitch < 3800; ++h) {
            double gain = 0.02;
            for (const double formant : formants) {
                gain += 1 / (1 + std::pow((h * pitch - formant) / 120, 2));
            }
            const double phase = 2 * std::numbers::pi * h * (pitch * t - 2 * std::cos(2 * std::numbers::pi * 0.7 * t));
            sum += gain / h * 3 * std::sin(phase);
        }
        return amplitude * loud * sum;
    });
}

inline Samples mixed(Samples left, const Samples& right) {
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
        left[i] = static_cast<std::int16_t>(std::clamp(left[i] + right[i], -32768, 32767));
    }
    return left;
}

inline Samples then(Samples first, const Samples& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

inline std::size_t frames(const Samples& samples) { return samples.size() / voice::vad::kFrameSamples; }

inline voice::vad::Frame frame(const Samples& samples, std::size_t number) {
    return std::span(samples).subspan(number * voice::vad::kFrameSamples).first<voice::vad::kFrameSamples>();
}

}  // namespace signals
