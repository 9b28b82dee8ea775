// What the state store says of a session: the hash `session:<ssrc>`, its SSRC in decimal. The gateway writes
//
//   state       `open`; anything else is not let in
//   kind        `gateway`: plain RTP from inside the network; `external`: SRTP from outside
//   srtp_key    base64 of master key and salt: 30 bytes for AES_CM_128_HMAC_SHA1_80, 28 for AEAD_AES_128_GCM, which says
//               the suite; required of `external`, refused for `gateway`
//   gateway     IPv4 address that plain RTP of a `gateway` session comes from; written before the first packet
//   media       what its packets hold, such as `96 L16/16000/1 20` (media/description.hpp); that, where there is none
//   expires_at  seconds since 1970 (UTC) after which nothing is let in
//
// and this tier's state/write_behind.hpp, so that the next host, or this one when it starts again, goes on counting:
//
//   chunks         chunks made so far
//   last_sequence  of the last chunk
//   seen_at        seconds since 1970 (UTC) of the last packet
//
// Fields that are not listed here are others' and are skipped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "media/description.hpp"
#include "session/progress.hpp"
#include "srtp/receiver.hpp"
#include "valkey/client.hpp"

namespace voice::admission {

inline constexpr std::string_view kSessionKeyPrefix = "session:";
inline constexpr std::string_view kState = "state";
inline constexpr std::string_view kStateOpen = "open";
inline constexpr std::string_view kKind = "kind";
inline constexpr std::string_view kKindGateway = "gateway";
inline constexpr std::string_view kKindExternal = "external";
inline constexpr std::string_view kSrtpKey = "srtp_key";
inline constexpr std::string_view kGateway = "gateway";
inline constexpr std::string_view kMedia = "media";
inline constexpr std::string_view kExpiresAt = "expires_at";
inline constexpr std::string_view kChunks = "chunks";
inline constexpr std::string_view kLastSequence = "last_sequence";
inline constexpr std::string_view kSeenAt = "seen_at";
inline constexpr std::string_view kBeginsAt = "begins_at";

struct SessionRecord {
    std::optional<srtp::Key> srtp_key;  // set: nothing but SRTP is taken
    srtp::Suite srtp_suite = srtp::Suite::kAesCm128HmacSha1_80;
    std::uint32_t gateway = 0;  // otherwise: IPv4 address that RTP is taken from, in network order
    std::int64_t expires_at = 0;
    std::optional<std::uint32_t> begins_at;  // RTP timestamp of the session's first frame, where a gateway tells it
    media::Description media;
    session::Progress progress;
};

enum class Refusal : std::uint8_t {
    kUnknown,
    kClosed,
    kExpired,
    kMalformed,
    kNotYet,  // no gateway has opened its socket
};

std::string session_key(std::uint32_t ssrc);

// `now`: seconds since 1970.
std::variant<SessionRecord, Refusal> read_session(const valkey::Fields& fields, std::int64_t now);

}  // namespace voice::admission
