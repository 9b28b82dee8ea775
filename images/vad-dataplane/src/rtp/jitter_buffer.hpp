// Puts the audio of one stream back in order and in time, and fills what is lost.
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

// 20 ms of audio, as it is heard.
struct Frame {
    std::span<const std::int16_t, kFrameSamples> samples;
    bool made_up;    // nothing came for it
    bool concealed;  // since a packet was lost: a sender that pauses loses nothing
    bool faded;      // nothing is heard of it any more: so many were made up before it
};

// Holds packets until those before them have come, or until later ones have waited for them. A packet's place is its
// timestamp's; its sequence number tells a pause from a loss. Driven by packets alone: it reads no clock, allocates
// nothing and holds every frame in place.
class JitterBuffer {
public:
    static constexpr std::size_t kSlots = Frames::kAhead;
    static constexpr int kWait = 4;            // 80 ms: how much reordering is repaired
    static constexpr int kMaxDropout = 3000;   // RFC 3550, A.1: a larger jump is another stream
    static constexpr int kMaxMisorder = 100;   // likewise, backwards
    static constexpr int kFadeFrames = 5;      // concealment fades to silence in 100 ms

    enum class Arrival {
        kHeld,        // will be heard in its turn
        kLate,        // its place has been filled already
        kDuplicate,   // has come before
        kMalformed,   // not 20 ms of 16-bit samples
        kSuspicious,  // far from the stream; taken for a restart when the next packet follows it
        kRestarted,   // the sender has started over, and so does the buffer
        kBeyond,      // after a gap: run_out(), skip_to() it, and insert it again
    };

    // Takes one packet. Several frames may become due: call next() until it returns false.
    Arrival insert(const Packet& packet) noexcept;

    // A packet that holds no audio: where one is missing, that was not it.
    void pass(const Packet& packet) noexcept {
        if (const int step = distance(newest_, packet.sequence); step >= -kMaxMisorder && step < kMaxDropout) {
            static_cast<void>(note(packet.sequence));
        }
    }

    // Moves to the next frame that is due; false when the next packet is still waited for.
    [[nodiscard]] bool next() noexcept;

    // Moves to the next frame of those that are held, without waiting for any; false when none is left.
    [[nodiscard]] bool run_out() noexcept;

    // Moves to one more frame after the last, which is made up.
    void make_up() noexcept;

    // Where nothing is held: the packet's frame is the next. Returns how many come before it that are never heard.
    std::uint32_t skip_to(const Packet& packet) noexcept;

    // The frame that was moved to.
    [[nodiscard]] Frame frame() const noexcept {
        return {std::span(frames_.past(0)), made_up_in_a_row_ > 0, concealed_, made_up_in_a_row_ >= kFadeFrames};
    }
    // That frame and those before it; each stays for Frames::kPast more.
    [[nodiscard]] const Frames& frames() const noexcept { return frames_; }

    // Has the memory fetched that a packet of this time will be written to.
    void expect(std::uint32_t timestamp) noexcept {
        if (const auto ahead = places_to(timestamp); ahead >= 0 && ahead < static_cast<int>(kSlots)) {
            prefetch_to_write(&frames_.ahead(static_cast<std::size_t>(ahead)), sizeof(Samples));
        }
    }

private:
    static int distance(std::uint16_t from, std::uint16_t to) noexcept {
        return static_cast<std::int16_t>(static_cast<std::uint16_t>(to - from));
    }
    // Frames from the next one to that of a time; clocks may be off by half a frame.
    [[nodiscard]] int places_to(std::uint32_t timestamp) const noexcept {
        constexpr int kFrame = kFrameSamples;
        const auto samples = static_cast<std::int32_t>(timestamp - expected_);
        // A sender may name any time: half a frame is added to the rest alone, which cannot overflow.
        return samples / kFrame + (samples % kFrame + (samples >= 0 ? kFrame / 2 : -kFrame / 2)) / kFrame;
    }
    // False: it has come before.
    bool note(std::uint16_t sequence) noexcept;
    void restart(const Packet& packet) noexcept;
    void store(const Packet& packet, std::size_t ahead) noexcept;
    void advance() noexcept;
    // Whether a packet is missing before this one and after the last that was heard.
    [[nodiscard]] bool is_lost_before(std::uint16_t sequence) const noexcept;

    bool concealed_ = false;
    bool started_ = false;
    bool suspicious_ = false;
    std::uint16_t held_ = 0;                // bit n: the frame n places ahead is here
    std::uint16_t after_suspicious_ = 0;    // what a restarted sender sends next
    std::uint16_t newest_ = 0;              // highest sequence that has come
    std::uint16_t heard_ = 0;               // sequence of the last frame that was not made up
    std::uint32_t expected_ = 0;            // timestamp of the next frame
    std::uint64_t come_ = 0;                // bit n: the packet n before the newest has come
    int made_up_in_a_row_ = 0;
    std::size_t next_ = 0;                  // of sequences_: that of the next frame
    std::array<std::uint16_t, kSlots> sequences_{};
    Frames frames_;
};

}  // namespace voice::rtp
