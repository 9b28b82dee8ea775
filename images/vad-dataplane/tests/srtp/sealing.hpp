// The sending half of SRTP and SRTCP with AES-CM and HMAC-SHA1 (RFC 3711), for authentic packets with any content.
#pragma once

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "srtp/receiver.hpp"

namespace voice::test {

class Sealer {
public:
    explicit Sealer(const srtp::Key& master) : master_(master) {}

    // `header`: unencrypted bytes.
    void seal(std::vector<std::uint8_t>& packet, std::size_t header, std::uint32_t ssrc, std::uint64_t index) const {
        encrypt(std::span(packet).subspan(header), 0, ssrc, index);
        auto signed_bytes = packet;
        put(signed_bytes, static_cast<std::uint32_t>(index >> 16));
        append_tag(packet, signed_bytes, 1);
    }
    void seal_report(std::vector<std::uint8_t>& packet, std::uint32_t ssrc, std::uint32_t index) const {
        encrypt(std::span(packet).subspan(8), 3, ssrc, index);
        put(packet, index | 0x80000000U);
        append_tag(packet, packet, 4);
    }

private:
    using Block = std::array<std::uint8_t, 16>;

    static void put(std::vector<std::uint8_t>& into, std::uint32_t number) {
        for (int shift = 24; shift >= 0; shift -= 8) {
            into.push_back(static_cast<std::uint8_t>(number >> shift));
        }
    }
    static void counter_mode(const std::uint8_t* key, const Block& counter, std::span<std::uint8_t> bytes) {
        EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
        int count = 0;
        EVP_EncryptInit_ex(context, EVP_aes_128_ctr(), nullptr, key, counter.data());
        EVP_EncryptUpdate(context, bytes.data(), &count, bytes.data(), static_cast<int>(bytes.size()));
        EVP_CIPHER_CTX_free(context);
    }
    [[nodiscard]] std::array<std::uint8_t, 20> derived(std::uint8_t label) const {
        Block counter{};
        std::copy(master_.begin() + 16, master_.end(), counter.begin());
        counter[7] ^= label;
        std::array<std::uint8_t, 20> key{};
        counter_mode(master_.data(), counter, key);
        return key;
    }
    void encrypt(std::span<std::uint8_t> bytes, std::uint8_t first_label, std::uint32_t ssrc, std::uint64_t index) const {
        const auto key = derived(first_label), salt = derived(static_cast<std::uint8_t>(first_label + 2));
        Block counter{};
        std::copy_n(salt.begin(), 14, counter.begin());
        for (int i = 0; i < 4; ++i) {
            counter[static_cast<std::size_t>(4 + i)] ^= static_cast<std::uint8_t>(ssrc >> (24 - 8 * i));
        }
        for (int i = 0; i < 6; ++i) {
            counter[static_cast<std::size_t>(8 + i)] ^= static_cast<std::uint8_t>(index >> (40 - 8 * i));
        }
        counter_mode(key.data(), counter, bytes);
    }
    void append_tag(std::vector<std::uint8_t>& packet, const std::vector<std::uint8_t>& signed_bytes,
                    std::uint8_t label) const {
        const auto key = derived(label);
        std::array<std::uint8_t, 20> digest{};
        unsigned bytes = 0;
        HMAC(EVP_sha1(), key.data(), static_cast<int>(key.size()), signed_bytes.data(), signed_bytes.size(), digest.data(),
             &bytes);
        packet.insert(packet.end(), digest.begin(), digest.begin() + 10);
    }

    srtp::Key master_;
};

}  // namespace voice::test
