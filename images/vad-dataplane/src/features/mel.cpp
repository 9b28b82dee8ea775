#include "features/mel.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

namespace voice::features {
namespace {

constexpr double kSampleRate = 16000;
constexpr float kLeastEnergy = 1e-10F;
constexpr std::size_t kSums = 4;  // in parallel: an addition need not wait for the previous one

// Slaney's scale: 3 mel are 200 Hz up to 1 kHz; from there 27 mel are a factor of 6.4.
constexpr double kHzPerMel = 200.0 / 3;
constexpr double kLogStartHz = 1000;
constexpr double kLogStartMel = kLogStartHz / kHzPerMel;
const double kLogStep = std::log(6.4) / 27;

double to_hz(double mel) {
    return mel < kLogStartMel ? mel * kHzPerMel : kLogStartHz * std::exp(kLogStep * (mel - kLogStartMel));
}

double to_mel(double hz) {
    return hz < kLogStartHz ? hz / kHzPerMel : kLogStartMel + std::log(hz / kLogStartHz) / kLogStep;
}

using Weights = std::array<std::array<float, kBins>, kMels>;

// Each filter rises from the centre of the one before it and falls to the centre of the next; its area is 1 (in Hz,
// times 2), so that wide filters are not louder than narrow ones. Centres are equal steps of mel from 0 Hz to 8 kHz.
Weights triangles() {
    std::array<double, kMels + 2> hz{};
    for (std::size_t i = 0; i < hz.size(); ++i) {
        hz[i] = to_hz(to_mel(kSampleRate / 2) * static_cast<double>(i) / (kMels + 1));
    }
    Weights weights{};
    for (std::size_t mel = 0; mel < kMels; ++mel) {
        const double low = hz[mel];
        const double centre = hz[mel + 1];
        const double high = hz[mel + 2];
        for (std::size_t bin = 0; bin < kBins; ++bin) {
            const double at = static_cast<double>(bin) * kSampleRate / kWindowSamples;
            const double height = std::min((at - low) / (centre - low), (high - at) / (high - centre));
            weights[mel][bin] = static_cast<float>(std::max(0.0, height) * 2 / (high - low));
        }
    }
    return weights;
}

// log10 of positive, normal numbers, to 1e-6. x = 2^e m with m around 1; ln m = 2 atanh(s) with s = (m - 1)/(m + 1),
// whose series ends soon because |s| < 0.172.
Lanes log10_of(const Lanes& x) noexcept {
    constexpr std::int32_t root_half = std::bit_cast<std::int32_t>(std::numbers::sqrt2_v<float> / 2);
    constexpr int fraction_bits = 23;
    constexpr float log10_2 = 0.30102999566398120F;
    const auto bits = std::bit_cast<IntLanes>(x);
    const IntLanes exponent = (bits - root_half) >> fraction_bits;
    const auto m = std::bit_cast<Lanes>(bits - (exponent << fraction_bits));
    const Lanes s = (m - 1.0F) / (m + 1.0F);
    const Lanes s2 = s * s;
    const Lanes series = 1.0F + s2 * (1.0F / 3 + s2 * (1.0F / 5 + s2 * (1.0F / 7)));
    return __builtin_convertvector(exponent, Lanes) * log10_2 + s * series * (2 * std::numbers::log10e_v<float>);
}

}  // namespace

MelFilters::MelFilters() {
    const Weights weights = triangles();
    for (std::size_t g = 0; g < kGroups; ++g) {
        const auto reached = [&](std::size_t bin) {
            return std::any_of(&weights[g * kLanes], &weights[g * kLanes] + kLanes,
                               [bin](const auto& filter) { return filter[bin] > 0; });
        };
        std::size_t first = 0;
        while (!reached(first)) {
            ++first;
        }
        std::size_t end = kBins;
        while (!reached(end - 1)) {
            --end;
        }
        while ((end - first) % kSums != 0) {  // with bins of weight 0
            end < kBins ? ++end : --first;
        }
        groups_[g].first_bin = first;
        groups_[g].weights.resize(end - first);
        for (std::size_t bin = first; bin < end; ++bin) {
            for (std::size_t lane = 0; lane < kLanes; ++lane) {
                groups_[g].weights[bin - first][lane] = weights[g * kLanes + lane][bin];
            }
        }
    }
}

void MelFilters::log_mel(const Spectrum::Power& power, MelFrame out) const noexcept {
    for (std::size_t g = 0; g < kGroups; ++g) {
        const Group& group = groups_[g];
        const float* bins = &power[group.first_bin];
        std::array<Lanes, kSums> sums{};
        for (std::size_t i = 0; i < group.weights.size(); i += kSums) {
            for (std::size_t sum = 0; sum < kSums; ++sum) {
                sums[sum] += load(group.weights[i + sum].data()) * bins[i + sum];
            }
        }
        const Lanes energy = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        store(&out[g * kLanes], log10_of(energy > kLeastEnergy ? energy : Lanes{} + kLeastEnergy));
    }
}

}  // namespace voice::features
