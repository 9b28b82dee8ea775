#include "admission/admission.hpp"

#include <algorithm>
#include <array>
#include <ctime>

#include "support/quiet_thread.hpp"

namespace voice::admission {
namespace {

constexpr std::chrono::milliseconds kWait{100};

void add(std::atomic<std::uint64_t>& counter, std::uint64_t value = 1) noexcept {
    counter.fetch_add(value, std::memory_order_relaxed);
}

std::int64_t seconds_since_1970() noexcept { return static_cast<std::int64_t>(std::time(nullptr)); }

}  // namespace

void Admission::start() {
    thread_ = start_quiet_thread("admission", [this] { run(); });
}

void Admission::stop() {
    stopping_.store(true, std::memory_order_relaxed);
    if (thread_.joinable()) {
        thread_.join();
    }
}

void Admission::run() {
    std::array<std::uint32_t, kBatch> ssrcs{};
    store_.exchange();  // connects now, so that the first caller's packets do not wait for it
    while (!stopping_.load(std::memory_order_relaxed)) {
        const auto count = requests_.wait(ssrcs, kWait);
        if (count != 0) {
            answer(std::span(ssrcs).first(count));
        }
        unblock_due();
        if (Clock::now() >= next_sweep_) {
            next_sweep_ = Clock::now() + settings_.sweep_every;
            sweep();
        }
    }
}

void Admission::answer(std::span<const std::uint32_t> ssrcs) {
    add(counters_.requests, ssrcs.size());
    if (draining_.load(std::memory_order_relaxed)) {
        add(counters_.no_room, ssrcs.size());
        return;
    }
    for (const auto ssrc : ssrcs) {
        query_session(store_, ssrc);
    }
    const auto replies = store_.exchange();
    if (!replies) {
        add(counters_.unanswered, ssrcs.size());
        return;
    }
    for (std::size_t i = 0; i < ssrcs.size(); ++i) {
        answer(ssrcs[i], fields_of_session(std::span(*replies).subspan(i * kQueries, kQueries)));
    }
}

void Admission::answer(std::uint32_t ssrc, const std::optional<valkey::Fields>& fields) {
    if (!fields) {
        add(counters_.unanswered);
        return;
    }
    const auto answer = read_session(*fields, seconds_since_1970());
    if (const auto* record = std::get_if<SessionRecord>(&answer)) {
        admit(ssrc, *record);
        return;
    }
    const auto refusal = std::get<Refusal>(answer);
    add(counters_.malformed, refusal == Refusal::kMalformed ? 1 : 0);
    if (refusal == Refusal::kNotYet) {
        add(counters_.refused);  // and requested again
    } else {
        block(ssrc);
    }
}

void Admission::admit(std::uint32_t ssrc, const SessionRecord& record) {
    if (expiries_.contains(ssrc)) {
        return;  // requested twice before the first answer
    }
    const auto slot = sessions_.open(ssrc, record);
    if (!slot) {
        add(counters_.no_room);
        return;
    }
    if (!gate_.admit(ssrc, *slot)) {
        sessions_.close(ssrc);
        add(counters_.no_room);
        return;
    }
    expiries_.emplace(ssrc, record.expires_at);
    to_review_.push_back(ssrc);
    add(counters_.admitted);
    counters_.sessions.store(expiries_.size(), std::memory_order_relaxed);
}

void Admission::block(std::uint32_t ssrc) {
    add(counters_.refused);
    if (expiries_.contains(ssrc)) {
        return;
    }
    if (blocked_.size() < kMaxBlocked && gate_.block(ssrc)) {
        blocked_.push_back({Clock::now() + settings_.block_for, ssrc});
    }
}

void Admission::unblock_due() {
    const auto now = Clock::now();
    while (!blocked_.empty() && blocked_.front().until <= now) {
        const auto ssrc = blocked_.front().ssrc;
        blocked_.pop_front();
        if (!expiries_.contains(ssrc)) {
            gate_.remove(ssrc);
        }
    }
}

void Admission::sweep() {
    const auto now = seconds_since_1970();
    std::vector<std::uint32_t> silent;
    std::vector<std::uint32_t> ended;
    std::vector<std::uint32_t> due;
    sessions_.each([&](const Sessions::Session& session) {
        if (session.silent_for >= settings_.silent_after) {
            silent.push_back(session.ssrc);
        } else if (session.ended) {
            ended.push_back(session.ssrc);
        } else if (session.disputed || expiries_.at(session.ssrc) <= now) {
            due.push_back(session.ssrc);
        }
    });
    for (const auto ssrc : silent) {
        remove(ssrc, counters_.silent);
    }
    for (const auto ssrc : ended) {
        remove(ssrc, counters_.ended);
        block(ssrc);  // packets that arrive later must not open it again
    }
    const auto share = (to_review_.size() + static_cast<std::size_t>(settings_.sweeps_per_review) - 1) /
                       static_cast<std::size_t>(settings_.sweeps_per_review);
    for (std::size_t i = 0; i < share; ++i) {
        const auto ssrc = to_review_.front();
        to_review_.pop_front();
        if (expiries_.contains(ssrc)) {
            due.push_back(ssrc);
            to_review_.push_back(ssrc);
        }
    }
    for (std::span left(due); !left.empty(); left = left.subspan(std::min(kBatch, left.size()))) {
        review(left.first(std::min(kBatch, left.size())));
    }
}

// Applies the current records.
void Admission::review(std::span<const std::uint32_t> ssrcs) {
    for (const auto ssrc : ssrcs) {
        query_session(store_, ssrc);
    }
    const auto replies = store_.exchange();
    const auto now = seconds_since_1970();
    for (std::size_t i = 0; i < ssrcs.size(); ++i) {
        const auto found = expiries_.find(ssrcs[i]);
        if (found == expiries_.end()) {
            continue;  // was due twice
        }
        const auto fields =
            replies ? fields_of_session(std::span(*replies).subspan(i * kQueries, kQueries)) : std::nullopt;
        if (fields) {
            review(ssrcs[i], *fields);
        } else if (add(counters_.unanswered); found->second <= now) {
            remove(ssrcs[i], counters_.expired);
        }
    }
}

void Admission::review(std::uint32_t ssrc, const valkey::Fields& fields) {
    const auto answer = read_session(fields, seconds_since_1970());
    if (const auto* record = std::get_if<SessionRecord>(&answer)) {
        expiries_[ssrc] = record->expires_at;
        sessions_.update(ssrc, *record);
    } else {
        remove(ssrc, std::get<Refusal>(answer) == Refusal::kExpired ? counters_.expired : counters_.closed);
    }
}

void Admission::remove(std::uint32_t ssrc, std::atomic<std::uint64_t>& reason) {
    add(reason);
    gate_.remove(ssrc);
    expiries_.erase(ssrc);
    counters_.sessions.store(expiries_.size(), std::memory_order_relaxed);
    sessions_.close(ssrc);
}

}  // namespace voice::admission
