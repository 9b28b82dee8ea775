#include "admission/session_record.hpp"

#include <arpa/inet.h>

#include <charconv>

namespace voice::admission {
namespace {

// Both keys have forty characters: thirty bytes without padding, 28 with two characters of it.
constexpr std::size_t kKeyCharacters = srtp::kKeyBytes / 3 * 4;
constexpr std::string_view kPadding = "==";

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

bool is_padded(std::string_view key) noexcept { return key.ends_with(kPadding); }

std::optional<srtp::Key> read_key(std::string_view text) {
    if (text.size() != kKeyCharacters) {
        return std::nullopt;
    }
    const std::size_t characters = kKeyCharacters - (is_padded(text) ? kPadding.size() : 0);
    srtp::Key key{};
    std::uint32_t bits = 0;
    for (std::size_t at = 0; at < characters; ++at) {
        const int value = value_of_base64(text[at]);
        if (value < 0) {
            return std::nullopt;
        }
        bits = bits << 6 | static_cast<std::uint32_t>(value);
        // A character has six bits: each but the first of four completes a byte.
        if (at % 4 != 0) {
            key[at / 4 * 3 + at % 4 - 1] = static_cast<std::uint8_t>(bits >> (6 - 2 * (at % 4)));
        }
    }
    return key;
}

// 0 where it is missing or invalid: we wrote it ourselves, and no authorization depends on it.
std::uint64_t read_count(const valkey::Fields& fields, std::string_view name) {
    const auto text = valkey::value_of(fields, name);
    std::uint64_t number = 0;
    const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc{} && at == text.data() + text.size() ? number : 0;
}

// Position at which a known session continues: as many frames after its last chunk as time has passed. The store may be
// two seconds behind when a host dies.
session::Progress read_progress(const valkey::Fields& fields, std::int64_t now) {
    constexpr std::uint64_t kFramesPerS = 50;
    constexpr std::uint64_t kOldS = 2;
    const auto chunks = read_count(fields, kChunks);
    if (chunks == 0) {
        return {};
    }
    const auto last = read_count(fields, kLastSequence);
    const auto seen_at = read_count(fields, kSeenAt);
    const auto passed = static_cast<std::uint64_t>(now) > seen_at ? static_cast<std::uint64_t>(now) - seen_at : 0;
    return {.next_frame = last + kFramesPerS * (passed + kOldS),
            .chunks = chunks,
            .last_sequence = static_cast<std::uint32_t>(last)};
}

}  // namespace

std::string session_key(std::uint32_t ssrc) { return std::string(kSessionKeyPrefix) + std::to_string(ssrc); }

std::string shipped_key(std::uint32_t ssrc) { return std::string(kShippedKeyPrefix) + std::to_string(ssrc); }

void query_session(valkey::Client& store, std::uint32_t ssrc) {
    store.append({"HGETALL", session_key(ssrc)});
    store.append({"GET", std::string(kSrtpKeyPrefix) + std::to_string(ssrc)});
    store.append({"HGETALL", shipped_key(ssrc)});
}

std::optional<valkey::Fields> fields_of_session(std::span<const valkey::Reply> replies) {
    for (const auto& reply : replies.first(kQueries)) {
        if (reply->type == REDIS_REPLY_ERROR) {
            return std::nullopt;
        }
    }
    valkey::Fields fields = valkey::fields_of(*replies[0]);
    if (fields.empty()) {
        return fields;  // the progress stored by others is older than the record's expiry
    }
    if (const auto& key = *replies[1]; key.type == REDIS_REPLY_STRING) {
        fields.emplace_back(kSrtpKey, std::string_view(key.str, key.len));
    }
    const auto shipped = valkey::fields_of(*replies[2]);
    fields.insert(fields.end(), shipped.begin(), shipped.end());
    return fields;
}

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
    // The key determines the protocol; an inconsistent record must not open a session to plain RTP.
    const auto kind = valkey::value_of(fields, kKind);
    const auto key = valkey::value_of(fields, kSrtpKey);
    record.srtp_key = read_key(key);
    record.srtp_suite = is_padded(key) ? srtp::Suite::kAeadAes128Gcm : srtp::Suite::kAesCm128HmacSha1_80;
    const bool is_gateway = kind == kKindGateway && key.empty();
    const bool is_external = kind == kKindExternal && record.srtp_key;
    if (!is_gateway && !is_external) {
        return Refusal::kMalformed;
    }
    const std::string gateway(valkey::value_of(fields, kGateway));
    if (is_gateway && gateway.empty()) {
        return Refusal::kNotYet;
    }
    if (is_gateway && inet_pton(AF_INET, gateway.c_str(), &record.gateway) != 1) {
        return Refusal::kMalformed;
    }
    if (const auto text = valkey::value_of(fields, kMedia); !text.empty()) {
        const auto media = media::read_description(text);
        if (!media) {
            return Refusal::kMalformed;
        }
        record.media = *media;
    }
    if (!valkey::value_of(fields, kBeginsAt).empty()) {
        record.begins_at = static_cast<std::uint32_t>(read_count(fields, kBeginsAt));
    }
    record.progress = read_progress(fields, now);
    return record;
}

}  // namespace voice::admission
