#include "ship/host_registry.hpp"

#include <algorithm>
#include <utility>

#include "support/quiet_thread.hpp"

namespace voice::ship {

HostRegistry::~HostRegistry() {
    stop();
    delete reading_.load(std::memory_order_acquire);
}

void HostRegistry::start() {
    thread_ = start_quiet_thread("registry", [this] { run(); });
}

void HostRegistry::stop() {
    {
        const std::scoped_lock lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) {
        thread_.join();
    }
}

Hosts HostRegistry::take() noexcept {
    const std::unique_ptr<Hosts> reading(reading_.exchange(nullptr, std::memory_order_acquire));
    return reading == nullptr ? nullptr : std::move(*reading);
}

void HostRegistry::run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
        lock.unlock();
        refresh();
        lock.lock();
        wake_.wait_for(lock, settings_.refresh, [this] { return stopping_; });
    }
}

void HostRegistry::refresh() {
    store_.append({"SMEMBERS", kHostsKey});
    const auto replies = store_.exchange();
    if (!replies || replies->front()->type != REDIS_REPLY_ARRAY) {
        counters_.unanswered.fetch_add(1, std::memory_order_relaxed);
        missed_ = true;
        return;
    }
    std::vector<std::string> ids;
    const auto& members = *replies->front();
    for (std::size_t i = 0; i < members.elements; ++i) {
        if (members.element[i]->type == REDIS_REPLY_STRING) {
            ids.emplace_back(members.element[i]->str, members.element[i]->len);
        }
    }
    read(ids);
}

void HostRegistry::read(const std::vector<std::string>& ids) {
    for (const auto& id : ids) {
        store_.append({"HGETALL", std::string(kHostKeyPrefix) + id});
    }
    const auto replies = store_.exchange();
    if (!replies) {
        counters_.unanswered.fetch_add(1, std::memory_order_relaxed);
        missed_ = true;
        return;
    }
    const auto now = Clock::now();
    if (std::exchange(missed_, false)) {
        forgive_outage(now);
    }
    auto alive = std::make_shared<std::vector<Host>>();
    std::vector<std::string> empty;
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto fields = valkey::fields_of(*(*replies)[i]);
        if (fields.empty()) {
            empty.push_back(ids[i]);  // its hash has expired
            continue;
        }
        std::erase_if(missing_, [&](const Host& host) { return host.id == ids[i]; });
        auto host = read_host(ids[i], fields, settings_.chunk_port);
        if (!host) {
            counters_.malformed.fetch_add(1, std::memory_order_relaxed);
        } else if (is_alive(*host)) {
            alive->push_back(std::move(*host));
        }
    }
    if (now < missing_until_) {
        alive->insert(alive->end(), missing_.begin(), missing_.end());
    }
    std::erase_if(beats_, [&](const auto& beat) { return std::find(ids.begin(), ids.end(), beat.first) == ids.end(); });
    counters_.hosts.store(alive->size(), std::memory_order_relaxed);
    last_ = std::move(alive);
    delete reading_.exchange(new Hosts(last_), std::memory_order_acq_rel);
    counters_.refreshes.fetch_add(1, std::memory_order_relaxed);
    remove_expired(std::move(empty));
}

void HostRegistry::remove_expired(std::vector<std::string> empty) {
    bool removes = false;
    for (const auto& id : empty) {
        // Only after two readings, and at once: a host may return in between. The next heartbeat adds it again.
        if (std::find(empty_.begin(), empty_.end(), id) != empty_.end()) {
            store_.append({"SREM", kHostsKey, id});
            removes = true;
        }
    }
    empty_ = std::move(empty);
    if (removes) {
        store_.exchange();
    }
}

void HostRegistry::forgive_outage(Clock::time_point now) {
    for (const Host& host : *last_) {
        if (const auto beat = beats_.find(host.id); beat != beats_.end()) {
            beat->second.since = now;
        }
    }
    empty_.clear();
    missing_ = *last_;
    missing_until_ = now + settings_.dead_after;
}

bool HostRegistry::is_alive(const Host& host) {
    const auto now = Clock::now();
    auto& beat = beats_[host.id];
    if (beat.value != host.heartbeat) {
        beat = {host.heartbeat, now};
    }
    return now - beat.since < settings_.dead_after;
}

}  // namespace voice::ship
