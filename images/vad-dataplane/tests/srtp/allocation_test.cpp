// Counts all calls of malloc(): a packet must not cause any. Sanitizers replace malloc().
#include <gtest/gtest.h>
#include <srtp2/srtp.h>

#include <atomic>
#include <cstdlib>
#include <vector>

#include "srtp/receiver.hpp"

namespace {
std::atomic<std::uint64_t> calls{0};
}

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* block, std::size_t bytes);

void* malloc(std::size_t bytes) {
    calls.fetch_add(1, std::memory_order_relaxed);
    return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
    calls.fetch_add(1, std::memory_order_relaxed);
    return __libc_calloc(count, bytes);
}
void* realloc(void* block, std::size_t bytes) {
    calls.fetch_add(1, std::memory_order_relaxed);
    return __libc_realloc(block, bytes);
}
}

namespace {

using voice::srtp::Receiver;
using voice::srtp::Suite;
using voice::srtp::Verdict;

constexpr std::uint32_t kSsrc = 0x0a0b0c0d;

std::vector<std::vector<std::uint8_t>> packets(voice::srtp::Key key, Suite suite, int count) {
    const auto set = suite == Suite::kAeadAes128Gcm ? srtp_crypto_policy_set_aes_gcm_128_16_auth
                                                    : srtp_crypto_policy_set_rtp_default;
    srtp_policy_t policy{};
    set(&policy.rtp);
    set(&policy.rtcp);
    policy.ssrc = {.type = ssrc_specific, .value = kSsrc};
    policy.key = key.data();
    srtp_t session = nullptr;
    EXPECT_EQ(srtp_create(&session, &policy), srtp_err_status_ok);
    std::vector<std::vector<std::uint8_t>> all;
    for (int n = 0; n < count; ++n) {
        std::vector<std::uint8_t> packet{0x80, 96, static_cast<std::uint8_t>(n >> 8), static_cast<std::uint8_t>(n),
                                         0,    0,  0, 0, 0xa, 0xb, 0xc, 0xd};
        packet.resize(652 + SRTP_MAX_TRAILER_LEN);
        int bytes = 652;
        EXPECT_EQ(srtp_protect(session, packet.data(), &bytes), srtp_err_status_ok);
        packet.resize(static_cast<std::size_t>(bytes));
        all.push_back(std::move(packet));
    }
    srtp_dealloc(session);
    return all;
}

TEST(SrtpAllocations, AreNone) {
    ASSERT_EQ(srtp_init(), srtp_err_status_ok);
    for (const auto suite : {Suite::kAesCm128HmacSha1_80, Suite::kAeadAes128Gcm}) {
        const voice::srtp::Key key{1, 2, 3};
        const auto receiver = Receiver::create(kSsrc, key, suite);
        auto sent = packets(key, suite, 1000);
        sent[500].back() ^= 1;  // a forgery, and the resulting search, allocate nothing either
        // creates the thread's cipher
        std::uint64_t fine = receiver->unprotect(sent[0]).verdict == Verdict::kOk ? 1 : 0;
        const auto before = calls.load();
        for (std::size_t n = 1; n < sent.size(); ++n) {
            fine += receiver->unprotect(sent[n]).verdict == Verdict::kOk ? 1 : 0;
        }
        EXPECT_EQ(calls.load() - before, 0U);
        EXPECT_EQ(fine, sent.size() - 1);
    }
}

}  // namespace
