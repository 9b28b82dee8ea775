// Restores order and timing of one stream's audio, and conceals losses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "rtp/frames.hpp"
#include "rtp/packet.hpp"
#include "support/prefetch.hpp"

namespace voice::rtp {

inline constexpr std::size_t kFrameBytes = sizeof(Samples);

// 20 ms of output audio.
struct Frame {
    std::span<const std::int16_t, kFrameSamples> samples;
    bool made_up;    // no packet arrived for it
    bool concealed;  // replaces a lost packet; a sender that pauses loses nothing
    bool faded;      // silent, after many concealed frames
};

// Holds packets until earlier ones have arrived, or until later ones have waited for them. A packet's position is its
// timestamp's; its sequence number distinguishes a pause from a loss. Driven only by packets: it reads no clock,
// allocates nothing and keeps every frame in place.
class JitterBuffer {
public:
    static constexpr std::size_t kSlots = Frames::kAhead;
    static constexpr int kWait = 4;            // 80 ms: the reordering that is repaired
    static constexpr int kMaxDropout = 3000;   // RFC 3550, A.1: a larger jump is another stream
    static constexpr int kMaxMisorder = 100;   // likewise, backwards
    // An hour without audio, as while a call is on hold; a larger jump in time is a clock that was set.
    static constexpr int kMaxPause = 180'000;
    static constexpr int kFadeFrames = 5;      // concealment fades to silence in 100 ms

    enum class Arrival {
        kHeld,        // is output in order
        kLate,        // its position has been filled already
        kDuplicate,   // received before
        kMalformed,   // not 20 ms of 16-bit samples
        kSuspicious,  // far from the stream; a restart if the next packet follows it
        kRestarted,   // the sender has restarted, and so has the buffer
        kBeyond,      // after a gap: call run_out(), skip_to() it, and insert it again
    };

    // Takes one packet. Several frames may become due: call next() until it returns false.
    Arrival insert(const Packet& packet) noexcept;

    // Takes a packet without audio: it explains one missing sequence number.
    void pass(const Packet& packet) noexcept {
        if (const int step = distance(newest_, packet.sequence); step >= -kMaxMisorder && step < kMaxDropout) {
            static_cast<void>(note(packet.sequence));
        }
    }

    // Moves to the next due frame; false while the next packet is still expected.
    [[nodiscard]] bool next() noexcept;

    // Moves to the next held frame without waiting; false if none is left.
    [[nodiscard]] bool run_out() noexcept;

    // Moves to one more concealed frame; `lost`: because a packet was lost.
    void make_up(bool lost) noexcept;

    // Whether a sender that has stopped has lost something: not if its last packet had no audio or it `may_pause`,
    // unless an earlier packet is missing.
    [[nodiscard]] bool is_torn(bool may_pause) const noexcept {
        return (!may_pause && heard_ == newest_) || is_lost_before(newest_);
    }
    // Whether anything is missing between the current frame and this packet, which is later than all others.
    [[nodiscard]] bool is_lost_before(const Packet& packet) const noexcept {
        return distance(newest_, packet.sequence) > 1 || is_lost_before(newest_);
    }

    // The next packet starts a new stream with unrelated sequence numbers and clock.
    void expect_another_stream() noexcept { started_ = false; }

    // Whether a packet of the expected stream has arrived.
    [[nodiscard]] bool has_started() const noexcept { return started_; }
    // Timestamp of the next frame.
    [[nodiscard]] std::uint32_t expected() const noexcept { return expected_; }

    // Makes the packet's frame the next one; only if none is held. Returns the number of skipped frames.
    std::uint32_t skip_to(const Packet& packet) noexcept;

    // Whether packets wait for earlier ones.
    [[nodiscard]] bool waits() const noexcept { return held_ != 0; }

    // The current frame.
    [[nodiscard]] Frame frame() const noexcept {
        return {std::span(frames_.past(0)), made_up_in_a_row_ > 0, concealed_, made_up_in_a_row_ >= kFadeFrames};
    }
    // The current frame and earlier ones; each stays for Frames::kPast more.
    [[nodiscard]] const Frames& frames() const noexcept { return frames_; }

    // Prefetches the memory for a packet with this timestamp.
    void expect(std::uint32_t timestamp) noexcept {
        if (const auto ahead = places_to(timestamp); ahead >= 0 && ahead < static_cast<int>(kSlots)) {
            prefetch_to_write(&frames_.ahead(static_cast<std::size_t>(ahead)), sizeof(Samples));
        }
    }

private:
    static int distance(std::uint16_t from, std::uint16_t to) noexcept {
        return static_cast<std::int16_t>(static_cast<std::uint16_t>(to - from));
    }
    // Frames from the next one to that of a timestamp; clocks may be off by half a frame.
    [[nodiscard]] int places_to(std::uint32_t timestamp) const noexcept {
        constexpr int kFrame = kFrameSamples;
        const auto samples = static_cast<std::int32_t>(timestamp - expected_);
        // A sender may use any timestamp: half a frame is added only to the remainder, which cannot overflow.
        return samples / kFrame + (samples % kFrame + (samples >= 0 ? kFrame / 2 : -kFrame / 2)) / kFrame;
    }
    // False: it was received before.
    bool note(std::uint16_t sequence) noexcept;
    void restart(const Packet& packet) noexcept;
    void store(const Packet& packet, std::size_t ahead) noexcept;
    void advance() noexcept;
    // Whether a packet is missing between the last one that was output and this one.
    [[nodiscard]] bool is_lost_before(std::uint16_t sequence) const noexcept;

    bool concealed_ = false;
    bool started_ = false;
    bool suspicious_ = false;
    std::uint16_t held_ = 0;                // bit n: the frame n places ahead is held
    std::uint16_t after_suspicious_ = 0;    // the next sequence number of a restarted sender
    std::uint16_t newest_ = 0;              // highest sequence number received
    std::uint16_t heard_ = 0;               // sequence number of the last frame that was not concealed
    std::uint32_t expected_ = 0;            // timestamp of the next frame
    std::uint64_t come_ = 0;                // bit n: the packet n before the newest has arrived
    int made_up_in_a_row_ = 0;
    std::size_t next_ = 0;                  // index into sequences_ of the next frame
    std::array<std::uint16_t, kSlots> sequences_{};
    Frames frames_;
};

}  // namespace voice::rtp
