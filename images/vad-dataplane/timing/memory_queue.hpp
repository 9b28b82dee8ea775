// A receive queue whose packets were in memory before: what a NIC with nothing to wait for would give.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "receive/burst.hpp"
#include "receive/udp.hpp"
#include "rtp/jitter_buffer.hpp"

namespace bench {

// 20 ms of 16 kHz, PCM16 in network order.
using Frame = std::array<std::uint8_t, 2 * voice::rtp::kFrameSamples>;

class MemoryQueue {
public:
    static constexpr std::size_t kBatch = voice::receive::kBurst;
    static constexpr std::size_t kPackets = 1024;  // as many as the receive ring holds by default
    static constexpr std::uint16_t kPort = 5004;

    // Every stream hears the same audio from another place on; packets of different streams come in a fixed, random
    // order, which processors cannot foresee.
    MemoryQueue(std::uint32_t streams, std::size_t batch, std::vector<Frame> audio)
        : audio_(std::move(audio)), batch_(batch), order_(streams), packets_(kPackets) {
        std::iota(order_.begin(), order_.end(), 0U);
        std::ranges::shuffle(order_, std::mt19937(1));
    }

    static std::uint32_t ssrc_of(std::uint32_t stream) { return 0x10000 + stream * 0x9e3779b1U; }

    // Writes the next packets; not part of what is measured.
    void fill() {
        for (Packet& packet : packets_) {
            write(packet, order_[next_], tick_);
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
            if (const auto payload = voice::receive::udp_payload(packets_[taken_ + i], kPort)) {
                burst_.add(*payload);
            }
        }
        sink(burst_.datagrams());
        taken_ += count;
        return count;
    }

private:
    static constexpr std::size_t kIp = 14, kUdp = kIp + 20, kRtp = kUdp + 8, kAudio = kRtp + 12;
    static constexpr std::size_t kBytes = kAudio + sizeof(Frame);
    using Packet = std::array<std::uint8_t, kBytes>;

    static void put(std::uint8_t* at, std::uint32_t value, int bytes) {
        for (int i = 0; i < bytes; ++i) {
            at[i] = static_cast<std::uint8_t>(value >> (8 * (bytes - 1 - i)));
        }
    }

    void write(Packet& packet, std::uint32_t stream, std::uint32_t tick) const {
        std::uint8_t* at = packet.data();
        put(at + 12, 0x0800, 2);
        put(at + kIp, 0x4500, 2);
        put(at + kIp + 2, kBytes - kIp, 2);
        put(at + kIp + 8, 0x4011, 2);
        put(at + kUdp + 2, kPort, 2);
        put(at + kUdp + 4, kBytes - kUdp, 2);
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
    voice::receive::Burst burst_;
    std::size_t next_ = 0;
    std::size_t taken_ = kPackets;
    std::uint32_t tick_ = 0;
};

}  // namespace bench
