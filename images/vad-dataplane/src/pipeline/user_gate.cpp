#include "pipeline/user_gate.hpp"

#include <chrono>

namespace voice::pipeline {
namespace {

std::uint32_t second() noexcept {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

std::uint64_t entry(std::uint32_t ssrc, std::uint32_t at) noexcept { return std::uint64_t{ssrc} << 32 | at; }

// An empty place is 0, and SSRC 0 is an SSRC.
bool is_of(std::uint64_t found, std::uint32_t ssrc) noexcept { return found != 0 && found >> 32 == ssrc; }

}  // namespace

control::DropReason UserGate::on_packet(std::uint32_t ssrc) noexcept {
    if (is_of(place(blocked_, ssrc).load(std::memory_order_relaxed), ssrc)) {
        return control::DropReason::kBlocked;
    }
    const std::uint32_t now = second();
    std::atomic<std::uint64_t>& asked = place(asked_, ssrc);
    const std::uint64_t last = asked.load(std::memory_order_relaxed);
    if (is_of(last, ssrc) && now - static_cast<std::uint32_t>(last) < kAskEveryS) {
        return control::DropReason::kUnknownSession;
    }
    if (!requests_.offer(ssrc)) {
        return control::DropReason::kAdmissionFull;
    }
    asked.store(entry(ssrc, now), std::memory_order_relaxed);
    return control::DropReason::kUnknownSession;
}

bool UserGate::block(std::uint32_t ssrc) {
    place(blocked_, ssrc).store(entry(ssrc, second()), std::memory_order_relaxed);
    return true;
}

bool UserGate::remove(std::uint32_t ssrc) {
    std::atomic<std::uint64_t>& blocked = place(blocked_, ssrc);
    if (is_of(blocked.load(std::memory_order_relaxed), ssrc)) {
        blocked.store(0, std::memory_order_relaxed);
    }
    return true;
}

void UserGate::each(const std::function<void(const Session&)>& callback) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    sessions_.each([&](const Slot& slot) {
        const auto seen = slot.seen_ns.load(std::memory_order_relaxed);
        callback({slot.ssrc, false, std::chrono::nanoseconds(now - seen)});
    });
}

}  // namespace voice::pipeline
