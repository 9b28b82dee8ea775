#include "admission/session_record.hpp"

#include <charconv>

namespace voice::admission {
namespace {

constexpr std::size_t kKeyCharacters = srtp::kKeyBytes / 3 * 4;

int value_of_base64(char character) noexcept {
    if (character >= 'A' && character <= 'Z') {
        return character - 'A';
    }
    if (character >= 'a' && character <= 'z') {
        return character - 'a' + 26;
    }
    if (character >= '0' && character <= '9') {
        return character - '0' + 52;
    }
    return character == '+' ? 62 : character == '/' ? 63 : -1;
}

// Thirty bytes are forty characters without padding.
std::optional<srtp::Key> read_key(std::string_view text) {
    if (text.size() != kKeyCharacters) {
        return std::nullopt;
    }
    srtp::Key key{};
    for (std::size_t group = 0; group < kKeyCharacters / 4; ++group) {
        std::uint32_t bits = 0;
        for (const char character : text.substr(4 * group, 4)) {
            const int value = value_of_base64(character);
            if (value < 0) {
                return std::nullopt;
            }
            bits = bits << 6 | static_cast<std::uint32_t>(value);
        }
        for (std::size_t byte = 0; byte < 3; ++byte) {
            key[3 * group + byte] = static_cast<std::uint8_t>(bits >> (16 - 8 * byte));
        }
    }
    return key;
}

}  // namespace

std::string session_key(std::uint32_t ssrc) { return std::string(kSessionKeyPrefix) + std::to_string(ssrc); }

std::variant<SessionRecord, Refusal> read_session(const valkey::Fields& fields, std::int64_t now) {
    if (fields.empty()) {
        return Refusal::kUnknown;
    }
    if (valkey::value_of(fields, kState) != kStateOpen) {
        return Refusal::kClosed;
    }
    SessionRecord record;
    const auto expiry = valkey::value_of(fields, kExpiresAt);
    const auto* const end = expiry.data() + expiry.size();
    const auto [at, error] = std::from_chars(expiry.data(), end, record.expires_at);
    if (error != std::errc{} || at != end) {
        return Refusal::kMalformed;
    }
    if (record.expires_at <= now) {
        return Refusal::kExpired;
    }
    // A key decides what is taken; a record that contradicts itself must not open a session to plain RTP.
    const auto kind = valkey::value_of(fields, kKind);
    const auto key = valkey::value_of(fields, kSrtpKey);
    record.srtp_key = read_key(key);
    const bool is_gateway = kind == kKindGateway && key.empty();
    const bool is_external = kind == kKindExternal && record.srtp_key;
    if (!is_gateway && !is_external) {
        return Refusal::kMalformed;
    }
    return record;
}

}  // namespace voice::admission
