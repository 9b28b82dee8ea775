// The data of a session in the state store. The keys contain its SSRC in decimal. The gateway writes the hash
// `session:<ssrc>`
//
//   state       `open`; with any other value it is not admitted
//   kind        `gateway`: plain RTP from inside the network; `external`: SRTP from outside
//   gateway     IPv4 address that plain RTP of a `gateway` session comes from; written before the first packet
//   media       format of its packets, such as `96 L16/16000/1 20` (media/description.hpp), which is the default
//   expires_at  seconds since 1970 (UTC) after which it is not admitted
//
// and the string `srtp:<ssrc>`, base64 of master key and salt: 30 bytes for AES_CM_128_HMAC_SHA1_80, 28 for
// AEAD_AES_128_GCM, which specifies the suite; required of `external`, refused for `gateway`. This tier's
// state/write_behind.hpp writes the hash `shipped:<ssrc>`, from which the next host, or this one after a restart,
// continues to count:
//
//   chunks         chunks made so far
//   last_sequence  of the last chunk
//   seen_at        seconds since 1970 (UTC) of the last packet
//   begins_at      RTP timestamp of the session's first frame, the origin of positions in its audio; for a `gateway`
//                  session the gateway writes it
//   wrong_payload  packets that do not match `media`
//
// Fields that are not listed here are others' and are skipped.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "media/description.hpp"
#include "session/progress.hpp"
#include "srtp/receiver.hpp"
#include "valkey/client.hpp"

namespace voice::admission {

inline constexpr std::string_view kSessionKeyPrefix = "session:";
inline constexpr std::string_view kSrtpKeyPrefix = "srtp:";
inline constexpr std::string_view kShippedKeyPrefix = "shipped:";
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
inline constexpr std::string_view kWrongPayload = "wrong_payload";

struct SessionRecord {
    std::optional<srtp::Key> srtp_key;  // set: only SRTP is accepted
    srtp::Suite srtp_suite = srtp::Suite::kAesCm128HmacSha1_80;
    std::uint32_t gateway = 0;  // otherwise: IPv4 address from which RTP is accepted, in network order
    std::int64_t expires_at = 0;
    std::optional<std::uint32_t> begins_at;  // RTP timestamp of the session's first frame, if known
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
std::string shipped_key(std::uint32_t ssrc);

inline constexpr std::size_t kQueries = 3;  // that query_session() appends
// Requests all stored state of a session.
void query_session(valkey::Client& store, std::uint32_t ssrc);
// Returns the fields of a session from the replies to query_session(), the gateway's first; nothing if a reply is an
// error.
std::optional<valkey::Fields> fields_of_session(std::span<const valkey::Reply> replies);

// `fields`: those of the record and of `shipped`, with the SRTP key as `srtp_key`. `now`: seconds since 1970.
std::variant<SessionRecord, Refusal> read_session(const valkey::Fields& fields, std::int64_t now);

}  // namespace voice::admission
