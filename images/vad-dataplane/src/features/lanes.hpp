// A vector of floats, as wide as the processor's registers: 4 on arm64 (NEON) and plain x86-64, 8 with AVX.
// GCC's and Clang's vector type; arithmetic on it is one instruction a lane group, on every architecture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace voice::features {

#ifdef __AVX__
inline constexpr std::size_t kLanes = 8;
#else
inline constexpr std::size_t kLanes = 4;
#endif

using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));
using IntLanes = std::int32_t __attribute__((vector_size(kLanes * sizeof(std::int32_t))));
using FourLanes = float __attribute__((vector_size(4 * sizeof(float))));

// The smallest multiple of kLanes that holds `count` floats.
constexpr std::size_t padded(std::size_t count) noexcept {
    return (count + kLanes - 1) / kLanes * kLanes;
}

// Copies instead of casts, which works for any alignment and avoids type punning.
template <typename Vector = Lanes>
inline Vector load(const float* from) noexcept {
    Vector lanes;
    std::memcpy(&lanes, from, sizeof lanes);
    return lanes;
}

template <typename Vector>
inline void store(float* to, const Vector& lanes) noexcept {
    std::memcpy(to, &lanes, sizeof lanes);
}

inline Lanes reversed(const Lanes& lanes) noexcept {
#ifdef __AVX__
    return __builtin_shufflevector(lanes, lanes, 7, 6, 5, 4, 3, 2, 1, 0);
#else
    return __builtin_shufflevector(lanes, lanes, 3, 2, 1, 0);
#endif
}

}  // namespace voice::features
