#include "pipeline/poller.hpp"

#include <algorithm>
#include <utility>

namespace voice::pipeline {
namespace {

constexpr std::uint64_t kFramesPerS = 1000 / 20;

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
            inboxes_.push_back({other->index_, std::make_unique<HandOver>(ring_size_)});
            other->outboxes_[static_cast<std::size_t>(index_)] = inboxes_.back().ring.get();
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
            if (slot.is_owned_by(index_)) {
                end(slot, command->slot);
                live_.close(slot, now_ns_);
            }
            slot.known_to.fetch_sub(1, std::memory_order_release);
        }
        commands_.release();
    }
    while (const HostNote* note = host_notes_.peek()) {
        const std::uint32_t at = sessions_.find(note->ssrc);
        if (at != kNoSlot && slots_[at].is_owned_by(index_)) {
            slots_[at].host.store(note->address, std::memory_order_relaxed);
        }
        host_notes_.release();
    }
}

void Poller::take(std::span<const receive::Datagram> burst, int queue) noexcept {
    // All sessions are looked up first, so that their memory is fetched in parallel.
    std::array<std::uint32_t, receive::kBurst> at;
    std::ranges::transform(burst, at.begin(), [this](const auto& datagram) { return look_up(datagram); });
    for (std::size_t i = 0; i < burst.size() + kLookAhead; ++i) {
        if (i < burst.size() && at[i] != kNoSlot) {
            expect(burst[i], at[i]);
        }
        if (i >= kLookAhead) {
            take(burst[i - kLookAhead], at[i - kLookAhead], queue);
        }
    }
}

