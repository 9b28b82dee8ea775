// Authenticates and decrypts the SRTP and SRTCP packets (RFC 3711, RFC 7714) of one session.
//
// Ciphers and digests are OpenSSL's. The rest is implemented here, because libsrtp keeps some 3 KB in twenty places for
// each session, and fetching those took twice as long as the ciphers. This keeps 256 bytes in one place, and each
// thread one context of each cipher, which takes the session's key with every packet.
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

// 16 bytes of master key and the salt, as returned at session creation: 14 bytes, or with AES-GCM 12 and two zeroes.
inline constexpr std::size_t kKeyBytes = 30;
inline constexpr std::size_t kGcmKeyBytes = 28;
using Key = std::array<std::uint8_t, kKeyBytes>;

// Bytes that follow the payload: the authentication tag.
constexpr std::size_t tag_bytes(Suite suite) noexcept { return suite == Suite::kAeadAes128Gcm ? 16 : 10; }

enum class Verdict : std::uint8_t {
    kOk,
    kAuthFailed,  // made with another key, or modified in transit
    kReplay,      // received before, or too old to tell
    kMalformed,   // not a complete SRTP packet, or one of another SSRC
};

struct Unprotected {
    Verdict verdict;
    std::span<std::uint8_t> packet;  // the RTP packet, in the same memory; empty unless the verdict is good
};

// Used by one thread. After the thread's first packet it allocates nothing.
//
// A packet carries the low 16 bits of its index; both ends count the wraps (one in 22 minutes of audio) themselves. A
// receiver that starts in the middle of a session, after a restart or because the load balancer moved the session, does
// not know that count, so it tries failing packets with higher ones. While a sender is active its count only rises: a
// recorded packet cannot push the search beyond the sender's own. A sender that has restarted with the same key counts
// from zero again, which is accepted after some time without packets.
class alignas(kCacheLine) Receiver {
public:
    static constexpr std::uint64_t kWrapsTried = 16;        // sessions of almost six hours
    // the first failure triggers a search, so forgeries cost little
    static constexpr std::uint32_t kFailuresPerSearch = 50;

    // Null if the library fails, which happens only without memory.
    static std::unique_ptr<Receiver> create(std::uint32_t ssrc, const Key& key, Suite suite = Suite::kAesCm128HmacSha1_80);

    Receiver(const Receiver&) = delete;
    Receiver& operator=(const Receiver&) = delete;
    ~Receiver();

    // `may_restart`: its sender has been silent for a while, so a packet with a count of zero may be its first after a
    // restart.
    [[nodiscard]] Unprotected unprotect(std::span<std::uint8_t> packet, bool may_restart = false) noexcept;
    // Likewise for SRTCP.
    [[nodiscard]] Unprotected unprotect_report(std::span<std::uint8_t> packet) noexcept;

    // Prefetches what unprotect() needs.
    void expect() const noexcept { prefetch(this, kHotBytes); }

private:
    static constexpr std::size_t kHotBytes = 2 * kCacheLine;

    // Received indexes, for replay detection: more than the jitter buffer repairs.
    class Window {
    public:
        static constexpr std::size_t kPackets = 128;

        [[nodiscard]] bool has(std::uint64_t index) const noexcept;  // or it is too old to tell
        [[nodiscard]] bool is_recent(std::uint64_t index) const noexcept { return newest_ - index < kPackets; }
        void put(std::uint64_t index) noexcept;
        [[nodiscard]] bool empty() const noexcept { return seen_.none(); }
        [[nodiscard]] std::uint64_t newest() const noexcept { return newest_; }

    private:
        std::uint64_t newest_ = 0;
        std::bitset<kPackets> seen_;  // by age relative to the newest
    };

    using Digest = std::array<std::uint32_t, 5>;  // of SHA-1, between two blocks

    struct Keys {
        std::array<std::uint8_t, 16> key{};
        std::array<std::uint8_t, 16> salt{};
        Digest inner{}, outer{};  // of HMAC, after its key

        bool derive(const Key& master, std::uint8_t first_label, Suite suite) noexcept;
    };

    Receiver(std::uint32_t ssrc, Suite suite) noexcept : ssrc_(ssrc), suite_(suite) {}

    [[nodiscard]] std::uint64_t index_of(std::uint16_t sequence) const noexcept;
    // Decrypts an authentic packet; leaves any other unchanged.
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
