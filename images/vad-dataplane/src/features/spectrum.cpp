#include "features/spectrum.hpp"

#include <cmath>
#include <complex>
#include <numbers>

namespace voice::features {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;
constexpr float kFullScale = 32768;

struct Complex {
    Lanes re;
    Lanes im;

    friend Complex operator+(const Complex& a, const Complex& b) noexcept { return {a.re + b.re, a.im + b.im}; }
    friend Complex operator-(const Complex& a, const Complex& b) noexcept { return {a.re - b.re, a.im - b.im}; }
    // Multiplies by a complex number that is the same for all lanes (Factor = float) or one for each.
    template <typename Factor>
    [[nodiscard]] Complex times(const Factor& by_re, const Factor& by_im) const noexcept {
        return {re * by_re - im * by_im, re * by_im + im * by_re};
    }
    [[nodiscard]] Complex scaled(float by) const noexcept { return {re * by, im * by}; }
    [[nodiscard]] Complex turned() const noexcept { return {im, -re}; }  // by -i
};

// e^(-2 pi i numerator / denominator)
std::complex<double> root(std::size_t numerator, std::size_t denominator) {
    return std::polar(1.0, -kTurn * static_cast<double>(numerator) / static_cast<double>(denominator));
}

// Transforms of 5 points, in place. Terms that differ in a sign share their products. Forced inline, because the
// compiler would otherwise pass every number through memory.
[[gnu::always_inline]] inline void transform5(Complex& v0, Complex& v1, Complex& v2, Complex& v3, Complex& v4) noexcept {
    constexpr float cos1 = 0.30901699437494742F;  // of 72 degrees
    constexpr float cos2 = -0.80901699437494742F;  // of 144 degrees
    constexpr float sin1 = 0.95105651629515357F;
    constexpr float sin2 = 0.58778525229247313F;
    const Complex outer = v1 + v4;
    const Complex inner = v2 + v3;
    const Complex outer_half = (v1 - v4).turned();
    const Complex inner_half = (v2 - v3).turned();
    const Complex even1 = v0 + outer.scaled(cos1) + inner.scaled(cos2);
    const Complex even2 = v0 + outer.scaled(cos2) + inner.scaled(cos1);
    const Complex odd1 = outer_half.scaled(sin1) + inner_half.scaled(sin2);
    const Complex odd2 = outer_half.scaled(sin2) - inner_half.scaled(sin1);
    v0 = v0 + outer + inner;
    v1 = even1 + odd1;
    v2 = even2 + odd2;
    v3 = even2 - odd2;
    v4 = even1 - odd1;
}

void transform4(Complex& v0, Complex& v1, Complex& v2, Complex& v3) noexcept {
    const Complex sum = v0 + v2;
    const Complex difference = v0 - v2;
    const Complex other_sum = v1 + v3;
    const Complex other_difference = (v1 - v3).turned();
    v0 = sum + other_sum;
    v1 = difference + other_difference;
    v2 = sum - other_sum;
    v3 = difference - other_difference;
}

void transform8(std::array<Complex, 8>& v) noexcept {
    constexpr float half = 0.70710678118654752F;
    transform4(v[0], v[2], v[4], v[6]);
    transform4(v[1], v[3], v[5], v[7]);
    const std::array<Complex, 4> even{v[0], v[2], v[4], v[6]};
    const std::array<Complex, 4> odd{
        v[1], v[3].times(half, -half), v[5].turned(), v[7].times(-half, -half)};
    for (std::size_t k = 0; k < 4; ++k) {
        v[k] = even[k] + odd[k];
        v[k + 4] = even[k] - odd[k];
    }
}

struct Twiddles25 {
    std::array<std::array<float, 5>, 5> re;
    std::array<std::array<float, 5>, 5> im;
};

const Twiddles25& twiddles25() {
    static const Twiddles25 table = [] {
        Twiddles25 made{};
        for (std::size_t b = 0; b < 5; ++b) {
            for (std::size_t c = 0; c < 5; ++c) {
                made.re[b][c] = static_cast<float>(root(b * c, 25).real());
                made.im[b][c] = static_cast<float>(root(b * c, 25).imag());
            }
        }
        return made;
    }();
    return table;
}

}  // namespace

Spectrum::Spectrum() {
    for (std::size_t n = 0; n < kWindowSamples; ++n) {
        // The periodic Hann window. The scale to fractions of full scale is in it, and the half that split() needs.
        const double hann = 0.5 - 0.5 * std::cos(kTurn * static_cast<double>(n) / kWindowSamples);
        window_[n] = static_cast<float>(hann * 0.5) / kFullScale;
    }
    for (std::size_t c = 0; c < kRows; ++c) {
        for (std::size_t b = 0; b < kColumns; ++b) {
            between_.re[c * kColumns + b] = static_cast<float>(root(b * c, kPoints).real());
            between_.im[c * kColumns + b] = static_cast<float>(root(b * c, kPoints).imag());
        }
    }
    for (std::size_t k = 0; k < kSplit; ++k) {
        last_.re[k] = static_cast<float>(root(k, kWindowSamples).real());
        last_.im[k] = static_cast<float>(root(k, kWindowSamples).imag());
    }
    twiddles25();  // computed now, not during the first frame
}

