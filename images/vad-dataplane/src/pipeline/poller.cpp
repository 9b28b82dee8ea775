#include "pipeline/poller.hpp"

#include <algorithm>

namespace voice::pipeline {
namespace {

bool is_rtp(const receive::Datagram& datagram) noexcept {
    return datagram.size() >= rtp::kHeaderBytes && datagram[0] >> 6 == 2;
}

std::uint32_t ssrc_of(const receive::Datagram& datagram) noexcept {
    return static_cast<std::uint32_t>(datagram[8]) << 24 | datagram[9] << 16 | datagram[10] << 8 | datagram[11];
}

}  // namespace

void Poller::obey() noexcept {
    while (const Command* command = commands_.peek()) {
        Slot& slot = slots_[command->slot];
        if (command->kind == Command::Kind::kOpen) {
            sessions_.put(command->ssrc, command->slot);
        } else {
            sessions_.erase(command->ssrc);
            if (slot.owner.load(std::memory_order_relaxed) == index_) {
                slot.utterances.close(slot.jitter.frames(), chunks_, counters_.audio);
                live_.close(slot, now_ns_);
                vad_.reset(command->slot);
            }
            slot.known_to.fetch_sub(1, std::memory_order_release);
        }
        commands_.release();
    }
    while (const HostNote* note = host_notes_.peek()) {
        const std::uint32_t at = sessions_.find(note->ssrc);
        if (at != kNoSlot && slots_[at].owner.load(std::memory_order_relaxed) == index_) {
            slots_[at].host.store(note->address, std::memory_order_relaxed);
        }
        host_notes_.release();
    }
}

void Poller::take(std::span<const receive::Datagram> burst) noexcept {
    // All sessions are looked up first: the memory of many is on its way at once, instead of one after the other.
    std::array<std::uint32_t, receive::kBurst> at;
    std::ranges::transform(burst, at.begin(), [this](const auto& datagram) { return look_up(datagram); });
    for (std::size_t i = 0; i < burst.size() + kLookAhead; ++i) {
        if (i < burst.size() && at[i] != kNoSlot) {
            expect(burst[i], at[i]);
        }
        if (i >= kLookAhead) {
            take(burst[i - kLookAhead], at[i - kLookAhead]);
        }
    }
}

std::uint32_t Poller::look_up(const receive::Datagram& datagram) const noexcept {
    if (!is_rtp(datagram)) {
        return kNoSlot;
    }
    const std::uint32_t at = sessions_.find(ssrc_of(datagram));
    if (at != kNoSlot) {
        slots_[at].expect();
    }
    return at;
}

void Poller::expect(const receive::Datagram& datagram, std::uint32_t at) noexcept {
    slots_[at].jitter.expect(static_cast<std::uint16_t>(datagram[2] << 8 | datagram[3]));
    vad_.expect(at);
}

void Poller::take(const receive::Datagram& datagram, std::uint32_t at) noexcept {
    using control::DropReason;
    ++counters_.packets;
    if (!is_rtp(datagram)) {
        return drop(DropReason::kNotRtp);
    }
    if (at == kNoSlot) {
        return drop(unknown_.on_packet(ssrc_of(datagram)));
    }
    Slot& slot = slots_[at];
    if (!owns(slot)) {
        ++counters_.elsewhere;
        return;
    }
    slot.seen_ns.store(now_ns_, std::memory_order_relaxed);
    ++slot.packets;
    if (const auto packet = open(slot, datagram)) {
        hear(slot, at, *packet);
    }
}

bool Poller::owns(Slot& slot) noexcept {
    int owner = slot.owner.load(std::memory_order_relaxed);
    return owner == index_ ||
           (owner == kNobody && slot.owner.compare_exchange_strong(owner, index_, std::memory_order_relaxed));
}

std::optional<rtp::Packet> Poller::open(Slot& slot, receive::Datagram datagram) noexcept {
    using control::DropReason;
    if (slot.srtp != nullptr) {
        const Stopwatch watch(stage(Stage::kUnprotect));
        const auto [verdict, packet] = slot.srtp->unprotect(datagram);
        if (verdict != srtp::Verdict::kOk) {
            drop(verdict == srtp::Verdict::kReplay      ? DropReason::kReplay
                 : verdict == srtp::Verdict::kMalformed ? DropReason::kNotRtp
                                                        : DropReason::kUnauthenticated);
            return std::nullopt;
        }
        datagram = packet;
    }
    const auto packet = rtp::parse(datagram);
    if (!packet) {
        drop(DropReason::kNotRtp);
    }
    return packet;
}

void Poller::hear(Slot& slot, std::uint32_t stream, const rtp::Packet& packet) noexcept {
    using Arrival = rtp::JitterBuffer::Arrival;
    Arrival arrival;
    {
        const Stopwatch watch(stage(Stage::kReorder));
        arrival = slot.jitter.insert(packet);
    }
    if (arrival == Arrival::kMalformed) {
        return drop(control::DropReason::kNotRtp);
    }
    if (arrival == Arrival::kLate || arrival == Arrival::kSuspicious) {
        return drop(control::DropReason::kLate);
    }
    counters_.duplicates += arrival == Arrival::kDuplicate ? 1 : 0;
    counters_.restarts += arrival == Arrival::kRestarted ? 1 : 0;
    while (slot.jitter.next()) {
        const rtp::Frame frame = slot.jitter.frame();
        slot.concealed += frame.concealed ? 1 : 0;
        const vad::Decision decision = decide(slot, stream, frame);
        const Stopwatch watch(stage(Stage::kFeatures));
        slot.utterances.take(slot.jitter.frames(), frame.concealed, decision, chunks_, counters_.audio);
    }
    live_.follow(slot, now_ns_);
}

vad::Decision Poller::decide(const Slot& slot, std::uint32_t stream, const rtp::Frame& frame) noexcept {
    if (frame.concealed) {
        return {.speech = slot.utterances.speaking() && !frame.faded};
    }
    const Stopwatch watch(stage(Stage::kVad));
    return vad_.process(stream, frame.samples);
}

void Poller::measure_backlog(std::size_t received, std::size_t batch) noexcept {
    run_ += static_cast<std::uint32_t>(received);
    if (run_ > counters_.backlog.load(std::memory_order_relaxed)) {
        counters_.backlog.store(run_, std::memory_order_relaxed);
    }
    if (received < batch) {
        run_ = 0;
    }
}

}  // namespace voice::pipeline
