#include "admission/admission.hpp"

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
        store_.append({"HGETALL", session_key(ssrc)});
    }
    const auto replies = store_.exchange();
    if (!replies) {
        add(counters_.unanswered, ssrcs.size());
        return;
    }
    for (std::size_t i = 0; i < ssrcs.size(); ++i) {
        answer(ssrcs[i], *(*replies)[i]);
    }
}

void Admission::answer(std::uint32_t ssrc, const redisReply& reply) {
    if (reply.type == REDIS_REPLY_ERROR) {
        add(counters_.unanswered);
        return;
    }
    const auto answer = read_session(valkey::fields_of(reply), seconds_since_1970());
    if (const auto* record = std::get_if<SessionRecord>(&answer)) {
        admit(ssrc, *record);
        return;
    }
    if (std::get<Refusal>(answer) == Refusal::kMalformed) {
        add(counters_.malformed);
    }
    block(ssrc);
}

void Admission::admit(std::uint32_t ssrc, const SessionRecord& record) {
    if (expiries_.contains(ssrc)) {
        return;  // asked about twice before the first answer
    }
    if (!sessions_.open(ssrc, record)) {
        add(counters_.no_room);
        return;
    }
    if (!gate_.admit(ssrc)) {
        sessions_.close(ssrc);
        add(counters_.no_room);
        return;
    }
    expiries_.emplace(ssrc, record.expires_at);
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
    std::vector<std::uint32_t> over;
    gate_.each([&](const Gate::Session& session) {
        const auto found = expiries_.find(session.ssrc);
        if (session.blocked || found == expiries_.end()) {
            return;
        }
        if (session.silent_for >= settings_.silent_after) {
            add(counters_.silent);
        } else if (found->second <= now) {
            add(counters_.expired);
        } else {
            return;
        }
        over.push_back(session.ssrc);
    });
    for (const auto ssrc : over) {
        remove(ssrc);
    }
}

void Admission::remove(std::uint32_t ssrc) {
    gate_.remove(ssrc);
    expiries_.erase(ssrc);
    counters_.sessions.store(expiries_.size(), std::memory_order_relaxed);
    sessions_.close(ssrc);
}

}  // namespace voice::admission