std::size_t Poller::take_handed_over() noexcept {
    std::size_t taken = 0;
    for (const auto& [queue, ring] : inboxes_) {
        receive::Burst burst;
        std::size_t count = 0;
        for (HandedOver* each = ring->peek(); each != nullptr && count < receive::kBurst; each = ring->peek(++count)) {
            if (each->bytes == 0) {
                arrive(static_cast<std::uint32_t>(each->source));
            } else {
                burst.add({std::span(each->packet).first(each->bytes), each->source});
            }
        }
        take(burst.datagrams(), queue);
        ring->release(count);
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
    if (slots_[at].is_owned_by(index_)) {
        slots_[at].jitter.expect(rtp::timestamp_of(datagram.bytes));
        if (slots_[at].srtp != nullptr) {
            slots_[at].srtp->expect();
        }
        vad_.expect(at);
    }
}

void Poller::take(const receive::Datagram& datagram, std::uint32_t at, int queue) noexcept {
    using control::DropReason;
    if (at == kNoSlot) {
        ++counters_.packets;
        const auto ssrc = rtp::sender_of(datagram.bytes);
        // Reports of an unknown session are no reason to request it.
        return drop(ssrc && !rtp::is_rtcp(datagram.bytes) ? senders_.on_unknown(*ssrc, datagram.source, now_ns_)
                                                : DropReason::kNotRtp);
    }
    Slot& slot = slots_[at];
    while (!owns(slot, at)) {
        if (hand_over(slot, at, datagram)) {
            return;
        }
    }
    ++counters_.packets;
    renew(slot, at);
    const bool is_report = rtp::is_rtcp(datagram.bytes);
    const auto opened = open(slot, at, datagram);
    if (!opened) {
        return;
    }
    slot.seen_ns.store(now_ns_, std::memory_order_relaxed);
    if (is_report) {
        const rtp::Notice notice = rtp::notice_of(*opened, slot.ssrc);
        if (notice == rtp::Notice::kCommit) {
            commit(slot, at);
        } else if (notice == rtp::Notice::kBye) {
            end(slot, at, VOICE_CHUNK_LAST);
            slot.ended.store(true, std::memory_order_relaxed);
        }
    } else if (auto packet = rtp::parse(*opened)) {
        packet->is_audio = !slot.media.without_audio.test(packet->payload_type);
        // Reports may use a separate port (RFC 3550, section 11), which is not the source of the audio.
        follow_source(slot, at, datagram.source);
        ++slot.packets;
        hear(slot, at, *packet);
        follow_queue(slot, at, queue);
    } else {
        drop(DropReason::kNotRtp);
    }
}

bool Poller::owns(Slot& slot, std::uint32_t at) noexcept {
    int no_owner = kNobody;
    const bool is_mine = slot.is_owned_by(index_) ||
                         slot.owner.compare_exchange_strong(no_owner, index_, std::memory_order_acquire);
    if (is_mine && slot.arrives) {
        slot.arrives = false;
        vad_.take(at, slot.vad_state);
        live_.enter(slot, now_ns_);
    }
    return is_mine;
}

void Poller::renew(Slot& slot, std::uint32_t at) noexcept {
    Renewal* renewal = slot.renewals.take();
    if (renewal == nullptr) {
        return;
    }
    if (renewal->has_key) {
        std::swap(slot.srtp, renewal->srtp);
        slot.encrypted.store(slot.srtp != nullptr, std::memory_order_relaxed);
    }
    if (renewal->has_media) {
        run_out(slot, at);
        std::swap(slot.transcoder, renewal->transcoder);
        std::swap(slot.media, renewal->media);
        slot.jitter.expect_another_stream();
        slot.begins_at.reset();  // of the previous clock
    }
    slot.renewals.give_back(renewal);
}

void Poller::arrive(std::uint32_t at) noexcept {
    if (slots_[at].is_owned_by(index_) && owns(slots_[at], at)) {
        silence_.start(at, now_ns_);
    }
}

bool Poller::hand_over(const Slot& slot, std::uint32_t at, const receive::Datagram& datagram) noexcept {
    using control::DropReason;
    const int owner = slot.owner.load(std::memory_order_relaxed) & ~kClosing;
    if (owner == index_) {
        return false;
    }
    // Forged packets must not displace those of senders whose address has changed.
    if (!slot.knows(datagram.source) &&
        !voice_allow(&strangers_paid_ns_[at], static_cast<std::uint64_t>(now_ns_), VOICE_STRANGERS_PER_S)) {
        drop(DropReason::kRateLimited);
        return true;
    }
    HandOver& ring = *outboxes_[static_cast<std::size_t>(owner)];
    HandedOver* into = ring.claim();
    if (into == nullptr || datagram.bytes.size() > into->packet.size()) {
        drop(DropReason::kRingFull);
        return true;
    }
    into->source = datagram.source;
    into->bytes = datagram.bytes.size();
    std::ranges::copy(datagram.bytes, into->packet.begin());
    ring.commit();
    ++counters_.handed_over;
    return true;
}

void Poller::follow_queue(Slot& slot, std::uint32_t at, int queue) noexcept {
    slot.elsewhere_packets = queue == index_ ? 0 : queue == slot.elsewhere ? slot.elsewhere_packets + 1 : 1;
    slot.elsewhere = queue;
    // Its chunks stay in order: those in the other poller's ring follow all that are in this one.
    HandOver* ring = slot.elsewhere_packets < kFollowAfter ? nullptr : outboxes_[static_cast<std::size_t>(queue)];
    HandedOver* into = ring == nullptr || slot.waits() || chunks_.occupancy() != 0 ? nullptr : ring->claim();
    if (into == nullptr) {
        return;
    }
    slot.elsewhere_packets = 0;
    slot.arrives = true;
    vad_.give(at, slot.vad_state);
    silence_.stop(at);
    live_.leave(slot);
    int mine = index_;
    // A session that is being closed ends here.
    if (slot.owner.compare_exchange_strong(mine, queue, std::memory_order_release)) {
        into->source = at;
        into->bytes = 0;
        ring->commit();
        ++counters_.followed;
    }
}

std::optional<std::span<const std::uint8_t>> Poller::open(Slot& slot, std::uint32_t at,
                                                          const receive::Datagram& datagram) noexcept {
    using control::DropReason;
    const auto now = static_cast<std::uint64_t>(now_ns_);
    const bool is_known = slot.knows(datagram.source);
    if (!(is_known ? voice_allow(&slot.known_paid_ns, now, packets_per_s_ + VOICE_FORGERIES_PER_S)
                   : voice_allow(&slot.others_paid_ns, now, VOICE_STRANGERS_PER_S))) {
        drop(DropReason::kRateLimited);
        return std::nullopt;
    }
    const auto opened = authenticate(slot, datagram, is_known);
    if (!opened) {
        return std::nullopt;
    }
    if (!is_known) {
        slot.others_paid_ns = voice_paid_back(slot.others_paid_ns, VOICE_STRANGERS_PER_S);
        senders_.on_authentic_stranger(at);
    }
    if (!voice_allow(&slot.paid_ns, now, packets_per_s_)) {
        drop(DropReason::kRateLimited);
        return std::nullopt;
    }
    return opened;
}

std::optional<std::span<const std::uint8_t>> Poller::authenticate(Slot& slot, const receive::Datagram& datagram,
                                                                  bool is_known) noexcept {
    using control::DropReason;
    if (slot.srtp == nullptr) {
        if (datagram.source >> 16 == slot.gateway.load(std::memory_order_relaxed)) {
            return datagram.bytes;
        }
        slot.disputed.store(true, std::memory_order_relaxed);
        drop(DropReason::kUnauthenticated);
        return std::nullopt;
    }
    const Stopwatch watch(stage(Stage::kUnprotect));
    const bool may_restart = now_ns_ - slot.seen_ns.load(std::memory_order_relaxed) >= kRestartAfter.count();
    const auto [verdict, packet] = rtp::is_rtcp(datagram.bytes) ? slot.srtp->unprotect_report(datagram.bytes)
                                                                : slot.srtp->unprotect(datagram.bytes, may_restart);
    if (verdict == srtp::Verdict::kOk) {
        return packet;
    }
    if (verdict == srtp::Verdict::kAuthFailed) {
        slot.disputed.store(true, std::memory_order_relaxed);  // the key may have changed since its record was read
    }
    // A repeated sequence number is detected before authentication, so it says nothing about packets of other senders.
    drop(is_known ? reason_of(verdict) : DropReason::kUnauthenticated);
    return std::nullopt;
}

void Poller::follow_source(Slot& slot, std::uint32_t at, std::uint64_t source) noexcept {
    const std::uint64_t last = slot.sources[0].load(std::memory_order_relaxed);
    if (last != source) {
        slot.sources[0].store(source, std::memory_order_relaxed);
        slot.sources[1].store(last, std::memory_order_relaxed);
        senders_.on_sources(at, {source, last});
    }
}

void Poller::hear(Slot& slot, std::uint32_t stream, const rtp::Packet& packet) noexcept {
    if (packet.is_audio && packet.payload_type != slot.media.payload_type) {
        return drop_wrong_payload(slot);
    }
    if (packet.is_audio && slot.begins_at) {
        // An overtaken first packet may precede the session's first frame.
        const auto ticks = std::max(0, static_cast<std::int32_t>(packet.timestamp - *slot.begins_at));
        slot.first_place = std::uint64_t{static_cast<std::uint32_t>(ticks)} * kFramesPerS / slot.media.rate;
        slot.begins_at.reset();
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
    note(slot, arrival);
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
    if (!packet.is_audio) {
        return slot.jitter.pass(packet);
    }
    if (slot.first_place) {
        slot.utterances.begin_at(*slot.first_place);
        slot.first_place.reset();
    }
    Arrival arrival;
    {
        const Stopwatch watch(stage(Stage::kReorder));
        arrival = slot.jitter.insert(packet);
    }
    if (arrival == Arrival::kBeyond) {
        quieten(slot, stream, slot.jitter.is_lost_before(packet));
        slot.utterances.skip(slot.jitter.skip_to(packet));
        arrival = slot.jitter.insert(packet);
    }
    note(slot, arrival);
    if (arrival == Arrival::kMalformed || arrival == Arrival::kLate || arrival == Arrival::kSuspicious) {
        return;
    }
    silence_.start(stream, now_ns_);
    while (slot.jitter.next()) {
        hear_frame(slot, stream);
    }
    live_.follow(slot, now_ns_);
}

void Poller::drop_wrong_payload(Slot& slot) noexcept {
    ++slot.wrong_payload;
    slot.disputed.store(true, std::memory_order_relaxed);
    live_.enter(slot, now_ns_);
    drop(control::DropReason::kWrongPayload);
}

void Poller::note(Slot& slot, rtp::JitterBuffer::Arrival arrival) noexcept {
    using Arrival = rtp::JitterBuffer::Arrival;
    if (arrival == Arrival::kMalformed) {
        drop_wrong_payload(slot);
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

void Poller::quieten(Slot& slot, std::uint32_t stream, bool torn) noexcept {
    while (slot.jitter.run_out()) {
        hear_frame(slot, stream);
    }
    // Ends when the concealed audio has faded.
    while (slot.utterances.speaking()) {
        slot.jitter.make_up(torn);
        hear_frame(slot, stream);
    }
}

void Poller::fall_silent(Slot& slot, std::uint32_t stream) noexcept {
    run_out(slot, stream);
    quieten(slot, stream, slot.jitter.is_torn(slot.media.may_pause()));
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
