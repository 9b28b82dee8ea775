// A receive queue with packets already in memory: the upper bound for a NIC.
#pragma once

#include <srtp2/srtp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#include "receive/burst.hpp"
#include "receive/udp.hpp"
#include "rtp/jitter_buffer.hpp"
#include "srtp/receiver.hpp"

namespace bench {

// 20 ms of 16 kHz, PCM16 in network order.
using Frame = std::array<std::uint8_t, 2 * voice::rtp::kFrameSamples>;

class MemoryQueue {
public:
    static constexpr std::size_t kBatch = voice::receive::kBurst;
    static constexpr std::size_t kPackets = 1024;  // as many as the receive ring holds by default
    static constexpr std::uint16_t kPort = 5004;

    // Every stream starts at a different position of the same audio; packets of different streams come in a fixed
    // random order, which processors cannot predict. With a key they are SRTP.
    MemoryQueue(std::uint32_t streams, std::size_t batch, std::vector<Frame> audio, const voice::srtp::Key* key,
                voice::srtp::Suite suite)
        : audio_(std::move(audio)), batch_(batch), order_(streams), packets_(kPackets),
          payload_bytes_(sizeof(Frame) + (key != nullptr ? voice::srtp::tag_bytes(suite) : 0)) {
        for (std::uint32_t stream = 0; key != nullptr && stream < streams; ++stream) {
            senders_.push_back(sender(ssrc_of(stream), *key, suite));
        }
        std::iota(order_.begin(), order_.end(), 0U);
        std::ranges::shuffle(order_, std::mt19937(1));
    }

    static std::uint32_t ssrc_of(std::uint32_t stream) { return 0x10000 + stream * 0x9e3779b1U; }

    // Writes the next packets; not measured.
    void fill() {
        for (Packet& packet : packets_) {
            write(packet, order_[next_], tick_);
            if (!senders_.empty()) {
                int bytes = kRtpHeader + sizeof(Frame);
                srtp_protect(senders_[order_[next_]].get(), packet.data() + kRtp, &bytes);
            }
            if (++next_ == order_.size()) {
                next_ = 0;
                ++tick_;
            }
        }
        taken_ = 0;
    }

    template <typename Sink>
    std::size_t poll(Sink&& sink) {
        const std::size_t count = std::min(batch_, kPackets - taken_);
        burst_.clear();
        for (std::size_t i = 0; i < count; ++i) {
            if (const auto payload = voice::receive::udp_payload(std::span(packets_[taken_ + i]).first(kAudio + payload_bytes_), kPort)) {
                burst_.add(*payload);
            }
        }
        sink(burst_.datagrams());
        taken_ += count;
        return count;
    }

private:
    static constexpr std::size_t kIp = 14, kUdp = kIp + 20, kRtp = kUdp + 8, kRtpHeader = 12, kAudio = kRtp + kRtpHeader;
    using Packet = std::array<std::uint8_t, kAudio + sizeof(Frame) + SRTP_MAX_TRAILER_LEN>;

    struct Free {
        void operator()(srtp_t session) const noexcept { srtp_dealloc(session); }
    };
    using Sender = std::unique_ptr<std::remove_pointer_t<srtp_t>, Free>;

    static Sender sender(std::uint32_t ssrc, voice::srtp::Key key, voice::srtp::Suite suite) {
        srtp_policy_t policy{};
        static const auto ready = srtp_init();
        const auto set = suite == voice::srtp::Suite::kAeadAes128Gcm ? srtp_crypto_policy_set_aes_gcm_128_16_auth
                                                                     : srtp_crypto_policy_set_rtp_default;
        set(&policy.rtp);
        set(&policy.rtcp);
        policy.ssrc = {.type = ssrc_specific, .value = ssrc};
        policy.key = key.data();
        srtp_t made = nullptr;
        if (ready != srtp_err_status_ok || srtp_create(&made, &policy) != srtp_err_status_ok) {
            throw std::runtime_error("libsrtp makes no sender");
        }
        return Sender(made);
    }

    static void put(std::uint8_t* at, std::uint32_t value, int bytes) {
        for (int i = 0; i < bytes; ++i) {
            at[i] = static_cast<std::uint8_t>(value >> (8 * (bytes - 1 - i)));
        }
    }

    void write(Packet& packet, std::uint32_t stream, std::uint32_t tick) const {
        std::uint8_t* at = packet.data();
        put(at + 12, 0x0800, 2);
        put(at + kIp, 0x4500, 2);
        put(at + kIp + 2, static_cast<std::uint32_t>(kAudio - kIp + payload_bytes_), 2);
        put(at + kIp + 8, 0x4011, 2);
        put(at + kUdp + 2, kPort, 2);
        put(at + kUdp + 4, static_cast<std::uint32_t>(kAudio - kUdp + payload_bytes_), 2);
        put(at + kRtp, 0x8060, 2);
        put(at + kRtp + 2, tick & 0xffff, 2);
        put(at + kRtp + 4, tick * voice::rtp::kFrameSamples, 4);
        put(at + kRtp + 8, ssrc_of(stream), 4);
        const Frame& frame = audio_[(tick + stream * 37) % audio_.size()];
        std::ranges::copy(frame, at + kAudio);
    }

    std::vector<Frame> audio_;
    std::size_t batch_;
    std::vector<std::uint32_t> order_;
    std::vector<Packet> packets_;
    std::size_t payload_bytes_;
    std::vector<Sender> senders_;
    voice::receive::Burst burst_;
    std::size_t next_ = 0;
    std::size_t taken_ = kPackets;
    std::uint32_t tick_ = 0;
};

}  // namespace bench
