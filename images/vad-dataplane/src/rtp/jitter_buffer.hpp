// Puts the audio of one stream back in order, and fills what is lost.
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
    bool concealed;  // made up: the packet was lost
    bool faded;      // nothing is heard of it any more: so many were lost before it
};

// Holds packets until those before them have come, or until `kWait` later ones have. Driven by packets alone: it reads
// no clock, allocates nothing and holds every frame in place.
class JitterBuffer {
public:
    static constexpr std::size_t kSlots = Frames::kAhead;
    static constexpr int kWait = 4;            // 80 ms: how much reordering is repaired
    static constexpr int kMaxDropout = 3000;   // RFC 3550, A.1: a larger jump is another stream
    static constexpr int kFadeFrames = 5;      // concealment fades to silence in 100 ms

    enum class Arrival {
        kHeld,        // will be heard in its turn
        kLate,        // its place has been filled already
        kDuplicate,   // is here already
        kMalformed,   // not 20 ms of 16-bit samples
        kSuspicious,  // far from the stream; taken for a restart when the next packet follows it
        kRestarted,   // the sender has started over, and so does the buffer
    };

    // Takes one packet. Several frames may become due: call next() until it returns false.
    Arrival insert(const Packet& packet) noexcept;

    // Moves to the next frame that is due; false when the next packet is still waited for.
    [[nodiscard]] bool next() noexcept;

    // The frame that next() moved to.
    [[nodiscard]] Frame frame() const noexcept {
        return {std::span(frames_.past(0)), concealed_, lost_in_a_row_ >= kFadeFrames};
    }
    // That frame and those before it; each stays for Frames::kPast more.
    [[nodiscard]] const Frames& frames() const noexcept { return frames_; }

    // Has the memory fetched that a packet of this sequence will be written to.
    void expect(std::uint16_t sequence) noexcept {
        if (const int ahead = distance(expected_, sequence); ahead >= 0 && ahead < static_cast<int>(kSlots)) {
            prefetch_to_write(&frames_.ahead(static_cast<std::size_t>(ahead)), sizeof(Samples));
        }
    }

private:
    static int distance(std::uint16_t from, std::uint16_t to) noexcept {
        return static_cast<std::int16_t>(static_cast<std::uint16_t>(to - from));
    }
    void restart(std::uint16_t sequence) noexcept;
    void store(const Packet& packet, std::size_t ahead) noexcept;
    void conceal() noexcept;

    bool concealed_ = false;
    bool started_ = false;
    bool suspicious_ = false;
    std::uint16_t expected_ = 0;             // sequence of the next frame
    std::uint16_t newest_ = 0;               // highest sequence that has come
    std::uint16_t after_suspicious_ = 0;     // what a restarted sender sends next
    std::uint16_t held_ = 0;                 // bit n: the frame n places ahead is here
    int lost_in_a_row_ = 0;
    Frames frames_;
};

}  // namespace voice::rtp
