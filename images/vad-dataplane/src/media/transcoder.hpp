// Makes packets of 20 ms of L16, one channel, 16 kHz, of those of a session that are anything else: what the jitter buffer and
// all behind it work with.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "media/decoder.hpp"
#include "rtp/jitter_buffer.hpp"
#include "rtp/packet.hpp"

namespace voice::media {

inline constexpr std::size_t kMostPayloadBytes = 1440;  // an Ethernet frame, less IPv4, UDP, RTP and SRTP

// Decoders need packets in their order, so it waits for what is missing, as the jitter buffer does: then it goes on behind
// it. The packets that it makes have a clock and numbers of their own, which have a gap where those that came had one:
// in numbers where packets were lost, in time alone where the sender paused.
class Transcoder {
public:
    using Arrival = rtp::JitterBuffer::Arrival;

    // Null when a library refuses, which takes a lack of memory.
    static std::unique_ptr<Transcoder> create(const Description& media);

    // Takes a packet of this session's payload type, or one that holds no audio. Several may become due: call next() until
    // it returns nothing. After kBeyond: run_out(), skip_to() it, and insert it again.
    Arrival insert(const rtp::Packet& packet) noexcept;

    // The next packet that is due, until the next call; nothing when one that came in is still waited for.
    std::optional<rtp::Packet> next() noexcept { return make(wait_); }

    // The next of what is held, without waiting for any.
    std::optional<rtp::Packet> run_out() noexcept { return make(0); }

    // Where nothing is held: this packet is the next.
    void skip_to(const rtp::Packet& packet) noexcept;

private:
    static constexpr std::size_t kSlots = 16;
    static constexpr unsigned kWaitMs = 80;
    static constexpr int kRemembered = 64;  // packets before the next of which it is known whether they came

    struct Held {
        std::uint32_t timestamp;
        std::uint32_t ticks;  // 0: no audio
        std::size_t bytes;
        std::array<std::uint8_t, kMostPayloadBytes> payload;
    };

    Transcoder(std::unique_ptr<Decoder> decoder, const Description& media) noexcept
        : decoder_(std::move(decoder)), rate_(media.rate), wait_((kWaitMs + media.packet_ms - 1) / media.packet_ms) {}

    void restart(const rtp::Packet& packet) noexcept;
    // `wait`: how many places a packet waits for those before it.
    std::optional<rtp::Packet> make(unsigned wait) noexcept;
    // Takes the next packet's turn, whether it has come or not; true when it is made as it is, since it holds no audio.
    bool turn() noexcept;
    // Moves the clock on by what never came, or was not sent.
    void skip(std::uint32_t ticks) noexcept;
    // Takes decoded samples into the frame until it is full; false: there are too few.
    bool fill() noexcept;
    std::uint16_t next_sequence() noexcept;

    std::unique_ptr<Decoder> decoder_;
    std::uint32_t rate_;
    unsigned wait_;  // packets
    bool started_ = false;
    bool suspicious_ = false;
    bool lost_ = false;                   // since the last packet that was made
    std::uint16_t after_suspicious_ = 0;
    std::uint16_t expected_ = 0;          // sequence of the packet whose turn it is
    std::uint32_t expected_at_ = 0;       // its timestamp, unless its sender pauses
    std::uint32_t held_ = 0;              // bit n: the packet n after that one is here
    std::uint64_t come_ = 0;              // bit n: the packet n + 1 before that one has come
    std::uint16_t sequence_ = 0;          // of the next frame
    std::uint32_t at_ = 0;                // timestamp of the frame that is being filled
    std::size_t filled_ = 0;
    std::array<std::uint8_t, rtp::kFrameBytes> frame_{};  // big-endian, as L16 is
    std::span<const std::int16_t> decoded_;  // what is not in a frame yet
    std::array<Held, kSlots> packets_;
};

}  // namespace voice::media
