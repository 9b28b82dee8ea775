#include "srtp/receiver.hpp"

// HMAC starts from an intermediate digest state, which only SHA_CTX exposes.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

#include <algorithm>
#include <limits>
#include <new>

#include "rtp/packet.hpp"
#include "wire/packet.h"

namespace voice::srtp {
namespace {

constexpr std::size_t kReportHeader = 8, kReportIndex = 4;  // of SRTCP: packet type and SSRC; E and the index
constexpr std::size_t kMasterKey = 16;
constexpr std::uint8_t kLabelsOfRtp = 0, kLabelsOfRtcp = 3;  // RFC 3711, section 4.3.2: cipher, authentication, salt
constexpr std::size_t kLongest = std::numeric_limits<std::uint16_t>::max();

using Bytes = std::span<const std::uint8_t>;

// A thread's cipher context. It takes a key and a number with every packet, without allocation.
class Cipher {
public:
    explicit Cipher(const EVP_CIPHER* kind) noexcept : context_(EVP_CIPHER_CTX_new()) {
        ready_ = context_ != nullptr && EVP_DecryptInit_ex(context_, kind, nullptr, nullptr, nullptr) == 1;
    }
    Cipher(const Cipher&) = delete;
    Cipher& operator=(const Cipher&) = delete;
    ~Cipher() { EVP_CIPHER_CTX_free(context_); }

    [[nodiscard]] bool start(Bytes key, Bytes number) noexcept {
        return ready_ && EVP_DecryptInit_ex(context_, nullptr, nullptr, key.data(), number.data()) == 1;
    }
    // `into` null: additional authenticated data.
    [[nodiscard]] bool update(std::uint8_t* into, Bytes from) noexcept {
        int bytes = 0;
        return EVP_DecryptUpdate(context_, into, &bytes, from.data(), static_cast<int>(from.size())) == 1;
    }
    [[nodiscard]] bool matches(std::span<std::uint8_t> tag) noexcept {
        int bytes = 0;
        std::uint8_t none = 0;
        return EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_SET_TAG, static_cast<int>(tag.size()), tag.data()) == 1 &&
               EVP_DecryptFinal_ex(context_, &none, &bytes) == 1;
    }

private:
    EVP_CIPHER_CTX* context_;
    bool ready_;
};

Cipher& counter_mode() {
    thread_local Cipher cipher(EVP_aes_128_ctr());
    return cipher;
}

Cipher& galois_counter_mode() {
    thread_local Cipher cipher(EVP_aes_128_gcm());
    return cipher;
}

// Adds a number to a salt in network order, with its last byte at `last`.
void mix(std::span<std::uint8_t> into, std::size_t last, std::uint64_t number) noexcept {
    for (; number != 0; number >>= 8) {
        into[last--] ^= static_cast<std::uint8_t>(number);
    }
}

std::array<std::uint8_t, 4> bytes_of(std::uint32_t number) noexcept {
    std::array<std::uint8_t, 4> bytes{};
    mix(bytes, 3, number);
    return bytes;
}

using Digest = std::array<std::uint32_t, 5>;

Digest state_of(const SHA_CTX& sha) noexcept { return {sha.h0, sha.h1, sha.h2, sha.h3, sha.h4}; }

SHA_CTX resumed(const Digest& state) noexcept {
    SHA_CTX sha{};
    SHA1_Init(&sha);
    sha.h0 = state[0], sha.h1 = state[1], sha.h2 = state[2], sha.h3 = state[3], sha.h4 = state[4];
    sha.Nl = 8 * SHA_CBLOCK;
    return sha;
}

Digest after_key(Bytes key, std::uint8_t pad) noexcept {
    std::array<std::uint8_t, SHA_CBLOCK> block;
    block.fill(pad);
    for (std::size_t i = 0; i < key.size(); ++i) {
        block[i] ^= key[i];
    }
    SHA_CTX sha;
    SHA1_Init(&sha);
    SHA1_Update(&sha, block.data(), block.size());
    OPENSSL_cleanse(block.data(), block.size());
    return state_of(sha);
}

bool has_hmac(const Digest& inner, const Digest& outer, Bytes text, Bytes more, Bytes tag) noexcept {
    std::array<std::uint8_t, SHA_DIGEST_LENGTH> digest;
    SHA_CTX sha = resumed(inner);
    SHA1_Update(&sha, text.data(), text.size());
    SHA1_Update(&sha, more.data(), more.size());
    SHA1_Final(digest.data(), &sha);
    sha = resumed(outer);
    SHA1_Update(&sha, digest.data(), digest.size());
    SHA1_Final(digest.data(), &sha);
    return CRYPTO_memcmp(digest.data(), tag.data(), tag.size()) == 0;
}

// AES-GCM produces plaintext before it verifies the tag, so it is kept aside until then.
bool open_gcm(Bytes key, Bytes number, Bytes header, Bytes more, std::span<std::uint8_t> sealed,
              std::span<std::uint8_t> tag) noexcept {
    thread_local std::array<std::uint8_t, kLongest> aside;
    Cipher& cipher = galois_counter_mode();
    if (!cipher.start(key, number) || !cipher.update(nullptr, header) || (!more.empty() && !cipher.update(nullptr, more)) ||
        (!sealed.empty() && !cipher.update(aside.data(), sealed)) || !cipher.matches(tag)) {
        return false;
    }
    std::copy_n(aside.begin(), sealed.size(), sealed.begin());
    return true;
}

// Bytes before the payload; 0 if the packet is shorter.
std::size_t header_of(Bytes packet) noexcept {
    std::size_t bytes = rtp::kHeaderBytes + 4 * (packet[0] & 0x0fU);
    if ((packet[0] & 0x10U) != 0) {
        bytes += packet.size() < bytes + 4 ? packet.size() : 4 + 4 * voice_read16(&packet[bytes + 2]);
    }
    return bytes <= packet.size() ? bytes : 0;
}

}  // namespace

