#include "rtp/jitter_buffer.hpp"

#include <algorithm>
#include <bit>

#include "wire/packet.h"

namespace voice::rtp {
namespace {

constexpr int kRemembered = 64;  // packets before the newest whose arrival is recorded

}  // namespace

JitterBuffer::Arrival JitterBuffer::insert(const Packet& packet) noexcept {
    if (packet.payload.size() != kFrameBytes) {
        return Arrival::kMalformed;
    }
    if (!started_) {
        restart(packet);
    }
    const int step = distance(newest_, packet.sequence);
    if (step >= kMaxDropout || step < -kMaxMisorder) {
        // One such packet may be noise; two in sequence indicate a restarted sender (RFC 3550, A.1).
        if (!suspicious_ || packet.sequence != after_suspicious_) {
            suspicious_ = true;
            after_suspicious_ = static_cast<std::uint16_t>(packet.sequence + 1);
            return Arrival::kSuspicious;
        }
        restart(packet);
        store(packet, 0);
        return Arrival::kRestarted;
    }
    suspicious_ = false;
    int ahead = places_to(packet.timestamp);
    const int behind_held = std::bit_width(held_);
    if (step > 0 && (ahead < behind_held || ahead > kMaxPause)) {
        // A later packet with an earlier time, or on a different timeline: its clock was set. It follows the held
        // frames.
        expected_ = packet.timestamp - static_cast<std::uint32_t>(behind_held * static_cast<int>(kFrameSamples));
        ahead = behind_held;
    }
    if (ahead >= static_cast<int>(kSlots)) {
        return step > 0 ? Arrival::kBeyond : Arrival::kLate;
    }
    if (!note(packet.sequence)) {
        return Arrival::kDuplicate;
    }
    if (ahead < 0 || (held_ >> ahead & 1) != 0) {
        return Arrival::kLate;
    }
    store(packet, static_cast<std::size_t>(ahead));
    return Arrival::kHeld;
}

bool JitterBuffer::note(std::uint16_t sequence) noexcept {
    const int step = distance(newest_, sequence);
    if (step > 0) {
        come_ = step < kRemembered ? come_ << step | 1 : 1;
        newest_ = sequence;
        return true;
    }
    const std::uint64_t bit = -step < kRemembered ? std::uint64_t{1} << -step : 0;
    const bool is_new = (come_ & bit) == 0;
    come_ |= bit;
    return is_new;
}

bool JitterBuffer::next() noexcept {
    return ((held_ & 1) != 0 || std::bit_width(held_) > kWait) && run_out();
}

bool JitterBuffer::run_out() noexcept {
    if (held_ == 0) {
        return false;
    }
    if ((held_ & 1) == 0) {
        make_up(is_lost_before(sequences_[(next_ + static_cast<std::size_t>(std::countr_zero(held_))) % kSlots]));
        return true;
    }
    heard_ = sequences_[next_];
    concealed_ = false;
    made_up_in_a_row_ = 0;
    advance();
    return true;
}

// Repeats the last frame, each time more quietly.
void JitterBuffer::make_up(bool lost) noexcept {
    concealed_ = lost;
    ++made_up_in_a_row_;
    const int left = std::max(0, kFadeFrames - made_up_in_a_row_);
    const int before = left + 1;
    const Samples& last = frames_.past(0);
    std::ranges::transform(last, frames_.ahead(0).begin(), [left, before](std::int16_t sample) {
        return static_cast<std::int16_t>(sample * left / before);
    });
    advance();
}

void JitterBuffer::advance() noexcept {
    expected_ += kFrameSamples;
    held_ = static_cast<std::uint16_t>(held_ >> 1);
    next_ = (next_ + 1) % kSlots;
    frames_.advance();
}

bool JitterBuffer::is_lost_before(std::uint16_t sequence) const noexcept {
    for (int n = 1; n < distance(heard_, sequence); ++n) {
        const int ago = distance(static_cast<std::uint16_t>(heard_ + n), newest_);
        if (ago >= kRemembered || (come_ >> ago & 1) == 0) {
            return true;
        }
    }
    return false;
}

std::uint32_t JitterBuffer::skip_to(const Packet& packet) noexcept {
    const auto skipped = static_cast<std::uint32_t>(places_to(packet.timestamp));
    expected_ = packet.timestamp;
    return skipped;
}

void JitterBuffer::restart(const Packet& packet) noexcept {
    held_ = 0;
    started_ = true;
    suspicious_ = false;
    expected_ = packet.timestamp;
    newest_ = packet.sequence;
    heard_ = static_cast<std::uint16_t>(packet.sequence - 1);
    come_ = 0;
    made_up_in_a_row_ = 0;
}

void JitterBuffer::store(const Packet& packet, std::size_t ahead) noexcept {
    Samples& into = frames_.ahead(ahead);
    for (std::size_t i = 0; i < kFrameSamples; ++i) {
        // L16 is big-endian (RFC 3551).
        into[i] = static_cast<std::int16_t>(voice_read16(&packet.payload[2 * i]));
    }
    held_ = static_cast<std::uint16_t>(held_ | 1U << ahead);
    sequences_[(next_ + ahead) % kSlots] = packet.sequence;
}

}  // namespace voice::rtp
