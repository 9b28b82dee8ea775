// Authenticates and decrypts the SRTP and SRTCP packets (RFC 3711, RFC 7714) of one session.
//
// Ciphers and digests are OpenSSL's; the rest is here, since libsrtp keeps some 3 KB in twenty places for each session, and
// fetching those took twice as long as the ciphers. This keeps 256 bytes in one place, and each thread one context of each
// cipher, which takes the session's key with every packet.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "support/prefetch.hpp"

namespace voice::srtp {

enum class Suite : std::uint8_t {
    kAesCm128HmacSha1_80,
    kAeadAes128Gcm,
};

// 16 bytes of master key and the salt, as session creation returned them: 14 bytes, with AES-GCM 12 and two zeroes.
inline constexpr std::size_t kKeyBytes = 30;
inline constexpr std::size_t kGcmKeyBytes = 28;
using Key = std::array<std::uint8_t, kKeyBytes>;

// Bytes that follow the payload: the authentication tag.
constexpr std::size_t tag_bytes(Suite suite) noexcept { return suite == Suite::kAeadAes128Gcm ? 16 : 10; }

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

// Used by one thread. After the thread's first packet it allocates nothing.
//
// A packet carries the low 16 bits of its number; both ends count the wraps (one in 22 minutes of audio) for
// themselves. A receiver that starts in the middle of a session, since its host was restarted or the load balancer
// moved the session, does not know that count, so packets that fail are tried with higher ones. The count only ever
// rises: a recorded packet cannot lead the search beyond the sender's own.
class alignas(kCacheLine) Receiver {
public:
    static constexpr std::uint64_t kWrapsTried = 16;        // sessions of almost six hours
    static constexpr std::uint32_t kFailuresPerSearch = 50;  // the first failure searches: forgeries cost little

    // Null when the library refuses, which takes a lack of memory.
    static std::unique_ptr<Receiver> create(std::uint32_t ssrc, const Key& key, Suite suite = Suite::kAesCm128HmacSha1_80);

    Receiver(const Receiver&) = delete;
    Receiver& operator=(const Receiver&) = delete;
    ~Receiver();

    [[nodiscard]] Unprotected unprotect(std::span<std::uint8_t> packet) noexcept;
    // Of SRTCP.
    [[nodiscard]] Unprotected unprotect_report(std::span<std::uint8_t> packet) noexcept;

    // Has fetched what unprotect() needs.
    void expect() const noexcept { prefetch(this, kHotBytes); }

private:
    static constexpr std::size_t kHotBytes = 2 * kCacheLine;

    // The numbers that have come, so that replays are told: more than the jitter buffer repairs.
    class Window {
    public:
        static constexpr std::size_t kPackets = 128;

        [[nodiscard]] bool has(std::uint64_t index) const noexcept;  // or it is too old to tell
        void put(std::uint64_t index) noexcept;
        [[nodiscard]] bool empty() const noexcept { return seen_.none(); }
        [[nodiscard]] std::uint64_t newest() const noexcept { return newest_; }

    private:
        std::uint64_t newest_ = 0;
        std::bitset<kPackets> seen_;  // by how much older than the newest
    };

    using Digest = std::array<std::uint32_t, 5>;  // of SHA-1, between two blocks

    struct Keys {
        std::array<std::uint8_t, 16> key{};
        std::array<std::uint8_t, 16> salt{};
        Digest inner{}, outer{};  // of HMAC, with its key in them already

        bool derive(const Key& master, std::uint8_t first_label, Suite suite) noexcept;
    };

    Receiver(std::uint32_t ssrc, Suite suite) noexcept : ssrc_(ssrc), suite_(suite) {}

    [[nodiscard]] std::uint64_t index_of(std::uint16_t sequence) const noexcept;
    // Decrypts the packet if it is authentic; otherwise leaves it as it is.
    [[nodiscard]] bool open(std::span<std::uint8_t> packet, std::size_t header, std::uint64_t index) const noexcept;
    [[nodiscard]] bool open_report(std::span<std::uint8_t> packet, std::uint32_t index, bool encrypted) const noexcept;

    std::uint32_t ssrc_;
    std::uint32_t failures_ = 0;
    Window window_;
    Keys rtp_;
    Suite suite_;
    Keys rtcp_;
    Window reports_;
};

}  // namespace voice::srtp
