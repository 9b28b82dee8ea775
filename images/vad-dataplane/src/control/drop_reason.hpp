// Reasons for dropped packets and chunks, under the names of the metrics (voice_blueprint/contract/).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace voice::control {

enum class DropReason : std::uint8_t {
    kRingFull,  // of chunks, or of packets between two pollers
    kNotRtp,
    kWrongPayload,  // a payload type, or a size, that the session's record does not contain
    kUnknownSession,
    kBlocked,
    kAdmissionFull,
    kUnauthenticated,  // SRTP: wrong key, or modified in transit; RTP: not from its gateway
    kLate,
    kReplay,       // SRTP: received before
    kRateLimited,  // above the rate of a session's sender, or of others in its name
    kNoSocket,     // no AF_XDP socket is bound to the queue
    kNoHost,       // no ASR host has a free slot
    kShed,         // the ASR hosts or the network accept less than arrives
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
