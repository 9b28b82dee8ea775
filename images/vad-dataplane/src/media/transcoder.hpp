// Converts other formats to packets of 20 ms of L16, one channel, 16 kHz, which the jitter buffer and all later stages
// use.
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

// Decoders need packets in order, so it waits for missing ones, as the jitter buffer does, and then skips them. Its
// output has its own clock and sequence numbers, with gaps that correspond to those of the input: in the numbers where
// packets were lost, in time alone where the sender paused.
class Transcoder {
public:
    using Arrival = rtp::JitterBuffer::Arrival;

    // Null if a library fails, which happens only without memory.
    static std::unique_ptr<Transcoder> create(const Description& media);

    // Takes a packet of this session's payload type, or one without audio. Several may become due: call next() until it
    // returns nothing. After kBeyond: call run_out(), skip_to() it, and insert it again.
    Arrival insert(const rtp::Packet& packet) noexcept;

    // The next due packet, valid until the next call; nothing while a missing one is still expected.
    std::optional<rtp::Packet> next() noexcept { return make(wait_); }

    // The next held packet, without waiting for missing ones.
    std::optional<rtp::Packet> run_out() noexcept { return make(0); }

    // Whether it holds packets that wait for earlier ones.
    [[nodiscard]] bool waits() const noexcept { return held_ != 0; }

    // Two readings of one moment: the timestamp of the next packet, and that of the decoded audio in the output's
    // clock.
    struct Clock {
        std::uint32_t timestamp;
        std::uint32_t samples;
    };
    [[nodiscard]] Clock clock() const noexcept {
        return {expected_at_, at_ + static_cast<std::uint32_t>(filled_ + decoded_.size())};
    }

    // Makes this packet the next one; only if none is held.
    void skip_to(const rtp::Packet& packet) noexcept;

private:
    static constexpr std::size_t kSlots = 16;
    static constexpr unsigned kWaitMs = 80;
    static constexpr std::uint32_t kLongestLossTicks = 48'000;  // a second, of the fastest clock
    static constexpr int kRemembered = 64;  // packets before the next whose arrival is recorded

    struct Held {
        std::uint32_t timestamp;
        std::uint32_t ticks;  // 0: no audio
        std::size_t bytes;
        std::array<std::uint8_t, kMostPayloadBytes> payload;
    };

    Transcoder(std::unique_ptr<Decoder> decoder, const Description& media) noexcept
        : decoder_(std::move(decoder)), rate_(media.rate), wait_((kWaitMs + media.packet_ms - 1) / media.packet_ms),
          last_ticks_(media.rate * media.packet_ms / 1000) {}

    void restart(const rtp::Packet& packet) noexcept;
    // `wait`: number of positions that a packet waits for earlier ones.
    std::optional<rtp::Packet> make(unsigned wait) noexcept;
    // Advances to the next packet, whether or not it has arrived; true if it is passed on unchanged, because it has no
    // audio.
    bool turn() noexcept;
    // Handles a missing packet. If the next one has arrived and holds a copy of it (forward error correction), that is
    // decoded; otherwise the jitter buffer fills the gap.
    void lose() noexcept;
    // Advances the clock by audio that was lost or not sent.
    void skip(std::uint32_t ticks) noexcept;
    // Moves decoded samples into the frame until it is full; false: there are too few.
    bool fill() noexcept;
    std::uint16_t next_sequence() noexcept;

    std::unique_ptr<Decoder> decoder_;
    std::uint32_t rate_;
    unsigned wait_;  // packets
    std::uint32_t last_ticks_;  // of the last decoded packet
    bool started_ = false;
    bool suspicious_ = false;
    bool lost_ = false;                   // since the last output packet
    std::uint16_t after_suspicious_ = 0;
    std::uint16_t expected_ = 0;          // sequence number of the next packet
    std::uint32_t expected_at_ = 0;       // its timestamp, unless its sender pauses
    std::uint32_t held_ = 0;              // bit n: the packet n after that one is held
    std::uint64_t come_ = 0;              // bit n: the packet n + 1 before that one has arrived
    std::uint16_t sequence_ = 0;          // of the next frame
    std::uint32_t at_ = 0;                // timestamp of the partial frame
    std::size_t filled_ = 0;
    std::array<std::uint8_t, rtp::kFrameBytes> frame_{};  // big-endian, like L16
    std::span<const std::int16_t> decoded_;  // samples that are not in a frame yet
    std::array<Held, kSlots> packets_;
};

}  // namespace voice::media
