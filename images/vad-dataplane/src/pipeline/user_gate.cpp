#include "pipeline/user_gate.hpp"

namespace voice::pipeline {
namespace {

std::uint32_t second_of(std::int64_t now_ns) noexcept { return static_cast<std::uint32_t>(now_ns / 1'000'000'000); }

std::uint64_t entry(std::uint32_t ssrc, std::uint32_t at) noexcept { return std::uint64_t{ssrc} << 32 | at; }

// An empty entry is 0, and SSRC 0 is valid.
bool is_of(std::uint64_t found, std::uint32_t ssrc) noexcept { return found != 0 && found >> 32 == ssrc; }

}  // namespace

control::DropReason UserGate::on_unknown(std::uint32_t ssrc, std::uint64_t source, std::int64_t now_ns) noexcept {
    if (is_of(place(blocked_, ssrc).load(std::memory_order_relaxed), ssrc)) {
        return control::DropReason::kBlocked;
    }
    const std::uint32_t now = second_of(now_ns);
    std::atomic<std::uint64_t>& asked = place(asked_, ssrc);
    const std::uint64_t last = asked.load(std::memory_order_relaxed);
    if (is_of(last, ssrc) && now - static_cast<std::uint32_t>(last) < kAskEveryS) {
        return control::DropReason::kUnknownSession;
    }
    if (!may_look_up(voice_sender_of(ssrc, source), source, static_cast<std::uint64_t>(now_ns)) || !requests_.offer(ssrc)) {
        return control::DropReason::kAdmissionFull;
    }
    asked.store(entry(ssrc, now), std::memory_order_relaxed);
    return control::DropReason::kUnknownSession;
}

bool UserGate::may_look_up(std::uint64_t sender, std::uint64_t source, std::uint64_t now_ns) noexcept {
    std::atomic<std::uint64_t>& of_address = place(addresses_, voice_address_of(source));
    std::atomic<std::uint64_t>& last_turned_away = place(turned_away_, sender);
    __u64 before = paid_ns_.load(std::memory_order_relaxed);
    __u64 paid = before;
    __u64 address_paid = of_address.load(std::memory_order_relaxed);
    __u64 turned_away = last_turned_away.load(std::memory_order_relaxed);
    const bool allowed = voice_allow_look_up(&paid, &address_paid, &turned_away, sender, now_ns, per_s_) != 0;
    of_address.store(address_paid, std::memory_order_relaxed);
    last_turned_away.store(turned_away, std::memory_order_relaxed);
    // If another poller interferes, the sender's next packet requests again.
    return allowed && paid_ns_.compare_exchange_strong(before, paid, std::memory_order_relaxed);
}

bool UserGate::block(std::uint32_t ssrc) {
    place(blocked_, ssrc).store(entry(ssrc, 1), std::memory_order_relaxed);
    return true;
}

bool UserGate::remove(std::uint32_t ssrc) {
    std::atomic<std::uint64_t>& blocked = place(blocked_, ssrc);
    if (is_of(blocked.load(std::memory_order_relaxed), ssrc)) {
        blocked.store(0, std::memory_order_relaxed);
    }
    return true;
}

}  // namespace voice::pipeline
