#include "rtp/jitter_buffer.hpp"

#include <algorithm>

namespace voice::rtp {

JitterBuffer::Arrival JitterBuffer::insert(const Packet& packet) noexcept {
    if (packet.payload.size() != kFrameBytes) {
        return Arrival::kMalformed;
    }
    if (!started_) {
        restart(packet.sequence);
    }
    const int ahead = distance(expected_, packet.sequence);
    if (ahead >= kMaxDropout || ahead <= -static_cast<int>(kSlots)) {
        // One such packet may be noise; two in sequence are a sender that has started over (RFC 3550, A.1).
        if (!suspicious_ || packet.sequence != after_suspicious_) {
            suspicious_ = true;
            after_suspicious_ = static_cast<std::uint16_t>(packet.sequence + 1);
            return Arrival::kSuspicious;
        }
        restart(packet.sequence);
        store(packet, 0);
        return Arrival::kRestarted;
    }
    suspicious_ = false;
    if (ahead < 0) {
        return Arrival::kLate;
    }
    if (ahead >= static_cast<int>(kSlots)) {
        // More was lost than can be waited for: what is held is given up, and hearing goes on from here.
        restart(packet.sequence);
        store(packet, 0);
        return Arrival::kRestarted;
    }
    if ((held_ >> ahead & 1) != 0) {
        return Arrival::kDuplicate;
    }
    store(packet, static_cast<std::size_t>(ahead));
    return Arrival::kHeld;
}

bool JitterBuffer::next() noexcept {
    if (!started_) {
        return false;
    }
    if ((held_ & 1) != 0) {
        concealed_ = false;
        lost_in_a_row_ = 0;
    } else if (distance(expected_, newest_) >= kWait) {
        conceal();
    } else {
        return false;
    }
    ++expected_;
    held_ >>= 1;
    frames_.advance();
    return true;
}

void JitterBuffer::restart(std::uint16_t sequence) noexcept {
    held_ = 0;
    started_ = true;
    suspicious_ = false;
    expected_ = sequence;
    newest_ = sequence;
    lost_in_a_row_ = 0;
}

void JitterBuffer::store(const Packet& packet, std::size_t ahead) noexcept {
    Samples& into = frames_.ahead(ahead);
    for (std::size_t i = 0; i < kFrameSamples; ++i) {
        // L16 is big-endian (RFC 3551).
        into[i] = static_cast<std::int16_t>(packet.payload[2 * i] << 8 | packet.payload[2 * i + 1]);
    }
    held_ = static_cast<std::uint16_t>(held_ | 1U << ahead);
    if (distance(newest_, packet.sequence) > 0) {
        newest_ = packet.sequence;
    }
}

// Repeats the last frame, a step quieter each time.
void JitterBuffer::conceal() noexcept {
    ++lost_in_a_row_;
    const int left = std::max(0, kFadeFrames - lost_in_a_row_);
    const int before = left + 1;
    const Samples& last = frames_.past(0);
    std::ranges::transform(last, frames_.ahead(0).begin(), [left, before](std::int16_t sample) {
        return static_cast<std::int16_t>(sample * left / before);
    });
    concealed_ = true;
}

}  // namespace voice::rtp