bool Receiver::Window::has(std::uint64_t index) const noexcept {
    return index <= newest_ && !empty() && (newest_ - index >= kPackets || seen_[newest_ - index]);
}

void Receiver::Window::put(std::uint64_t index) noexcept {
    if (index > newest_) {
        const std::uint64_t by = index - newest_;
        seen_ = by < kPackets ? seen_ << by : std::bitset<kPackets>();
        newest_ = index;
    }
    seen_.set(newest_ - index);
}

bool Receiver::Keys::derive(const Key& master, std::uint8_t first_label, Suite suite) noexcept {
    const auto draw = [&](std::uint8_t label, std::span<std::uint8_t> into) {
        std::array<std::uint8_t, 16> number{};
        std::copy(master.begin() + kMasterKey, master.end(), number.begin());
        number[7] ^= label;
        constexpr std::array<std::uint8_t, SHA_DIGEST_LENGTH> kZeroes{};
        Cipher& cipher = counter_mode();
        return cipher.start(std::span(master).first(kMasterKey), number) &&
               cipher.update(into.data(), std::span(kZeroes).first(into.size()));
    };
    std::array<std::uint8_t, SHA_DIGEST_LENGTH> authentication{};
    const std::size_t salt_bytes = suite == Suite::kAeadAes128Gcm ? 12 : 14;
    const bool drawn = draw(first_label, key) && draw(static_cast<std::uint8_t>(first_label + 1), authentication) &&
                       draw(static_cast<std::uint8_t>(first_label + 2), std::span(salt).first(salt_bytes));
    inner = after_key(authentication, 0x36);
    outer = after_key(authentication, 0x5c);
    OPENSSL_cleanse(authentication.data(), authentication.size());
    return drawn;
}

std::unique_ptr<Receiver> Receiver::create(std::uint32_t ssrc, const Key& key, Suite suite) {
    static_assert(offsetof(Receiver, rtcp_) <= kHotBytes, "what every packet needs");
    std::unique_ptr<Receiver> made(new (std::nothrow) Receiver(ssrc, suite));
    const bool ready = made != nullptr && made->rtp_.derive(key, kLabelsOfRtp, suite) &&
                       made->rtcp_.derive(key, kLabelsOfRtcp, suite);
    return ready ? std::move(made) : nullptr;
}

Receiver::~Receiver() {
    OPENSSL_cleanse(&rtp_, sizeof rtp_);
    OPENSSL_cleanse(&rtcp_, sizeof rtcp_);
}

// The index closest to the newest one (RFC 3711, section 3.3.1).
std::uint64_t Receiver::index_of(std::uint16_t sequence) const noexcept {
    constexpr std::uint64_t kWrap = 1 << 16;
    const std::uint64_t newest = window_.newest();
    const std::uint64_t index = (newest & ~(kWrap - 1)) | sequence;
    if (index > newest + kWrap / 2 && index >= kWrap) {
        return index - kWrap;
    }
    return newest > index + kWrap / 2 ? index + kWrap : index;
}

