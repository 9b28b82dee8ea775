// Log-mel of one chunk (100 ms, ten frames): our transform, kissfft's and FFTW's, in one run.
//   time_log_mel ROUNDS
//
// The alternatives use our window, filters and logarithm, so that only the transform differs. FFTW may plan without
// limit (FFTW_MEASURE); it is GPL, so it serves only as a reference.
#include <fftw3.h>
#include <kissfft/kiss_fftr.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numbers>
#include <random>

#include "features/log_mel.hpp"
#include "measure.hpp"

namespace {

using namespace voice::features;

constexpr std::size_t kChunks = 200;  // 20 s of audio a round
constexpr std::size_t kFrames = VOICE_CHUNK_MEL_FRAMES;
constexpr std::size_t kSamples = VOICE_CHUNK_SAMPLES;

using Audio = std::vector<std::int16_t>;
using Power = Spectrum::Power;
using Window = std::span<const std::int16_t, kWindowSamples>;

std::array<float, kWindowSamples> hann() {
    std::array<float, kWindowSamples> window{};
    for (std::size_t n = 0; n < window.size(); ++n) {
        const double turn = 2 * std::numbers::pi * static_cast<double>(n) / kWindowSamples;
        window[n] = static_cast<float>((0.5 - 0.5 * std::cos(turn)) / 32768);
    }
    return window;
}

struct Kiss {
    kiss_fftr_cfg plan = kiss_fftr_alloc(kWindowSamples, 0, nullptr, nullptr);
    std::array<float, kWindowSamples> in{};
    std::array<kiss_fft_cpx, kBins> out{};

    void power(Power& power) {
        kiss_fftr(plan, in.data(), out.data());
        for (std::size_t k = 0; k < kBins; ++k) {
            power[k] = out[k].r * out[k].r + out[k].i * out[k].i;
        }
    }
};

struct Fftw {
    float* in = fftwf_alloc_real(kWindowSamples);
    fftwf_complex* out = fftwf_alloc_complex(kBins);
    fftwf_plan plan = fftwf_plan_dft_r2c_1d(kWindowSamples, in, out, FFTW_MEASURE);

    void power(Power& power) {
        fftwf_execute(plan);
        for (std::size_t k = 0; k < kBins; ++k) {
            power[k] = out[k][0] * out[k][0] + out[k][1] * out[k][1];
        }
    }
};

// Our pipeline with another transform.
template <typename Transform>
void frame(Transform& transform, const MelFilters& filters, Window samples, MelFrame out) {
    static const std::array<float, kWindowSamples> window = hann();
    for (std::size_t n = 0; n < kWindowSamples; ++n) {
        transform.in[n] = static_cast<float>(samples[n]) * window[n];
    }
    Power power;
    transform.power(power);
    filters.log_mel(power, out);
}

template <typename Transform>
void run_rival(Transform& transform, const MelFilters& filters, const Audio& audio, voice_audio_chunk& chunk) {
    for (std::size_t c = 0; c < kChunks; ++c) {
        for (std::size_t t = 0; t < kFrames; ++t) {
            const Window samples{&audio[c * kSamples + t * kHopSamples], kWindowSamples};
            frame(transform, filters, samples, chunk.payload.log_mel[t]);
        }
        bench::keep(&chunk);
    }
}

// Packet by packet, as the data plane pushes it.
void run_ours(const Audio& audio, voice_audio_chunk& chunk) {
    LogMel mel;
    std::size_t row = 0;
    for (std::size_t at = 0; at < kChunks * kSamples; at += 320) {
        row += mel.push({&audio[at], 320}, LogMel::Frames(chunk.payload.log_mel).subspan(row)).frames;
        if (row == kFrames) {
            bench::keep(&chunk);
            row = 0;
        }
    }
}

double us_per_chunk(const std::function<void()>& run) {
    const std::uint64_t start = bench::now_ns();
    run();
    return static_cast<double>(bench::now_ns() - start) / 1e3 / kChunks;
}

}  // namespace

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
    bench::pin(0);
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 3000);
    Audio audio(kChunks * kSamples + kWindowSamples);
    for (auto& sample : audio) {
        sample = static_cast<std::int16_t>(std::clamp(normal(random), -32768.0F, 32767.0F));
    }
    const MelFilters filters;
    Kiss kiss;
    Fftw fftw;
    auto chunk = std::make_unique<voice_audio_chunk>();
    std::vector<bench::Result> results{{"log-mel of a chunk", "voice", "us", {}},
                                       {"log-mel of a chunk", "kissfft", "us", {}},
                                       {"log-mel of a chunk", "FFTW (GPL, yardstick)", "us", {}}};
    for (int round = 0; round < rounds; ++round) {
        results[0].rounds.push_back(us_per_chunk([&] { run_ours(audio, *chunk); }));
        results[1].rounds.push_back(us_per_chunk([&] { run_rival(kiss, filters, audio, *chunk); }));
        results[2].rounds.push_back(us_per_chunk([&] { run_rival(fftw, filters, audio, *chunk); }));
    }
    bench::print(results);
}
