// Power spectrum of one window of Whisper's: 400 samples, which no power-of-two transform can give.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "features/lanes.hpp"

namespace voice::features {

inline constexpr std::size_t kWindowSamples = 400;  // 25 ms at 16 kHz
inline constexpr std::size_t kBins = kWindowSamples / 2 + 1;

// The tables of the transform: computed once, read by every thread.
//
// The 400 real samples form 200 complex numbers z[n] = x[2n] + i x[2n+1]. 200 = 8 x 25: with n = 8 a + b and k = c + 25
// d, the transform is
//
// Z[c + 25 d] = sum over b of W8^(b d) W200^(b c) (sum over a of W25^(a c) z[8 a + b])        where WN = e^(-2 pi i/N)
//
// The inner sums, 25 points each, are independent for the 8 values of b, which are adjacent in memory; the outer ones,
// 8 points each, for the 25 values of c. So both run on whole vectors, with one transposition in between. Finally Z is
// split into the spectra of the even and the odd samples, which give X.
class Spectrum {
public:
    using Power = std::array<float, kBins>;

    Spectrum();

    // |X[k]|^2 of the windowed samples as fractions of full scale.
    void power(std::span<const std::int16_t, kWindowSamples> samples, Power& power) const noexcept;

private:
    static constexpr std::size_t kPoints = kWindowSamples / 2;
    static constexpr std::size_t kColumns = 8;
    static constexpr std::size_t kRows = kPoints / kColumns;   // 25
    static constexpr std::size_t kRowsPadded = 32;             // a multiple of every vector's width
    static constexpr std::size_t kSplit = padded(kPoints / 2 + 1);

    // Separate arrays of real and imaginary parts, for vector arithmetic.
    template <std::size_t N>
    struct Complexes {
        alignas(64) std::array<float, N> re;
        alignas(64) std::array<float, N> im;
    };
    using Points = Complexes<kPoints + kRowsPadded>;
    using Grid = Complexes<kColumns * kRowsPadded>;

    void columns(const Points& points, Grid& grid) const noexcept;
    static void transpose(const Grid& from, Grid& to) noexcept;
    static void rows(const Grid& grid, Points& points) noexcept;
    void split(const Points& points, Power& power) const noexcept;

    std::array<float, kWindowSamples> window_{};
    Complexes<kPoints> between_{};  // W200^(b c), at [c][b]
    Complexes<kSplit> last_{};      // W400^k
};

}  // namespace voice::features