Unprotected Receiver::unprotect(std::span<std::uint8_t> packet, bool may_restart) noexcept {
    const std::size_t tag = tag_bytes(suite_);
    if (packet.size() < rtp::kHeaderBytes + tag || packet.size() > kLongest || voice_read32(&packet[8]) != ssrc_) {
        return {Verdict::kMalformed, {}};
    }
    const std::size_t header = header_of(packet.first(packet.size() - tag));
    if (header == 0) {
        return {Verdict::kMalformed, {}};
    }
    std::uint64_t index = index_of(voice_read16(&packet[2]));
    const bool is_replay = window_.has(index);
    if (is_replay && (!may_restart || window_.is_recent(index))) {
        return {Verdict::kReplay, {}};
    }
    bool authentic = !is_replay && open(packet, header, index);
    if (!authentic && may_restart) {
        index = voice_read16(&packet[2]);
        authentic = open(packet, header, index);
        if (authentic) {
            window_ = reports_ = Window();
        } else {
            index = index_of(static_cast<std::uint16_t>(index));
        }
    }
    if (!authentic && is_replay) {
        return {Verdict::kReplay, {}};
    }
    if (!authentic && failures_++ % kFailuresPerSearch == 0) {
        for (std::uint64_t wraps = 1; wraps <= kWrapsTried && !authentic; ++wraps) {
            index += 1 << 16;
            authentic = open(packet, header, index);
        }
    }
    if (!authentic) {
        return {Verdict::kAuthFailed, {}};
    }
    window_.put(index);
    return {Verdict::kOk, packet.first(packet.size() - tag)};
}

bool Receiver::open(std::span<std::uint8_t> packet, std::size_t header, std::uint64_t index) const noexcept {
    const std::size_t end = packet.size() - tag_bytes(suite_);
    const auto payload = packet.subspan(header, end - header);
    auto number = rtp_.salt;
    if (suite_ == Suite::kAeadAes128Gcm) {
        mix(number, 5, ssrc_);
        mix(number, 11, index);
        return open_gcm(rtp_.key, number, packet.first(header), {}, payload, packet.subspan(end));
    }
    const auto wraps = bytes_of(static_cast<std::uint32_t>(index >> 16));
    if (!has_hmac(rtp_.inner, rtp_.outer, packet.first(end), wraps, packet.subspan(end))) {
        return false;
    }
    mix(number, 7, ssrc_);
    mix(number, 13, index);
    return counter_mode().start(rtp_.key, number) && counter_mode().update(payload.data(), payload);
}

Unprotected Receiver::unprotect_report(std::span<std::uint8_t> packet) noexcept {
    const std::size_t after = tag_bytes(suite_) + kReportIndex;
    if (packet.size() < kReportHeader + after || packet.size() > kLongest || voice_read32(&packet[4]) != ssrc_) {
        return {Verdict::kMalformed, {}};
    }
    // The index precedes the tag of AES-CM, and follows that of AES-GCM.
    const std::size_t at = packet.size() - (suite_ == Suite::kAeadAes128Gcm ? kReportIndex : after);
    const std::uint32_t word = voice_read32(&packet[at]);
    const std::uint32_t index = word & 0x7fffffffU;
    if (reports_.has(index)) {
        return {Verdict::kReplay, {}};
    }
    if (!open_report(packet, index, word != index)) {
        return {Verdict::kAuthFailed, {}};
    }
    reports_.put(index);
    return {Verdict::kOk, packet.first(packet.size() - after)};
}

bool Receiver::open_report(std::span<std::uint8_t> packet, std::uint32_t index, bool encrypted) const noexcept {
    const std::size_t end = packet.size() - tag_bytes(suite_) - kReportIndex;
    const auto payload = packet.subspan(kReportHeader, encrypted ? end - kReportHeader : 0);
    auto number = rtcp_.salt;
    if (suite_ == Suite::kAeadAes128Gcm) {
        mix(number, 5, ssrc_);
        mix(number, 11, index);
        return open_gcm(rtcp_.key, number, packet.first(end - payload.size()), packet.last(kReportIndex), payload,
                        packet.subspan(end, tag_bytes(suite_)));
    }
    const std::size_t signed_bytes = end + kReportIndex;
    if (!has_hmac(rtcp_.inner, rtcp_.outer, packet.first(signed_bytes), {}, packet.subspan(signed_bytes))) {
        return false;
    }
    mix(number, 7, ssrc_);
    mix(number, 13, index);
    return !encrypted || (counter_mode().start(rtcp_.key, number) && counter_mode().update(payload.data(), payload));
}

}  // namespace voice::srtp
