#include "state/write_behind.hpp"

#include <string>
#include <utility>

#include "admission/session_record.hpp"
#include "support/quiet_thread.hpp"

namespace voice::state {
namespace {

using admission::kChunks;
using admission::kLastSequence;
using admission::kSeenAt;
using admission::kState;
using admission::session_key;

bool is_true(const valkey::Reply& reply) { return reply->type == REDIS_REPLY_INTEGER && reply->integer == 1; }

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
            found[static_cast<std::uint32_t>(session)] = {state.chunks, state.last_sequence, seen.count()};
        }
    }
    return found;
}

// Empties the batch; false when the store did not answer.
bool WriteBehind::write(std::vector<std::pair<std::uint32_t, Row>>& batch) {
    const auto rows = std::exchange(batch, {});
    for (const auto& [ssrc, row] : rows) {
        store_.append({"HEXISTS", session_key(ssrc), kState});
    }
    auto there = store_.exchange();
    if (!there) {
        ++counters_.unanswered;
        return false;
    }
    std::vector<std::pair<std::uint32_t, Row>> sent;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (is_true((*there)[i])) {
            sent.push_back(rows[i]);
            append(rows[i].first, rows[i].second);
        } else {
            ++counters_.gone;
            written_[rows[i].first] = rows[i].second;
        }
    }
    there = store_.exchange();
    if (!there) {
        ++counters_.unanswered;
        return false;
    }
    for (std::size_t i = 0; i < sent.size(); ++i) {
        const auto& [ssrc, row] = sent[i];
        written_[ssrc] = row;
        if (is_true((*there)[2 * i + 1])) {
            ++counters_.written;
        } else {
            ++counters_.gone;
            store_.append({"HDEL", session_key(ssrc), kChunks, kLastSequence, kSeenAt});
        }
    }
    return store_.exchange().has_value();
}

void WriteBehind::append(std::uint32_t ssrc, const Row& row) {
    const auto key = session_key(ssrc);
    const auto chunks = std::to_string(row.chunks);
    const auto seen_at = std::to_string(row.seen_at);
    if (row.chunks == 0) {
        store_.append({"HSET", key, kSeenAt, seen_at});
    } else {
        const auto last = std::to_string(row.last_sequence);
        store_.append({"HSET", key, kChunks, chunks, kLastSequence, last, kSeenAt, seen_at});
    }
    store_.append({"HEXISTS", key, kState});
}

}  // namespace voice::state
