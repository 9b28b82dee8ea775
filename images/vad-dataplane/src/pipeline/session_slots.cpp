#include "pipeline/session_slots.hpp"

#include <chrono>

namespace voice::pipeline {

SessionSlots::SessionSlots(std::size_t sessions, voice_chunk_kind kind)
    : slots_(sessions), kind_(kind) {
    free_.reserve(sessions);
    for (std::size_t i = sessions; i > 0; --i) {
        free_.push_back(static_cast<std::uint32_t>(i - 1));
    }
}

std::optional<std::uint32_t> SessionSlots::open(std::uint32_t ssrc, const admission::SessionRecord& record) {
    reclaim();
    // It may still be there, with a close command that no poller had room for.
    if (open_slots_.contains(ssrc) || free_.empty() || !can_tell()) {
        return std::nullopt;
    }
    const std::uint32_t at = free_.back();
    Slot& slot = slots_[at];
    if (record.srtp_key) {
        slot.srtp = srtp::Receiver::create(ssrc, *record.srtp_key, record.srtp_suite);
        if (slot.srtp == nullptr) {
            return std::nullopt;
        }
    }
    if (!record.media.is_plain()) {
        slot.transcoder = media::Transcoder::create(record.media);
        if (slot.transcoder == nullptr) {
            return std::nullopt;
        }
    }
    free_.pop_back();
    slot.ssrc = ssrc;
    slot.media = record.media;
    slot.jitter = rtp::JitterBuffer();
    slot.utterances = session::Utterances(ssrc, kind_, record.progress);
    slot.begins_at = record.begins_at;
    slot.first_place.reset();
    slot.packets.reset();
    slot.concealed.reset();
    slot.wrong_payload.reset();
    slot.speaking.store(false, std::memory_order_relaxed);
    slot.ended.store(false, std::memory_order_relaxed);
    slot.disputed.store(false, std::memory_order_relaxed);
    slot.encrypted.store(slot.srtp != nullptr, std::memory_order_relaxed);
    slot.gateway.store(record.gateway, std::memory_order_relaxed);
    for (auto& source : slot.sources) {
        source.store(0, std::memory_order_relaxed);
    }
    slot.known_paid_ns = slot.others_paid_ns = slot.paid_ns = 0;
    slot.arrives = false;
    slot.elsewhere = kNobody;
    slot.elsewhere_packets = 0;
    slot.chunks.store(record.progress.chunks, std::memory_order_relaxed);
    slot.host.store(0, std::memory_order_relaxed);
    slot.owner.store(kNobody, std::memory_order_relaxed);
    slot.seen_ns.store(std::chrono::steady_clock::now().time_since_epoch().count(), std::memory_order_relaxed);
    slot.known_to.store(static_cast<unsigned>(pollers_.size()), std::memory_order_relaxed);
    open_slots_.emplace(ssrc, Open{at, terms_of(record), terms_of(record)});
    open_.store(open_slots_.size(), std::memory_order_relaxed);
    tell_all({Command::Kind::kOpen, ssrc, at});  // with release: the pollers see the slot in its current state
    return at;
}

void SessionSlots::update(std::uint32_t ssrc, const admission::SessionRecord& record) {
    const auto found = open_slots_.find(ssrc);
    if (found == open_slots_.end()) {
        return;
    }
    Open& open = found->second;
    Slot& slot = slots_[open.at];
    slot.gateway.store(record.gateway, std::memory_order_relaxed);
    if (slot.renewals.collect()) {
        open.taken = open.offered;
    }
    const Terms terms = terms_of(record);
    if (terms == open.offered) {
        return;
    }
    auto renewal = std::make_unique<Renewal>();
    renewal->has_key = terms.key != open.taken.key || terms.suite != open.taken.suite;
    renewal->has_media = terms.media != open.taken.media;
    renewal->media = terms.media;
    if (renewal->has_key && terms.key) {
        renewal->srtp = srtp::Receiver::create(ssrc, *terms.key, terms.suite);
    }
    if (renewal->has_media && !terms.media.is_plain()) {
        renewal->transcoder = media::Transcoder::create(terms.media);
    }
    const bool lacks_memory = (renewal->has_key && terms.key && renewal->srtp == nullptr) ||
                              (renewal->has_media && !terms.media.is_plain() && renewal->transcoder == nullptr);
    if (lacks_memory) {
        return;  // the record is read again
    }
    open.offered = terms;
    slot.renewals.offer(std::move(renewal));
}

void SessionSlots::close(std::uint32_t ssrc) {
    to_close_.push_back(ssrc);
    while (!to_close_.empty() && can_tell()) {
        const auto found = open_slots_.find(to_close_.front());
        to_close_.pop_front();
        if (found != open_slots_.end()) {
            // From now on its owner keeps it: it could be handed to a poller that has already forgotten it.
            slots_[found->second.at].owner.fetch_or(kClosing, std::memory_order_relaxed);
            tell_all({Command::Kind::kClose, found->first, found->second.at});
            closing_.push_back(found->second.at);
            open_slots_.erase(found);
        }
    }
    open_.store(open_slots_.size(), std::memory_order_relaxed);
    reclaim();
}

void SessionSlots::each(const std::function<void(const Session&)>& callback) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    for (const auto& [ssrc, open] : open_slots_) {
        Slot& slot = slots_[open.at];
        callback({ssrc, std::chrono::nanoseconds(now - slot.seen_ns.load(std::memory_order_relaxed)),
                  slot.ended.load(std::memory_order_relaxed),
                  slot.disputed.exchange(false, std::memory_order_relaxed)});
    }
}

void SessionSlots::reclaim() noexcept {
    // Acquire: the pollers' accesses to the slot are complete.
    while (!closing_.empty() && slots_[closing_.front()].known_to.load(std::memory_order_acquire) == 0) {
        slots_[closing_.front()].srtp.reset();
        slots_[closing_.front()].transcoder.reset();
        slots_[closing_.front()].renewals.offer(nullptr);
        slots_[closing_.front()].renewals.collect();
        free_.push_back(closing_.front());
        closing_.pop_front();
    }
}

bool SessionSlots::can_tell() noexcept {
    for (Poller* poller : pollers_) {
        if (poller->commands().claim() == nullptr) {
            return false;
        }
    }
    return true;
}

void SessionSlots::tell_all(const Command& command) noexcept {
    for (Poller* poller : pollers_) {
        *poller->commands().claim() = command;
        poller->commands().commit();
    }
}

}  // namespace voice::pipeline
