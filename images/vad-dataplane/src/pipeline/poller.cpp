#include "pipeline/poller.hpp"

#include <algorithm>

namespace voice::pipeline {
namespace {

control::DropReason reason_of(srtp::Verdict verdict) noexcept {
    return verdict == srtp::Verdict::kReplay      ? control::DropReason::kReplay
           : verdict == srtp::Verdict::kMalformed ? control::DropReason::kNotRtp
                                                  : control::DropReason::kUnauthenticated;
}

}  // namespace

void Poller::meet(std::span<const std::unique_ptr<Poller>> pollers) {
    for (const auto& other : pollers) {
        other->outboxes_.resize(pollers.size());
        if (other.get() != this) {
            inboxes_.push_back(std::make_unique<HandOver>());
            other->outboxes_[static_cast<std::size_t>(index_)] = inboxes_.back().get();
        }
    }
}

void Poller::obey() noexcept {
    while (const Command* command = commands_.peek()) {
        Slot& slot = slots_[command->slot];
        if (command->kind == Command::Kind::kOpen) {
            sessions_.put(command->ssrc, command->slot);
        } else {
            sessions_.erase(command->ssrc);
            if (slot.owner.load(std::memory_order_relaxed) == index_) {
                end(slot, command->slot);
                live_.close(slot, now_ns_);
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

std::size_t Poller::take_handed_over() noexcept {
    std::size_t taken = 0;
    for (const auto& inbox : inboxes_) {
        receive::Burst burst;
        std::size_t count = 0;
        for (HandedOver* each = inbox->peek(); each != nullptr && count < receive::kBurst; each = inbox->peek(++count)) {
            burst.add({std::span(each->packet).first(each->bytes), each->source});
        }
        take(burst.datagrams());
        inbox->release(count);
        taken += count;
    }
    return taken;
}

std::uint32_t Poller::look_up(const receive::Datagram& datagram) const noexcept {
    const auto ssrc = rtp::sender_of(datagram.bytes);
    const std::uint32_t at = ssrc ? sessions_.find(*ssrc) : kNoSlot;
    if (at != kNoSlot) {
        slots_[at].expect();
    }
    return at;
}

void Poller::expect(const receive::Datagram& datagram, std::uint32_t at) noexcept {
    if (slots_[at].owner.load(std::memory_order_relaxed) == index_) {
        slots_[at].jitter.expect(rtp::timestamp_of(datagram.bytes));
        if (slots_[at].srtp != nullptr) {
            slots_[at].srtp->expect();
        }
        vad_.expect(at);
    }
}

void Poller::take(const receive::Datagram& datagram, std::uint32_t at) noexcept {
    using control::DropReason;
    if (at == kNoSlot) {
        ++counters_.packets;
        const auto ssrc = rtp::sender_of(datagram.bytes);
        // Reports of a session that is not there are no reason to ask for it.
        return drop(ssrc && !rtp::is_rtcp(datagram.bytes) ? senders_.on_unknown(*ssrc, now_ns_) : DropReason::kNotRtp);
    }
    Slot& slot = slots_[at];
    if (!owns(slot)) {
        return hand_over(slot, datagram);
    }
    ++counters_.packets;
    const bool is_report = rtp::is_rtcp(datagram.bytes);
    const auto opened = open(slot, datagram);
    if (!opened) {
        return;
    }
    follow_source(slot, at, datagram.source);
    if (is_report) {
        const rtp::Notice notice = rtp::notice_of(*opened, slot.ssrc);
        if (notice == rtp::Notice::kCommit) {
            commit(slot, at);
        } else if (notice == rtp::Notice::kBye) {
            end(slot, at, VOICE_CHUNK_LAST);
            slot.ended.store(true, std::memory_order_relaxed);
        }
    } else if (const auto packet = rtp::parse(*opened)) {
        ++slot.packets;
        hear(slot, at, *packet);
    } else {
        drop(DropReason::kNotRtp);
    }
}

bool Poller::owns(Slot& slot) noexcept {
    int owner = slot.owner.load(std::memory_order_relaxed);
    return owner == index_ ||
           (owner == kNobody && slot.owner.compare_exchange_strong(owner, index_, std::memory_order_relaxed));
}

void Poller::hand_over(const Slot& slot, const receive::Datagram& datagram) noexcept {
    HandOver& ring = *outboxes_[static_cast<std::size_t>(slot.owner.load(std::memory_order_relaxed))];
    // What forgers send must not take the place of what senders do whose address has changed.
    const bool known = slot.source.load(std::memory_order_relaxed) == datagram.source;
    HandedOver* into = known || ring.occupancy() < HandOver::kSlots / 2 ? ring.claim() : nullptr;
    if (into == nullptr || datagram.bytes.size() > into->packet.size()) {
        return drop(control::DropReason::kRingFull);
    }
    into->source = datagram.source;
    into->bytes = datagram.bytes.size();
    std::ranges::copy(datagram.bytes, into->packet.begin());
    ring.commit();
    ++counters_.handed_over;
}

std::optional<std::span<const std::uint8_t>> Poller::open(Slot& slot, const receive::Datagram& datagram) noexcept {
    using control::DropReason;
    const bool is_sender = slot.source.load(std::memory_order_relaxed) == datagram.source;
    if (!is_sender && !voice_allow(&slot.others_paid_ns, static_cast<std::uint64_t>(now_ns_), VOICE_STRANGERS_PER_S)) {
        drop(DropReason::kRateLimited);
        return std::nullopt;
    }
    if (slot.srtp == nullptr) {
        if (datagram.source >> 16 == slot.gateway.load(std::memory_order_relaxed)) {
            return datagram.bytes;
        }
        slot.disputed.store(true, std::memory_order_relaxed);
        drop(DropReason::kUnauthenticated);
        return std::nullopt;
    }
    const Stopwatch watch(stage(Stage::kUnprotect));
    const auto [verdict, packet] = rtp::is_rtcp(datagram.bytes) ? slot.srtp->unprotect_report(datagram.bytes)
                                                                : slot.srtp->unprotect(datagram.bytes);
    if (verdict == srtp::Verdict::kOk) {
        return packet;
    }
    // A number that has come before is found before the packet is authenticated: of others than the sender, it tells nothing.
    drop(is_sender ? reason_of(verdict) : DropReason::kUnauthenticated);
    return std::nullopt;
}

void Poller::follow_source(Slot& slot, std::uint32_t at, std::uint64_t source) noexcept {
    slot.seen_ns.store(now_ns_, std::memory_order_relaxed);
    if (slot.source.load(std::memory_order_relaxed) != source) {
        slot.source.store(source, std::memory_order_relaxed);
        senders_.on_source(at, source);
    }
}

void Poller::hear(Slot& slot, std::uint32_t stream, const rtp::Packet& packet) noexcept {
    const bool is_audio = !rtp::holds_no_audio(packet);
    if (is_audio && packet.payload_type != slot.payload_type) {
        return drop(control::DropReason::kWrongPayload);
    }
    if (slot.transcoder == nullptr) {
        return hear_plain(slot, stream, packet);
    }
    auto arrival = slot.transcoder->insert(packet);
    if (arrival == rtp::JitterBuffer::Arrival::kBeyond) {
        transcode(slot, stream, &media::Transcoder::run_out);
        slot.transcoder->skip_to(packet);
        arrival = slot.transcoder->insert(packet);
    }
    note(arrival);
    transcode(slot, stream, &media::Transcoder::next);
}

void Poller::transcode(Slot& slot, std::uint32_t stream,
                       std::optional<rtp::Packet> (media::Transcoder::*next)() noexcept) noexcept {
    while (true) {
        StageCounters& spent = stage(Stage::kDecode);
        const std::uint64_t start = cycles();
        const auto made = (*slot.transcoder.*next)();
        spent.cycles += cycles() - start;
        if (!made) {
            return;
        }
        ++spent.items;
        hear_plain(slot, stream, *made);
    }
}

void Poller::hear_plain(Slot& slot, std::uint32_t stream, const rtp::Packet& packet) noexcept {
    using Arrival = rtp::JitterBuffer::Arrival;
    if (rtp::holds_no_audio(packet)) {
        return slot.jitter.pass(packet);
    }
    if (slot.begins_at) {
        slot.utterances.begin_at((packet.timestamp - *slot.begins_at) / rtp::kFrameSamples);
        slot.begins_at.reset();
    }
    Arrival arrival;
    {
        const Stopwatch watch(stage(Stage::kReorder));
        arrival = slot.jitter.insert(packet);
    }
    if (arrival == Arrival::kBeyond) {
        quieten(slot, stream);
        slot.utterances.skip(slot.jitter.skip_to(packet));
        arrival = slot.jitter.insert(packet);
    }
    note(arrival);
    if (arrival == Arrival::kMalformed || arrival == Arrival::kLate || arrival == Arrival::kSuspicious) {
        return;
    }
    silence_.start(stream, now_ns_);
    while (slot.jitter.next()) {
        hear_frame(slot, stream);
    }
    live_.follow(slot, now_ns_);
}

void Poller::note(rtp::JitterBuffer::Arrival arrival) noexcept {
    using Arrival = rtp::JitterBuffer::Arrival;
    if (arrival == Arrival::kMalformed) {
        drop(control::DropReason::kWrongPayload);
    } else if (arrival == Arrival::kLate || arrival == Arrival::kSuspicious) {
        drop(control::DropReason::kLate);
    }
    counters_.duplicates += arrival == Arrival::kDuplicate ? 1 : 0;
    counters_.restarts += arrival == Arrival::kRestarted ? 1 : 0;
}

void Poller::hear_frame(Slot& slot, std::uint32_t stream) noexcept {
    const rtp::Frame frame = slot.jitter.frame();
    slot.concealed += frame.concealed ? 1 : 0;
    const vad::Decision decision = decide(slot, stream, frame);
    const Stopwatch watch(stage(Stage::kFeatures));
    slot.utterances.take(slot.jitter.frames(), frame.concealed, decision, chunks_, counters_.audio);
}

void Poller::run_out(Slot& slot, std::uint32_t stream) noexcept {
    if (slot.transcoder != nullptr) {
        transcode(slot, stream, &media::Transcoder::run_out);
    }
    while (slot.jitter.run_out()) {
        hear_frame(slot, stream);
    }
}

void Poller::quieten(Slot& slot, std::uint32_t stream) noexcept {
    while (slot.jitter.run_out()) {
        hear_frame(slot, stream);
    }
    // Ends when what is made up has faded.
    while (slot.utterances.speaking()) {
        slot.jitter.make_up();
        hear_frame(slot, stream);
    }
}

void Poller::fall_silent(Slot& slot, std::uint32_t stream) noexcept {
    run_out(slot, stream);
    quieten(slot, stream);
}

void Poller::commit(Slot& slot, std::uint32_t stream) noexcept {
    run_out(slot, stream);
    slot.utterances.close(slot.jitter.frames(), chunks_, counters_.audio, VOICE_CHUNK_COMMIT);
}

void Poller::end(Slot& slot, std::uint32_t stream, unsigned mark) noexcept {
    run_out(slot, stream);
    slot.utterances.close(slot.jitter.frames(), chunks_, counters_.audio, mark);
    silence_.stop(stream);
    vad_.reset(stream);
}

vad::Decision Poller::decide(const Slot& slot, std::uint32_t stream, const rtp::Frame& frame) noexcept {
    if (frame.made_up) {
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
