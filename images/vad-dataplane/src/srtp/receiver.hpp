// Authenticates and decrypts the SRTP packets (RFC 3711) of one session.
#pragma once

#include <srtp2/srtp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

namespace voice::srtp {

// AES_CM_128_HMAC_SHA1_80: 16 bytes of master key and 14 of salt, as session creation returned them.
inline constexpr std::size_t kKeyBytes = 30;
using Key = std::array<std::uint8_t, kKeyBytes>;

// Bytes that follow the payload: the authentication tag.
inline constexpr std::size_t kTagBytes = 10;

enum class Verdict : std::uint8_t {
    kOk,
    kAuthFailed,  // not made with this session's key, or changed on the way
    kReplay,      // has come before, or is too old to tell
    kMalformed,   // no whole SRTP packet, or of another SSRC
};

struct Unprotected {
    Verdict verdict;
    std::span<std::uint8_t> packet;  // the RTP packet, in the same memory; empty unless it is fine
};

// Used by one thread. After creation it allocates nothing.
//
// A packet carries the low 16 bits of its number; both ends count the wraps (one in 22 minutes of audio) for
// themselves. A receiver that starts in the middle of a session, since its host was restarted or the load balancer
// moved the session, does not know that count, so packets that fail are tried with higher ones. The count only ever
// rises: a recorded packet cannot lead the search beyond the sender's own.
class Receiver {
public:
    static constexpr std::uint32_t kWrapsTried = 16;        // sessions of almost six hours
    static constexpr std::uint32_t kFailuresPerSearch = 50;  // the first failure searches: forgeries cost little

    // Null when the library refuses, which takes a lack of memory.
    static std::unique_ptr<Receiver> create(std::uint32_t ssrc, const Key& key);

    [[nodiscard]] Unprotected unprotect(std::span<std::uint8_t> packet) noexcept;
    // Of SRTCP.
    [[nodiscard]] Unprotected unprotect_report(std::span<std::uint8_t> packet) noexcept;

private:
    struct Free {
        void operator()(srtp_t session) const noexcept { srtp_dealloc(session); }
    };
    using Session = std::unique_ptr<std::remove_pointer_t<srtp_t>, Free>;

    Receiver(Session session, std::uint32_t ssrc) noexcept : session_(std::move(session)), ssrc_(ssrc) {}
    srtp_err_status_t search(std::span<std::uint8_t> packet, int& bytes) noexcept;

    Session session_;
    std::uint32_t ssrc_;
    std::uint32_t failures_ = 0;
};

}  // namespace voice::srtp
