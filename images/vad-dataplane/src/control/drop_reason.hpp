// Why packets and chunks are dropped, under the names that metrics carry (blueprint/contract/).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace voice::control {

enum class DropReason : std::uint8_t {
    kRingFull,  // of chunks, or of packets between two pollers
    kNotRtp,
    kWrongPayload,  // a payload type, or a size, that the session's record does not name
    kUnknownSession,
    kBlocked,
    kAdmissionFull,
    kUnauthenticated,  // SRTP: wrong key, or changed on the way; RTP: not from its gateway
    kLate,
    kReplay,       // SRTP: has come before
    kRateLimited,  // more than a session's sender sends, or than others may in its name
    kNoSocket,     // no AF_XDP socket is bound to the queue
    kNoHost,       // no ASR host has a slot
    kShed,         // the ASR hosts or the network take less than comes
};

inline constexpr std::array<std::string_view, 13> kDropReasonNames{
    "ring-full", "not-rtp", "wrong-payload", "unknown-session", "blocked", "admission-full", "unauthenticated",
    "late",      "replay",  "rate-limited",  "no-socket",       "no-host", "shed",
};

using Drops = std::array<std::uint64_t, kDropReasonNames.size()>;

inline std::uint64_t& drops_of(Drops& drops, DropReason reason) noexcept {
    return drops[static_cast<std::size_t>(reason)];
}

}  // namespace voice::control
