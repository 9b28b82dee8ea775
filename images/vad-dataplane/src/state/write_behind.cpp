#include "state/write_behind.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "admission/session_record.hpp"
#include "support/quiet_thread.hpp"

namespace voice::state {
namespace {

using admission::kBeginsAt;
using admission::kChunks;
using admission::kLastSequence;
using admission::kSeenAt;
using admission::kWrongPayload;
using admission::session_key;
using admission::shipped_key;

constexpr long long kGone = -2;  // Redis's answer to TTL for a missing key

bool is_there(const valkey::Reply& reply) { return reply->type == REDIS_REPLY_INTEGER && reply->integer != kGone; }

// False if the store was unreachable, or refused a command: it is full, is a replica now, or loads its data.
bool is_done(const std::optional<std::vector<valkey::Reply>>& replies) {
    const auto is_refusal = [](const auto& reply) { return reply->type == REDIS_REPLY_ERROR; };
    return replies && std::ranges::none_of(*replies, is_refusal);
}

}  // namespace

WriteBehind::WriteBehind(std::chrono::milliseconds every, valkey::Endpoint store,
                         const std::vector<const SessionTable*>& tables)
    : every_(every), store_(std::move(store)) {
    for (const SessionTable* table : tables) {
        tables_.emplace_back(*table);
    }
}

void WriteBehind::start() {
    thread_ = start_quiet_thread("write-behind", [this] { run(); });
}

void WriteBehind::stop() {
    {
        const std::scoped_lock lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) {
        thread_.join();
        pass();
    }
}

void WriteBehind::run() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, every_, [this] { return stopping_; })) {
        lock.unlock();
        pass();
        lock.lock();
    }
}

void WriteBehind::pass() {
    Rows now = rows();
    std::erase_if(written_, [&](const auto& each) { return !now.contains(each.first); });
    std::vector<std::pair<std::uint32_t, Row>> batch;
    for (const auto& each : now) {
        const auto before = written_.find(each.first);
        if (before == written_.end() || before->second != each.second) {
            batch.push_back(each);
        }
        if (batch.size() == kBatch && !write(batch)) {
            return;
        }
    }
    if (!batch.empty()) {
        write(batch);
    }
}

WriteBehind::Rows WriteBehind::rows() const {
    const auto monotonic = std::chrono::steady_clock::now().time_since_epoch();
    const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
    const auto now_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(monotonic).count());
    Rows found;
    Value value;
    for (const auto& table : tables_) {
        for (const Entry& entry : table.entries()) {
            const auto session = entry.key.load(std::memory_order_relaxed);
            if (entry.held.load(std::memory_order_relaxed) == 0 ||
                table.read(session, now_ns, value) != SessionTableReader::Found::kYes) {
                continue;
            }
            const SessionState state = from_value(value);
            const auto ago = std::chrono::nanoseconds(monotonic) - std::chrono::nanoseconds(state.seen_ns);
            const auto seen = std::chrono::floor<std::chrono::seconds>(since_1970 - ago);
            found[static_cast<std::uint32_t>(session)] = {
                state.chunks, state.last_sequence, seen.count(),
                state.has_origin != 0 ? std::optional(state.origin) : std::nullopt, state.wrong_payload};
        }
    }
    return found;
}

// Empties the batch; false if the store did not answer, or refused a command.
bool WriteBehind::write(std::vector<std::pair<std::uint32_t, Row>>& batch) {
    const auto rows = std::exchange(batch, {});
    for (const auto& [ssrc, row] : rows) {
        store_.append({"TTL", session_key(ssrc)});
    }
    const auto lifetimes = store_.exchange();
    if (!is_done(lifetimes)) {
        ++counters_.unanswered;
        return false;
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (const auto& lifetime = (*lifetimes)[i]; is_there(lifetime)) {
            append(rows[i].first, rows[i].second, std::chrono::seconds(lifetime->integer));
        }
    }
    if (!is_done(store_.exchange())) {
        ++counters_.unanswered;
        return false;
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
        written_[rows[i].first] = rows[i].second;
        ++(is_there((*lifetimes)[i]) ? counters_.written : counters_.gone);
    }
    return true;
}

void WriteBehind::append(std::uint32_t ssrc, const Row& row, std::chrono::seconds lifetime) {
    const auto key = shipped_key(ssrc);
    std::vector<std::string> words{"HSET", key, std::string(kSeenAt), std::to_string(row.seen_at)};
    const auto add = [&words](std::string_view field, std::uint64_t value) {
        words.emplace_back(field);
        words.push_back(std::to_string(value));
    };
    if (row.chunks != 0) {
        add(kChunks, row.chunks);
        add(kLastSequence, row.last_sequence);
    }
    if (row.origin) {
        add(kBeginsAt, *row.origin);
    }
    if (row.wrong_payload != 0) {
        add(kWrongPayload, row.wrong_payload);
    }
    store_.append(words);
    store_.append({"EXPIRE", key, std::to_string(std::max(lifetime, kShortestLifetime).count())});
}

}  // namespace voice::state
