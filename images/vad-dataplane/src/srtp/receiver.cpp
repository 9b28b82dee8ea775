#include "srtp/receiver.hpp"

#include <limits>
#include <utility>

#include "rtp/packet.hpp"

namespace voice::srtp {
namespace {

// Packets that may come out of order and still be told from replays; more than the jitter buffer repairs.
constexpr unsigned long kReplayWindow = 128;

bool library_is_ready() {
    static const bool ready = srtp_init() == srtp_err_status_ok;
    return ready;
}

Verdict verdict_of(srtp_err_status_t status) noexcept {
    switch (status) {
        case srtp_err_status_ok:
            return Verdict::kOk;
        case srtp_err_status_replay_fail:
        case srtp_err_status_replay_old:
        case srtp_err_status_pkt_idx_old:
            return Verdict::kReplay;
        case srtp_err_status_bad_param:
        case srtp_err_status_parse_err:
        case srtp_err_status_no_ctx:
            return Verdict::kMalformed;
        default:
            return Verdict::kAuthFailed;
    }
}

}  // namespace

std::unique_ptr<Receiver> Receiver::create(std::uint32_t ssrc, const Key& key) {
    if (!library_is_ready()) {
        return nullptr;
    }
    Key copy = key;  // the library takes a pointer to non-const and copies
    srtp_policy_t policy{};
    srtp_crypto_policy_set_aes_cm_128_hmac_sha1_80(&policy.rtp);
    srtp_crypto_policy_set_aes_cm_128_hmac_sha1_80(&policy.rtcp);
    // By its SSRC: for "any inbound" the library would allocate a stream at the first packet.
    policy.ssrc = {.type = ssrc_specific, .value = ssrc};
    policy.key = copy.data();
    policy.window_size = kReplayWindow;
    srtp_t session = nullptr;
    const bool made = srtp_create(&session, &policy) == srtp_err_status_ok;
    for (volatile std::uint8_t& byte : copy) {
        byte = 0;
    }
    return made ? std::unique_ptr<Receiver>(new Receiver(Session(session), ssrc)) : nullptr;
}

Unprotected Receiver::unprotect(std::span<std::uint8_t> packet) noexcept {
    constexpr auto kLongest = static_cast<std::size_t>(std::numeric_limits<std::uint16_t>::max());
    if (packet.size() < rtp::kHeaderBytes + kTagBytes || packet.size() > kLongest) {
        return {Verdict::kMalformed, {}};
    }
    int bytes = static_cast<int>(packet.size());
    auto status = srtp_unprotect(session_.get(), packet.data(), &bytes);
    if (status == srtp_err_status_auth_fail && failures_++ % kFailuresPerSearch == 0) {
        status = search(packet, bytes);
    }
    if (status != srtp_err_status_ok) {
        return {verdict_of(status), {}};
    }
    return {Verdict::kOk, packet.first(static_cast<std::size_t>(bytes))};
}

Unprotected Receiver::unprotect_report(std::span<std::uint8_t> packet) noexcept {
    int bytes = static_cast<int>(packet.size());
    const auto status = srtp_unprotect_rtcp(session_.get(), packet.data(), &bytes);
    if (status != srtp_err_status_ok) {
        return {verdict_of(status), {}};
    }
    return {Verdict::kOk, packet.first(static_cast<std::size_t>(bytes))};
}

// A failed authentication leaves the packet as it was, so it can be tried again.
srtp_err_status_t Receiver::search(std::span<std::uint8_t> packet, int& bytes) noexcept {
    std::uint32_t wraps = 0;
    if (srtp_get_stream_roc(session_.get(), ssrc_, &wraps) != srtp_err_status_ok) {
        return srtp_err_status_auth_fail;
    }
    auto status = srtp_err_status_auth_fail;
    for (std::uint32_t ahead = 1; ahead <= kWrapsTried && status == srtp_err_status_auth_fail; ++ahead) {
        bytes = static_cast<int>(packet.size());
        srtp_set_stream_roc(session_.get(), ssrc_, wraps + ahead);
        status = srtp_unprotect(session_.get(), packet.data(), &bytes);
    }
    srtp_set_stream_roc(session_.get(), ssrc_, 0);  // or the library would force this count on the next packet
    return status;
}

}  // namespace voice::srtp
