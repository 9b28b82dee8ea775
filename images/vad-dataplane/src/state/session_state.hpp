// A session's entry in the session table: its progress and the destination of its chunks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "state/layout.hpp"

namespace voice::state {

struct SessionState {
    std::uint64_t packets = 0;
    std::uint64_t chunks = 0;  // of speech, made for the ASR tier
    std::uint64_t concealed = 0;  // frames that were concealed
    std::int64_t seen_ns = 0;  // CLOCK_MONOTONIC, of the last packet that changed the entry
    std::uint32_t last_sequence = 0;  // of the last chunk, once there is one
    std::uint32_t host = 0;  // IPv4 address of the ASR host, in network order; 0: none yet
    std::uint32_t origin = 0;  // timestamp of its position 0, if `has_origin`
    std::uint16_t speaking = 0;
    std::uint16_t has_origin = 0;
    std::uint64_t wrong_payload = 0;  // packets that do not match its record
};
static_assert(std::is_trivially_copyable_v<SessionState> && sizeof(SessionState) <= kValueBytes);

using Value = std::array<std::byte, kValueBytes>;

inline Value to_value(const SessionState& state) noexcept {
    Value value{};
    std::memcpy(value.data(), &state, sizeof state);
    return value;
}

inline SessionState from_value(const Value& value) noexcept {
    SessionState state;
    std::memcpy(&state, value.data(), sizeof state);
    return state;
}

}  // namespace voice::state
