#include "media/transcoder.hpp"

#include <algorithm>
#include <bit>

namespace voice::media {

using rtp::JitterBuffer;
using rtp::kFrameSamples;

std::unique_ptr<Transcoder> Transcoder::create(const Description& media) {
    auto decoder = Decoder::create(media);
    return decoder ? std::unique_ptr<Transcoder>(new Transcoder(std::move(decoder), media)) : nullptr;
}

Transcoder::Arrival Transcoder::insert(const rtp::Packet& packet) noexcept {
    const bool is_audio = packet.is_audio;
    const std::uint32_t ticks = is_audio ? decoder_->ticks(packet.payload) : 0;
    if (is_audio && (ticks == 0 || packet.payload.size() > kMostPayloadBytes)) {
        return Arrival::kMalformed;
    }
    Arrival arrival = Arrival::kHeld;
    int ahead = 0;
    if (started_) {
        ahead = static_cast<std::int16_t>(static_cast<std::uint16_t>(packet.sequence - expected_));
    } else {
        at_ = static_cast<std::uint32_t>(std::uint64_t{packet.timestamp} * kRate / rate_);
        restart(packet);
    }
    if (ahead >= JitterBuffer::kMaxDropout || ahead < -JitterBuffer::kMaxMisorder) {
        // As in the jitter buffer: two in sequence indicate a restarted sender.
        if (!suspicious_ || packet.sequence != after_suspicious_) {
            suspicious_ = true;
            after_suspicious_ = static_cast<std::uint16_t>(packet.sequence + 1);
            return Arrival::kSuspicious;
        }
        restart(packet);
        ahead = 0;
        arrival = Arrival::kRestarted;
    }
    suspicious_ = false;
    if (ahead < 0) {
        return ahead >= -kRemembered && (come_ >> (-ahead - 1) & 1) != 0 ? Arrival::kDuplicate : Arrival::kLate;
    }
    if (ahead >= static_cast<int>(kSlots)) {
        return Arrival::kBeyond;
    }
    if ((held_ >> ahead & 1) != 0) {
        return Arrival::kDuplicate;
    }
    Held& into = packets_[packet.sequence % kSlots];
    into.timestamp = packet.timestamp;
    into.ticks = ticks;
    into.bytes = is_audio ? packet.payload.size() : 0;
    std::ranges::copy(packet.payload.first(into.bytes), into.payload.begin());
    held_ |= 1U << ahead;
    return arrival;
}

void Transcoder::restart(const rtp::Packet& packet) noexcept {
    started_ = true;
    held_ = 0;
    come_ = 0;
    expected_ = packet.sequence;
    expected_at_ = packet.timestamp;
}

void Transcoder::skip_to(const rtp::Packet& packet) noexcept {
    expected_ = packet.sequence;
    come_ = 0;
    lost_ = true;
}

std::optional<rtp::Packet> Transcoder::make(unsigned wait) noexcept {
    while (!fill()) {
        if ((held_ & 1) == 0 && static_cast<unsigned>(std::bit_width(held_)) <= wait) {
            return std::nullopt;
        }
        if (turn()) {
            return rtp::Packet{.is_audio = false, .sequence = next_sequence(), .payload = {}};
        }
    }
    const rtp::Packet packet{.sequence = next_sequence(), .timestamp = at_, .payload = frame_};
    filled_ = 0;
    at_ += kFrameSamples;
    return packet;
}

bool Transcoder::turn() noexcept {
    const Held& packet = packets_[expected_ % kSlots];
    const bool is_here = (held_ & 1) != 0;
    ++expected_;
    held_ >>= 1;
    come_ = come_ << 1 | (is_here ? 1U : 0U);
    if (!is_here) {
        lose();
    } else if (packet.ticks != 0) {
        skip(packet.timestamp - expected_at_);
        expected_at_ = packet.timestamp + packet.ticks;
        last_ticks_ = packet.ticks;
        decoded_ = decoder_->decode(std::span(packet.payload).first(packet.bytes));
    }
    return is_here && packet.ticks == 0;
}

void Transcoder::lose() noexcept {
    const Held& next = packets_[expected_ % kSlots];
    const std::span payload = std::span(next.payload).first((held_ & 1) != 0 ? next.bytes : 0);
    const std::uint32_t before = next.timestamp - expected_at_ - last_ticks_;
    // Losses before the previous packet are not contained in it.
    if (!payload.empty() && before < kLongestLossTicks && decoder_->has_previous(payload)) {
        lost_ = lost_ || before != 0;
        skip(before);
        expected_at_ = next.timestamp;
        decoded_ = decoder_->recover(payload, last_ticks_);
    } else {
        lost_ = true;
        decoder_->lose(last_ticks_);
    }
}

void Transcoder::skip(std::uint32_t ticks) noexcept {
    const auto samples = static_cast<std::int64_t>(static_cast<std::int32_t>(ticks)) * kRate / rate_;
    if (samples <= 0 || samples > std::int64_t{JitterBuffer::kMaxPause} * static_cast<int>(kFrameSamples)) {
        return;  // a different timeline: its clock was set, and it follows the held packets
    }
    const std::size_t to = filled_ + static_cast<std::size_t>(samples);
    if (to >= kFrameSamples) {
        at_ += static_cast<std::uint32_t>(to / kFrameSamples * kFrameSamples);
        filled_ = 0;  // the partial frame is discarded
    }
    for (; filled_ < to % kFrameSamples; ++filled_) {
        frame_[2 * filled_] = frame_[2 * filled_ + 1] = 0;
    }
}

bool Transcoder::fill() noexcept {
    const std::size_t count = std::min(decoded_.size(), kFrameSamples - filled_);
    for (const std::int16_t sample : decoded_.first(count)) {
        const auto bits = static_cast<std::uint16_t>(sample);
        frame_[2 * filled_] = static_cast<std::uint8_t>(bits >> 8);
        frame_[2 * filled_ + 1] = static_cast<std::uint8_t>(bits);
        ++filled_;
    }
    decoded_ = decoded_.subspan(count);
    return filled_ == kFrameSamples;
}

std::uint16_t Transcoder::next_sequence() noexcept {
    sequence_ = static_cast<std::uint16_t>(sequence_ + (lost_ ? 2 : 1));
    lost_ = false;
    return sequence_;
}

}  // namespace voice::media
