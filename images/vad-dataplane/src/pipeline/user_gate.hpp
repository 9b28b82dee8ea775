// Replaces the XDP program where there is none: requests admission of unknown senders, and blocks refused ones.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "admission/request_queue.hpp"
#include "pipeline/poller.hpp"
#include "xdp/steer.h"

namespace voice::pipeline {

class UserGate final : public admission::Gate, public Senders {
public:
    // `per_s`: admission requests of unknown senders.
    UserGate(admission::RequestQueue& requests, unsigned per_s) noexcept : requests_(requests), per_s_(per_s) {}

    // Called by pollers. Requests a sender once a second; takes a lock to do so.
    control::DropReason on_unknown(std::uint32_t ssrc, std::uint64_t source, std::int64_t now_ns) noexcept override;

    // Called by admission. Pollers know their own sessions.
    bool admit(std::uint32_t, std::uint32_t) override { return true; }
    bool block(std::uint32_t ssrc) override;
    bool remove(std::uint32_t ssrc) override;

private:
    static constexpr std::size_t kPlaces = 8192;
    static constexpr std::uint32_t kAskEveryS = 1;

    // One entry per hash: a collision requests a sender more often than once a second, or forgets a refusal.
    template <std::size_t kEntries>
    using Table = std::array<std::atomic<std::uint64_t>, kEntries>;
    template <std::size_t kEntries>
    static std::atomic<std::uint64_t>& place(Table<kEntries>& table, std::uint64_t key) noexcept {
        return table[voice_entry_of(key, kEntries)];
    }

    [[nodiscard]] bool may_look_up(std::uint64_t sender, std::uint64_t source, std::uint64_t now_ns) noexcept;

    admission::RequestQueue& requests_;
    unsigned per_s_;
    std::atomic<__u64> paid_ns_{0};  // voice_allow() of all pollers
    Table<VOICE_STEER_ADDRESSES> addresses_{};      // voice_allow() of each
    Table<VOICE_STEER_TURNED_AWAY> turned_away_{};  // the last voice_sender_of() of each entry
    // SSRC in the high bits, a second of the steady clock in the low bits
    Table<kPlaces> asked_{};
    Table<kPlaces> blocked_{};
};

}  // namespace voice::pipeline
