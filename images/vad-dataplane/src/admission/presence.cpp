#include "admission/presence.hpp"

#include <utility>

#include "ship/host.hpp"
#include "support/quiet_thread.hpp"

namespace voice::admission {

Presence::Presence(Identity identity, valkey::Endpoint store, std::function<Report()> report)
    : identity_(std::move(identity)), key_(std::string(kVadHostKeyPrefix) + identity_.host), store_(std::move(store)),
      report_(std::move(report)) {}

void Presence::start() {
    thread_ = start_quiet_thread("presence", [this] { run(); });
}

void Presence::stop() {
    {
        const std::scoped_lock lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) {
        thread_.join();
        leave();
    }
}

void Presence::run() {
    std::unique_lock lock(mutex_);
    do {
        lock.unlock();
        beat();
        lock.lock();
    } while (!wake_.wait_for(lock, kEvery, [this] { return stopping_; }));
}

void Presence::beat() {
    const Report report = report_();
    if (!report.can_flow && !report.draining) {
        return;
    }
    // Readers remove ids from the set whose records have expired.
    store_.append({"SADD", kVadHostsKey, identity_.host});
    // Wall-clock time, so that the number never repeats after a restart.
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    store_.append({"HSET", key_, ship::kKind, kKindVad, ship::kAddress, identity_.address, ship::kFreeSlots,
                   std::to_string(report.free_slots), ship::kDraining, report.draining ? "1" : "0", ship::kHeartbeat,
                   std::to_string(std::chrono::nanoseconds(now).count())});
    store_.append({"EXPIRE", key_, kExpiresAfterSeconds});
    if (!store_.exchange()) {
        unanswered_.fetch_add(1, std::memory_order_relaxed);
    }
}

void Presence::leave() {
    store_.append({"DEL", key_});
    store_.append({"SREM", kVadHostsKey, identity_.host});
    if (!store_.exchange()) {
        unanswered_.fetch_add(1, std::memory_order_relaxed);
    }
}

}  // namespace voice::admission