void Spectrum::power(std::span<const std::int16_t, kWindowSamples> samples, Power& power) const noexcept {
    Points points;
    Grid by_column;
    Grid by_row;
    for (std::size_t n = 0; n < kPoints; ++n) {
        points.re[n] = static_cast<float>(samples[2 * n]) * window_[2 * n];
        points.im[n] = static_cast<float>(samples[2 * n + 1]) * window_[2 * n + 1];
    }
    columns(points, by_column);
    transpose(by_column, by_row);
    rows(by_row, points);
    split(points, power);
}

// 25 points as 5 x 5, for kLanes columns at a time; the result is at [c][b].
void Spectrum::columns(const Points& points, Grid& grid) const noexcept {
    const Twiddles25& twiddles = twiddles25();
    for (std::size_t lane = 0; lane < kColumns; lane += kLanes) {
        std::array<std::array<Complex, 5>, 5> v;
        for (std::size_t b = 0; b < 5; ++b) {
            for (std::size_t a = 0; a < 5; ++a) {
                const std::size_t at = (5 * a + b) * kColumns + lane;
                v[b][a] = {load(&points.re[at]), load(&points.im[at])};
            }
            transform5(v[b][0], v[b][1], v[b][2], v[b][3], v[b][4]);
        }
        for (std::size_t c = 0; c < 5; ++c) {
            for (std::size_t b = 1; b < 5 && c > 0; ++b) {
                v[b][c] = v[b][c].times(twiddles.re[b][c], twiddles.im[b][c]);
            }
            transform5(v[0][c], v[1][c], v[2][c], v[3][c], v[4][c]);
            for (std::size_t d = 0; d < 5; ++d) {
                const std::size_t at = (c + 5 * d) * kColumns + lane;
                const Complex out = v[d][c].times(load(&between_.re[at]), load(&between_.im[at]));
                store(&grid.re[at], out.re);
                store(&grid.im[at], out.im);
            }
        }
    }
    // Lanes past the last row are computed and discarded, but must contain numbers.
    for (std::size_t at = kPoints; at < kColumns * kRowsPadded; ++at) {
        grid.re[at] = grid.im[at] = 0;
    }
}

// [c][b] -> [b][c], in blocks of 4 x 4.
void Spectrum::transpose(const Grid& from, Grid& to) noexcept {
    const auto block = [](const float* in, float* out) noexcept {
        const auto r0 = load<FourLanes>(in);
        const auto r1 = load<FourLanes>(in + kColumns);
        const auto r2 = load<FourLanes>(in + 2 * kColumns);
        const auto r3 = load<FourLanes>(in + 3 * kColumns);
        const FourLanes low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
        const FourLanes low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
        const FourLanes high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
        const FourLanes high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
        store<FourLanes>(out, __builtin_shufflevector(low01, low23, 0, 1, 4, 5));
        store<FourLanes>(out + kRowsPadded, __builtin_shufflevector(low01, low23, 2, 3, 6, 7));
        store<FourLanes>(out + 2 * kRowsPadded, __builtin_shufflevector(high01, high23, 0, 1, 4, 5));
        store<FourLanes>(out + 3 * kRowsPadded, __builtin_shufflevector(high01, high23, 2, 3, 6, 7));
    };
    for (std::size_t c = 0; c < kRowsPadded; c += 4) {
        for (std::size_t b = 0; b < kColumns; b += 4) {
            block(&from.re[c * kColumns + b], &to.re[b * kRowsPadded + c]);
            block(&from.im[c * kColumns + b], &to.im[b * kRowsPadded + c]);
        }
    }
}

// 8 points, for kLanes values of c at a time; the result is at c + 25 d.
void Spectrum::rows(const Grid& grid, Points& points) noexcept {
    // Backwards: the vector of the last rows overlaps the next d, whose correct values are written later.
    for (std::size_t next = padded(kRows); next > 0; next -= kLanes) {
        const std::size_t c = next - kLanes;
        std::array<Complex, kColumns> v;
        for (std::size_t b = 0; b < kColumns; ++b) {
            v[b] = {load(&grid.re[b * kRowsPadded + c]), load(&grid.im[b * kRowsPadded + c])};
        }
        transform8(v);
        for (std::size_t d = 0; d < kColumns; ++d) {
            store(&points.re[c + kRows * d], v[d].re);
            store(&points.im[c + kRows * d], v[d].im);
        }
    }
    points.re[kPoints] = points.re[0];  // the spectrum is periodic
    points.im[kPoints] = points.im[0];
}

// X[k] = E[k] + W400^k O[k] and X[200 - k] = conj(E[k] - W400^k O[k]), with the spectra E of the even samples and O of
// the odd ones: 2 E[k] = Z[k] + conj Z[200 - k], 2 i O[k] = Z[k] - conj Z[200 - k].
void Spectrum::split(const Points& points, Power& power) const noexcept {
    for (std::size_t k = 0; k < kSplit; k += kLanes) {
        const std::size_t mirrored = kPoints - k - (kLanes - 1);
        const Complex z{load(&points.re[k]), load(&points.im[k])};
        const Complex other{reversed(load(&points.re[mirrored])), -reversed(load(&points.im[mirrored]))};
        const Complex even = z + other;
        const Complex odd = (z - other).turned().times(load(&last_.re[k]), load(&last_.im[k]));
        const Complex low = even + odd;
        const Complex high = even - odd;
        store(&power[k], low.re * low.re + low.im * low.im);
        const Lanes of_high = high.re * high.re + high.im * high.im;
        store(&power[mirrored], reversed(of_high));
    }
}

}  // namespace voice::features
